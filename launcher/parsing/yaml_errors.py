"""The YAML parser's errors in words that name the remedy, at the place of the mistake.

The parser reports where it gave up, often a line below the mistake: it reads a key without the space after its colon as
the beginning of a longer text. So the lines around that place are examined, too.
"""

from __future__ import annotations

import re

import yaml

from launcher.parsing.spec_text import SMART_QUOTES

_Position = tuple[int, int]
_KEY_VALUE = r":([ \t]|$)"
_COMMENT = r"\s#.*"
_ODD_SPACE = "\u00a0\u1680\u2000-\u200b\u202f\u205f\u2060\u3000"
_OPENING = r"(^|[\s:,\[{(])[" + SMART_QUOTES + "]"
_CHECK = "check the indentation, quotes and brackets here"
_BLOCK_TEXT = r"(^|\s)[|>][-+0-9]*\s*$"


def explained(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[_Position, str]:
    """Return the line and column of the mistake, counted from 1, and the message."""
    at = _place(error.problem_mark or error.context_mark, lines)
    begun = _place(error.context_mark, lines) if error.context_mark else at
    context, problem = error.context or "", error.problem or ""
    line = lines[at[0] - 1]
    character = line[at[1] - 1 : at[1]]
    if "quoted scalar" in context:
        if "escape" in problem or "hex" in problem:
            remedy = "write \\\\ for a backslash, or put the text in single quotes"
            remedy = "write the character itself" if "invalid Unicode" in problem else remedy
            return at, f"has a backslash in double quotes that is not an escape of YAML; {remedy}"
        return begun, "begins a quoted text that is not closed; close its quote, and write '' for a ' in single quotes"
    if character == "\t" or ("\t" in _indentation(line) and "flow" not in context):
        column = line.index("\t") if character != "\t" else at[1] - 1
        return (at[0], column + 1), "is indented with a tab; YAML takes spaces only"
    if "mapping values are not allowed" in problem:
        return _second_colon(at, lines)
    if context.endswith("simple key"):
        return begun, _without_colon(begun[0], lines)
    if "flow" in context:
        return _in_brackets(context, at, begun, lines)
    if context.startswith("while parsing a block"):
        return _out_of_line(context, problem, at, lines)
    if "alias" in context or "anchor" in context:
        return begun, f"has a text that begins with {lines[begun[0] - 1][begun[1] - 1]!r}; put the text in quotes"
    if "cannot start any token" in problem:
        return at, f"has a text that begins with {character!r}; put the text in quotes"
    if "block scalar" in context:
        return begun, "has text after | or >, which begin a text of several lines; put the text in quotes"
    if "sequence entries" in problem:
        return at, "begins a list on the line of its key; begin it on the next line, or write [one, two]"
    if "directive" in problem + context or "incompatible" in problem:
        return (at[0], 1), "is a directive, which no spec needs; delete the line"
    if "<document start>" in problem:
        return at, "follows the end of the document, or a line that begins with %; delete lines of '...' and of '%'"
    remedy = "put the text in quotes" if "tag" in problem + context else _CHECK
    return at, f"is not YAML: {' '.join(f'{context} {problem}'.split()) or error}; {remedy}"


def _place(mark: yaml.Mark | None, lines: list[str]) -> _Position:
    """Return the mark's place; for a mark after the end, the end of the last line that is not blank."""
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if line <= len(lines) and any(map(str.strip, lines[line - 1 :])):
        return line, column
    last = next((number for number in range(len(lines), 0, -1) if lines[number - 1].strip()), 1)
    return last, len(lines[last - 1].rstrip()) + 1


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _depth(line: str) -> int:
    """Return the column of a line's first key, after the dashes of list items."""
    found = re.match(r" *(?:- +)*", line)
    return found.end() if found else 0


def _line_above(number: int, lines: list[str]) -> str:
    return next((line for line in reversed(lines[: number - 1]) if line.strip()), "")


def _second_colon(at: _Position, lines: list[str]) -> tuple[_Position, str]:
    line = lines[at[0] - 1]
    if at[1] > 1024 and not re.search(_KEY_VALUE, line[: at[1] - 1]):
        return (at[0], 1), "has a key of more than 1,024 characters, which YAML does not allow; shorten it"
    if re.search(_KEY_VALUE, line[: at[1] - 1]):
        return at, f"has a ': ' within a text; put the whole text in quotes{_smart(line)}"
    if (number := _line_without_colon(at[0], lines)) is not None:
        return (number, _depth(lines[number - 1]) + 1), _without_colon(number, lines)
    if _depth(_line_above(at[0], lines)) < _depth(line):
        return at, "is indented deeper than the line above, which has a value already; align the two"
    return at, "has a ':' that YAML does not allow here; put the text in quotes, and check the indentation"


def _line_without_colon(number: int, lines: list[str]) -> int | None:
    """Return the first of the lines directly above `number`, at its depth, that are not `key: value`."""
    depth, found = _depth(lines[number - 1]), None
    for above in range(number - 1, 0, -1):
        line = lines[above - 1]
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if _depth(line) != depth or re.search(_KEY_VALUE, re.sub(_COMMENT, "", line)):
            break
        found = above
        if line.lstrip().startswith("- "):
            break
    return found


def _without_colon(number: int, lines: list[str]) -> str:
    line = re.sub(_COMMENT, "", lines[number - 1])
    if "：" in line:
        return "has the wide colon '：', U+FF1A, which is not a colon to YAML; write ': '"
    if odd := re.search(f":([{_ODD_SPACE}])", line):
        return f"has U+{ord(odd[1]):04X} after its ':', which only looks like a space; write a plain space"
    if missing := re.match(r"\s*(?:- +)*([\w.-]{1,60}):(?=[^\s:])(.{1,20})", line):
        return f"has no space after its ':'; write `{missing[1]}: {missing[2].strip()}`"
    if equals := re.match(r"\s*(?:- +)*([\w.-]{1,60}) *=", line):
        return f"has '=' instead of ': '; write `{equals[1]}: ` and the value"
    if re.search(_BLOCK_TEXT, _line_above(number, lines)):
        return "is not part of the text above; indent the lines below | or > deeper than their key"
    return f"has no ': ' between key and value; write `key: value`, with a space{_smart(line)}"


def _in_brackets(context: str, at: _Position, begun: _Position, lines: list[str]) -> tuple[_Position, str]:
    opening, closing = ("[", "]") if "sequence" in context else ("{", "}")
    line = lines[at[0] - 1]
    character, before = line[at[1] - 1 : at[1]], line[: at[1] - 1]
    if "node" in context and not character:
        return at, "ends before a value; write it, and close the brackets"
    if "node" in context:
        return at, "has no value between two signs; write it, '' for an empty text, or delete a sign"
    if character in ("]", "}"):
        return at, f"closes {opening!r} of line {begun[0]} with {character!r}; write {closing!r}"
    lower = len(_indentation(line)) <= len(_indentation(lines[begun[0] - 1]))
    if not character or (at[0] > begun[0] and lower):
        return begun, f"opens a {opening!r} that is not closed; write {closing!r} at its end"
    if before.endswith("$") or character == "{":
        return at, "has a brace within a text; put such a text in quotes inside braces and brackets"
    return at, f"needs a ',' or the closing {closing!r} before this; or put the text in quotes{_smart(line)}"


def _out_of_line(context: str, problem: str, at: _Position, lines: list[str]) -> tuple[_Position, str]:
    line = lines[at[0] - 1]
    character, before = line[at[1] - 1 : at[1]], line[: at[1] - 1].rstrip()
    if not before:
        if (number := _line_without_colon(at[0], lines)) is not None and not line[at[1] - 1 :].startswith("- "):
            return (number, _depth(lines[number - 1]) + 1), _without_colon(number, lines)
        if "collection" in context:
            return at, "is among list items; begin it with '- ', or indent it like the key that it belongs to"
        if line.lstrip().startswith("- "):
            return at, "is a list item among `key: value` lines; indent it like the other items"
        return at, "is indented unlike any line above; align it with the keys that it belongs to"
    if character in ("]", "}", ","):
        return at, f"has one {character!r} too many; delete it, or put the text in quotes"
    if before[-1] in "\"'":
        inside = "'' for a ' in single quotes" if before[-1] == "'" else '\\" for a " in double quotes'
        return at, f"has text after a closing quote; write {inside}, and check the quotes above"
    if character == "&" and (first := re.search(r"&\S+\s*$", before)):
        other = first[0].strip()
        return at, f"is a second anchor after {other}; write one, or put a text that begins with & in quotes"
    if before[-1] in "]}":
        return at, f"has text after {before[-1]!r}; put the whole text in quotes"
    return at, f"is not YAML: {problem}; {_CHECK}{_smart(line)}"


def _smart(line: str) -> str:
    found = re.search(_OPENING, line)
    return f" ({found[0][-1]} is not a quote to YAML; write \" or ')" if found else ""
