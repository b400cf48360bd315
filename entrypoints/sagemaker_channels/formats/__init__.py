"""Where a record ends: one card per format, and the table of them.

A new format is a module with a card, `FORMAT` (see `format.py`), and its line in FORMATS. Content types, short names, the
writers of shards, the table in the reference and the tests of all formats are derived from FORMATS.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import (
    augmented,
    csv_rows,
    example,
    image_recordio,
    json_lines,
    lines,
    objects,
    parquet,
    recordio,
    recordio_protobuf,
    tar,
    tfrecord,
    zip_archive,
)
from sagemaker_channels.formats.format import Format as Format
from sagemaker_channels.formats.format import with_options

FORMATS: tuple[Format, ...] = (
    tar.FORMAT,
    zip_archive.FORMAT,
    recordio.FORMAT,
    image_recordio.FORMAT,
    recordio_protobuf.FORMAT,
    tfrecord.FORMAT,
    example.FORMAT,
    parquet.FORMAT,
    lines.FORMAT,
    json_lines.FORMAT,
    csv_rows.FORMAT,
    augmented.FORMAT,
    objects.FORMAT,
)
SHORT_NAMES: Mapping[str, Format] = {form.name: form for form in FORMATS}
CONTENT_TYPES: Mapping[str, Format] = {name: form for form in FORMATS for name in form.content_types}


def labelled(form: Format) -> Format:
    """Return the format that holds a label beside this one's records: of records without names of fields another one."""
    return next((each for each in FORMATS if each.holds and each.framing == form), form)


def format_of(content_type: str | None) -> Format:
    """Return the format of a content type or short name (`tar`), with its options; `format_of(str(form))` equals `form`.

    Without a content type, or with an unknown one, this is whole objects. Raises ChannelError for an unknown short name, and for
    wrong options.
    """
    if content_type is None or not content_type.strip():
        return objects.FORMAT
    name = content_type.partition(";")[0].strip().lower()
    if "/" in name:
        return with_options(CONTENT_TYPES.get(name, objects.FORMAT), content_type)
    if name not in SHORT_NAMES:
        near = difflib.get_close_matches(name, SHORT_NAMES, 1)
        raise ChannelError(
            f"format {content_type!r} is neither a content type nor one of {', '.join(SHORT_NAMES)}",
            remedy=f"did you mean {near[0]!r}?" if near else None,
        )
    return with_options(SHORT_NAMES[name], content_type)
