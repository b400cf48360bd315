"""What the names of an archive's members say: which sample's they are and which field; the same in a tar and in a zip.

Members that share their name up to the first dot of the base name are one sample, and what follows the dot is the field. A
base name that begins with a dot has no such name: it is hidden, as macOS's `._1.jpg` beside `1.jpg` and `.DS_Store` are, and
left out, as webdataset does. A member without a dot, which webdataset leaves out too, is field `data`.
"""

from __future__ import annotations

from collections.abc import Iterator

from entrypoints.records.refusing import content, refusal
from entrypoints.sample import KEY, Sample


def members_of(number: int, sample: Sample) -> Iterator[tuple[str, bytes]]:
    """The members that make up a sample, the `number`-th: names and contents.

    Raises SampleError where the sample would not come back: without a key or fields, or with names that say something else.
    """
    key = sample.get(KEY)
    last = key.rpartition("/")[2] if isinstance(key, str) and "\0" not in key else ""
    if not last or "." in last:
        raise refusal(
            number,
            sample,
            "the name of its files in the archive is its __key__, which must be a text, with something and no dot behind the "
            "last slash (what follows a dot is the field), without zero bytes",
        )
    if len(sample) == 1:
        raise refusal(number, sample, "it has no fields, so no files: it would be lost; give it a field, empty perhaps")
    for field in sample:
        if field == KEY:
            continue
        if "/" in field or "\0" in field:
            raise refusal(number, sample, f"field {field!r} is no file's ending: write a text without / and zero bytes")
        yield f"{key}.{field}", content(number, sample, field)
