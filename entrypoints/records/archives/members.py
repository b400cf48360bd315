"""From the names of an archive's members to samples and fields, the same in a tar and in a zip.

Members that share their name up to the first dot of the base name are one sample, and the field is what follows the dot. A
base name that begins with a dot is hidden, as macOS's `._1.jpg` beside `1.jpg` and `.DS_Store` are, and
left out, as webdataset does. A member without a dot, which webdataset also leaves out, is field `data`.
"""

from __future__ import annotations

from collections.abc import Iterator

from entrypoints.records.refusing import content, refusal
from entrypoints.sample import KEY, Sample

MACOS_FOLDER = "__MACOSX/"  # what macOS adds to a zip: not samples, but its own attributes of the files


def members_of(number: int, sample: Sample) -> Iterator[tuple[str, bytes]]:
    """Yield the members of the `number`-th sample: names and contents.

    Raises:
        SampleError: The sample would not be read back: it has no key, no fields, or names that mean something else.
    """
    key = sample.get(KEY)
    last = key.rpartition("/")[2] if isinstance(key, str) and "\0" not in key else ""
    if not last or "." in last:
        raise refusal(
            number,
            sample,
            "its __key__ names its files in the archive: expected a text without zero bytes, with something but no dot after "
            "the last slash (the field follows a dot)",
        )
    if len(sample) == 1:
        raise refusal(
            number, sample, "it has no fields, so no files, and would be lost; add a field, even an empty one"
        )
    for field in sample:
        if field == KEY:
            continue
        if "/" in field or "\0" in field:
            raise refusal(
                number, sample, f"field {field!r} cannot be a file's ending; use a text without / and zero bytes"
            )
        yield f"{key}.{field}", content(number, sample, field)
