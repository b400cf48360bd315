"""The two kinds of manifest a channel can name: a JSON list of keys, and an augmented manifest of JSON lines.

Both are written by hand or by small scripts, so errors name the manifest's URI and the entry or line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from launcher.errors import RefusedError
from launcher.s3.reading import Stream
from launcher.s3.uri import S3Location, parse_s3_uri
from sagemaker_channels.sources.items import evenly_spaced

REFERENCE = "-ref"  # ends the names of attributes whose value is the S3 URI of an object to send
_FORM = '[{"prefix": "s3://bucket/folder/"}, "key1", "key2"]'


def read_manifest(read: Callable[[S3Location], Stream], uri: str) -> tuple[S3Location, Iterator[str]]:
    """Return the prefix of a ManifestFile, and an iterator over the entries that continue it to whole keys.

    Raises RefusedError if it cannot be read or is not of the form `[{"prefix": "s3://..."}, "key", ...]`; so does the iterator for
    a wrong entry.
    """
    content = b"".join(read(parse_s3_uri(uri)))
    try:
        text = content.decode("utf-8-sig")
        elements = json.loads(text) if text.lstrip().startswith("[") else []
    except ValueError as error:
        reason = f"{error.msg}, at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise RefusedError(f"{uri}: this manifest is not JSON ({reason}); write {_FORM}") from error
    head = elements[0] if elements else None
    if not isinstance(head, dict) or not isinstance(head.get("prefix"), str):
        raise RefusedError(f'{uri}: a manifest is a JSON list that begins with {{"prefix": "s3://..."}}; write {_FORM}')
    return _place(head["prefix"], f"{uri}: prefix"), _entries(elements[1:], head["prefix"], uri)


def _entries(elements: Sequence[Any], prefix: str, uri: str) -> Iterator[str]:
    for index, entry in enumerate(elements, 1):
        if not isinstance(entry, str) or not entry:
            shown = json.dumps(entry)
            what = f"entry {index}: expected a non-empty text, the key after the prefix, got {shown}"
            raise RefusedError(f"{uri}: {what}; write {_FORM}")
        if entry.startswith("s3://"):
            what = f"entry {index}, {entry!r}, is a whole URI, but every entry continues the prefix {prefix!r}"
            raise RefusedError(f"{uri}: {what} (one bucket per manifest); write only what follows the prefix")
        yield entry


def _place(value: object, where: str) -> S3Location:
    """Return the object or prefix that a manifest names. Raises RefusedError, beginning with `where`, if it is not an S3 URI."""
    try:
        return parse_s3_uri(str(value))
    except RefusedError as error:
        raise RefusedError(f"{where}: {error}") from None


class AugmentedManifest:
    """The lines of an augmented manifest: `len()` counts them, `values(index)` reads one."""

    def __init__(
        self,
        read: Callable[[S3Location], Stream],
        uri: str,
        names: Sequence[str],
        sample: int | None = None,
    ) -> None:
        """Read the manifest and check that each line has every attribute; of a `sample`, only so many lines, evenly spaced.

        Raises RefusedError if a line does not, if a reference is not an S3 URI, or if there are no lines or no names.
        """
        if not names:
            raise RefusedError(f"{uri}: an augmented manifest needs AttributeNames, which select the values to send")
        self._uri, self._names = uri, tuple(names)
        lines = enumerate(b"".join(read(parse_s3_uri(uri))).split(b"\n"), 1)
        self._lines = evenly_spaced([(number, line) for number, line in lines if line.strip()], sample)
        if not self._lines:
            raise RefusedError(f"{uri}: this augmented manifest has no lines; write one JSON object per line")
        for index in range(len(self)):
            self.values(index)

    def __len__(self) -> int:
        return len(self._lines)

    def values(self, index: int) -> list[bytes | S3Location]:
        """Return the values of line `index` (from 0, without blank lines), in the order of the names.

        A value of the line itself is bytes: a string's text, or JSON for any other type. A reference is an object in S3.
        """
        number, line = self._lines[index]
        where = f"line {number}"
        try:
            attributes = json.loads(line.decode("utf-8-sig"))
        except ValueError as error:
            raise RefusedError(f"{self._uri}: {where} is not JSON ({error}); write one JSON object per line") from error
        if not isinstance(attributes, dict):
            raise RefusedError(f"{self._uri}: {where} is not a JSON object; write one JSON object per line")
        values: list[bytes | S3Location] = []
        for name in self._names:
            if name not in attributes:
                what = f"{where} has no attribute {name!r} (it has {', '.join(attributes)})"
                raise RefusedError(f"{self._uri}: {what}; correct the line or AttributeNames")
            value = attributes[name]
            if name.endswith(REFERENCE):
                values.append(_place(value, f"{self._uri}: {where}: {name!r}"))
            else:
                values.append((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode())
        return values
