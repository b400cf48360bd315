"""A file's bytes -> its text and lines, without what no parser should see.

Characters that look like nothing or end a line for YAML alone change a value behind the writer's back, so they are refused
wherever they stand; what cannot be shown is never printed to a terminal.
"""

from __future__ import annotations

import re

from launcher.errors import Location, Problem, SpecError

MAX_BYTES = 1_000_000
ENDINGS = (".yaml", ".yml", ".json")  # of specs
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029"
_REFUSED = re.compile(f"[{_CONTROL}\ufeff\ufffe\uffff\ud800-\udfff]|\r(?!\n)")
_UNSHOWN = re.compile(f"[{_CONTROL}\ud800-\udfff]")
_LINE_BREAKS = {"\x85": r"\N", "\u2028": r"\L", "\u2029": r"\P"}  # to YAML, and to hardly any editor
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def is_spec(path: object) -> bool:
    """Whether a path is named as specs are, or is `-` for standard input."""
    return str(path) == "-" or str(path).lower().endswith(ENDINGS)


def refused(file: str, place: tuple[int, int], message: str, code: str) -> SpecError:
    """The error of one problem at a line and a column."""
    return SpecError([Problem((), message, code, location=Location(file, *place))])


def lines_of(source: str | bytes) -> list[str]:
    """The lines as they are quoted under messages: what cannot be shown, or is no UTF-8, is U+FFFD."""
    if len(source) > MAX_BYTES:
        return []
    text = source if isinstance(source, str) else source.decode("utf-8", "replace")
    text = _UNSHOWN.sub("\ufffd", text.removeprefix("\ufeff"))
    return (re.sub("\r\n?", "\n", text) if "\r" in text else text).split("\n")


def checked_text(source: str | bytes, file: str) -> str:
    """The text of a file in UTF-8. Raises SpecError where it is something else, too large, or holds what must not be."""
    if len(source) > MAX_BYTES:
        raise refused(file, (1, 1), f"is larger than {MAX_BYTES:,} bytes; a spec is a page", "yaml-too-large")
    text = source if isinstance(source, str) else _decoded(source, file)
    text = text.removeprefix("\ufeff")
    for found in _REFUSED.finditer(text):
        if found[0] == "\r" and "\n" not in text:
            continue  # a file of the old Macintosh, in which every line ends so
        before = lines_of(text[: found.start()])
        raise refused(file, (len(before), len(before[-1]) + 1), _why_refused(found[0]), "yaml-character")
    return text


def _decoded(source: bytes, file: str) -> str:
    begin = source[:400]
    name = next((name for mark, name in _MARKS.items() if source.startswith(mark)), "")
    if not name and 0.2 < begin.count(0) / max(1, len(begin)) < 0.8:
        name = "UTF-16 or UTF-32"
    if name:
        raise refused(file, (1, 1), f"is {name}, but a spec is UTF-8; save the file as UTF-8", "yaml-encoding")
    try:
        return source.decode()
    except UnicodeDecodeError as error:
        before = lines_of(source[: error.start])
        place = (len(before), len(before[-1]) + 1)
        message = f"is not UTF-8, for the byte 0x{source[error.start]:02X}; save the file as UTF-8"
        raise refused(file, place, message, "yaml-encoding") from None


def _why_refused(character: str) -> str:
    code = f"U+{ord(character):04X}"
    if character in _LINE_BREAKS:
        escape = _LINE_BREAKS[character]
        return f"holds the character {code}, which ends a line for YAML alone; delete it, or write {escape} in double quotes"
    if character == "\r":
        return "holds a carriage return without a line feed, which ends a line for YAML; delete it"
    if character == "\ufeff":
        return f"holds a byte order mark, {code}, which cannot be seen; delete it"
    return f"holds the character {code}, which YAML does not allow; delete it"
