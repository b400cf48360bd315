"""Rules on content types: their spelling, and which of them the readers in the container can find in a Pipe."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.errors import SpecPath, nearest
from launcher.request.view import Draft, media_type
from launcher.rules.rule import Mistake, error, warning
from sagemaker_channels import contract

# The formats of `sagemaker_channels.formats` by short name, each with the nearest MIME type: other formats of that type are only
# chosen by their short name, in open_channel. Importing that package takes a fifth of a dry run's time, so a test compares them.
MIME_TYPES = {
    "tar": "application/x-tar",
    "zip": "application/zip",
    "recordio": "application/x-recordio",
    "image-recordio": "application/x-recordio",
    "recordio-protobuf": "application/x-recordio-protobuf",
    "tfrecord": "application/x-tfrecord",
    "tfrecord-example": "application/x-tfrecord",
    "parquet": "application/x-parquet",
    "lines": "text/plain",
    "jsonl": "application/jsonlines",
    "csv": "text/csv",
    "augmented": "application/jsonlines",
    "objects": "application/octet-stream",
}


def _with_short_names(*types: str) -> frozenset[str]:
    return frozenset({*types, *(name for name, mime_type in MIME_TYPES.items() if mime_type in types)})


# Content types and short names whose samples are lines, and those whose table of contents is at the end of the object.
LINES = _with_short_names("application/jsonlines", "text/csv", "text/plain")
READ_FROM_END = _with_short_names("application/x-parquet", "application/zip")
# Those that mark the end of a record; with any other content type an object is one record.
BOUNDED = _with_short_names(*MIME_TYPES.values()) - READ_FROM_END - _with_short_names("application/octet-stream")
# Other types by common names, and types that resemble a known one and are right.
_OTHERS = {
    "image": "application/x-image",
    "json": "application/json",
    "ndjson": "application/jsonlines",
    "jpg": "image/jpeg",
    "libsvm": "text/libsvm",
}
_KNOWN = {*MIME_TYPES.values(), *_OTHERS.values(), "application/gzip", "application/x-gzip", "application/protobuf"}
_KNOWN |= {"application/x-protobuf", "text/tsv", "text/x-libsvm"}
_OPTIONS_OF_ROWS = r"(?:header|delimiter)=[^;\s]+"  # of the format csv; text/csv is lines


@warning("channel-content-type")
def content_type_is_known(draft: Draft) -> Iterator[Mistake]:
    """A content type that resembles a known one is probably misspelt; readers in the container take its objects as they are."""
    for path, whole in _content_types(draft):
        written = media_type(whole)
        knows_short_names = written in MIME_TYPES and is_bundled(draft)
        if "/" not in written and (draft.spec.code is None or knows_short_names):
            continue
        if written in MIME_TYPES:
            yield (
                path,
                f"{written!r} is the short name of a format, not a MIME type; write {MIME_TYPES[written]}, and if the script"
                f" needs this very format, open_channel(..., format={whole!r})",
            )
        elif written == "text/csv" and draft.spec.code and (options := re.findall(_OPTIONS_OF_ROWS, whole.lower())):
            rows = f"open_channel(..., format={'; '.join(['csv', *options])!r})"
            yield path, f"{whole!r} is read as lines, with any header among them; if the script needs rows, {rows}"
        elif written not in _KNOWN and (meant := _nearest_type(written)):
            yield path, f"{written!r} is not a known content type; did you mean {meant}?"


def _content_types(draft: Draft) -> Iterator[tuple[SpecPath, str]]:
    for entry in draft.entries:
        yield entry.path("ContentType"), entry.get("ContentType") or ""
    for name, channel in draft.spec.all_channels.items():
        if channel.connector(name) is not None:
            yield ("channels", name, "content_type"), channel.content_type or ""


def _nearest_type(content_type: str) -> str | None:
    """Return the known type that an unknown one resembles; its part before the slash and prefixes such as `x-` do not count."""
    kind, _, name = content_type.rpartition("/")
    name = re.sub(r"^(x-|vnd\.apache\.)", "", name)
    if name in _OTHERS:
        return _OTHERS[name]
    known = MIME_TYPES | {each.rpartition("/")[2].removeprefix("x-"): each for each in MIME_TYPES.values()}
    is_data = kind in ("", "application", "text") and not re.search(r"[+]|^vnd\.", name)
    found = nearest(name, known) if name and is_data else None
    return known[found] if found else None


@error("pipe-without-boundaries")
def whole_objects_through_a_pipe(draft: Draft) -> Iterator[Mistake]:
    """A FIFO joins the objects, and without a record format the bundled scripts cannot find where one ends."""
    for entry in draft.entries if is_bundled(draft) else ():
        if (
            entry.mode == "Pipe"
            and entry.get("RecordWrapperType") != "RecordIO"
            and entry.content_type not in BOUNDED
            and len(entry.get("AttributeNames") or ()) < 2  # attributes_need_boundaries checks several
        ):
            what = f"content_type {entry.content_type!r} has" if entry.content_type else "objects have"
            script = draft.spec.code and draft.spec.code.entry_point
            remedy = "add record_wrapper_type: RecordIO, write a content_type that has them, such as application/x-tar,"
            what += f" no boundaries in a stream, so {script} could not separate them"
            yield entry.whole, f"{what}; {remedy} or use FastFile"


@warning("pipe-read-from-end")
def read_from_end_through_a_pipe(draft: Draft) -> Iterator[Mistake]:
    """Parquet and zip are read from an object's end, which a FIFO of joined objects does not show."""
    for entry in draft.entries if draft.spec.code is not None and not is_bundled(draft) else ():
        wrapped = entry.get("RecordWrapperType") == "RecordIO"
        if entry.mode == "Pipe" and entry.content_type in READ_FROM_END and not wrapped:
            what = f"{entry.content_type!r} is read from an object's end"
            yield entry.whole, f"{what}, which is impossible in a Pipe; use input_mode: FastFile"


def is_bundled(draft: Draft) -> bool:
    """Return whether the job runs a bundled script, of which it is known how it reads."""
    code = draft.spec.code
    return code is not None and (code.entry_point or "").startswith(f"{contract.SCRIPTS_DIR}/")
