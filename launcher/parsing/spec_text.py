"""From a file's bytes to its text and lines, with the characters refused that a reader cannot see.

Invisible characters, and line breaks that only YAML knows, would change a value without the writer's notice. Control
characters are never printed to a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from launcher.errors import Location, Problem, SpecError
from launcher.spec.job import JobSpec

MAX_BYTES = 1_000_000
SMART_QUOTES = "“”„‟‘’‚‛"
_ENDINGS = (".yaml", ".yml", ".json")  # of specs
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029"
_REFUSED = f"[{_CONTROL}\ufeff\ufffe\uffff\ud800-\udfff]|\r(?!\n)"  # compiled only if needed, as is the next
_UNSHOWN = f"[{_CONTROL}\ud800-\udfff]"
_LINE_BREAK = "which only YAML treats as the end of a line; delete it, or write"
_WHY_REFUSED = {
    "\x85": rf"holds U+0085, {_LINE_BREAK} \N in double quotes",
    "\u2028": rf"holds U+2028, {_LINE_BREAK} \L in double quotes",
    "\u2029": rf"holds U+2029, {_LINE_BREAK} \P in double quotes",
    "\r": "holds a carriage return without a line feed, which YAML treats as the end of a line; delete it",
    "\ufeff": "holds a byte order mark, U+FEFF, which is invisible; delete it",
}
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def is_spec(path: object) -> bool:
    """Return whether a path ends like a spec's, or is `-` for standard input."""
    return str(path) == "-" or str(path).lower().endswith(_ENDINGS)


def first_keys(text: bytes) -> list[str]:
    """Return what look like the keys at the top of a YAML file that cannot be parsed."""
    found = re.findall(rb"^[\"']?(\w{1,50})[\"']?[ \t]*:", text, re.MULTILINE)
    return [key.decode("ascii") for key in found]


def are_of_a_spec(keys: Collection[str]) -> bool:
    """Return whether more than half of the keys at the top of a file are those of a spec."""
    return 2 * sum(key in JobSpec.model_fields for key in keys) > len(keys)


def lines_of(source: str | bytes) -> list[str]:
    """Return the lines to quote under messages; control characters and bytes that are not UTF-8 become U+FFFD."""
    if len(source) > MAX_BYTES:
        return []
    text = source if isinstance(source, str) else source.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff")
    if not _is_printable(text):
        text = re.sub("\r\n?", "\n", re.sub(_UNSHOWN, "\ufffd", text))
    return text.split("\n")


def refused(file: str, place: tuple[int, int], message: str, code: str, lines: Sequence[str] = ()) -> SpecError:
    """Return the error for one problem; `place` is a line and a column."""
    line, column = place
    quoted = lines[line - 1] if 0 < line <= len(lines) else ""
    if code == "yaml-syntax":
        quoted = quoted.replace("\t", "→")  # a tab that causes the problem has to be visible
    return SpecError([Problem((), message, code, location=Location(file, line, column, quoted))])


def checked_text(source: str | bytes, file: str) -> str:
    """Return the text of a UTF-8 file. Raises SpecError if it is not UTF-8, too large, or has a refused character."""
    if len(source) > MAX_BYTES:
        raise refused(file, (1, 1), f"is larger than {MAX_BYTES:,} bytes; check that it is a spec", "yaml-too-large")
    text = (source if isinstance(source, str) else _decoded(source, file)).removeprefix("\ufeff")
    for found in () if _is_printable(text) else re.finditer(_REFUSED, text):
        if found[0] == "\r" and "\n" not in text:
            continue  # a classic Mac OS file, whose lines all end in a carriage return
        other = f"holds the character U+{ord(found[0]):04X}, which YAML does not allow; delete it"
        message = _WHY_REFUSED.get(found[0], other)
        raise refused(file, _end_of(text[: found.start()]), message, "yaml-character", lines_of(text))
    return text


def _is_printable(text: str) -> bool:
    return text.replace("\n", "").replace("\t", "").isprintable()


def _decoded(source: bytes, file: str) -> str:
    begin = source[:400]
    name = next((name for mark, name in _MARKS.items() if source.startswith(mark)), "")
    if not name and 0.2 < begin.count(0) / max(1, len(begin)) < 0.8:
        name = "UTF-16 or UTF-32"
    if name:
        message = f"is {name}, but a spec is UTF-8; save the file as UTF-8"
        raise refused(file, (1, 1), message, "yaml-encoding", lines_of(source))
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        message = f"has the byte 0x{source[error.start]:02X}, which is not UTF-8; save the file as UTF-8"
        raise refused(file, _end_of(source[: error.start]), message, "yaml-encoding", lines_of(source)) from None


def _end_of(before: str | bytes) -> tuple[int, int]:
    """Return the line and column that follow the text `before`."""
    lines = lines_of(before)
    return len(lines), len(lines[-1]) + 1
