"""What must never be said: the account's own keys, and settings that came from the environment or are named like secrets.

AWS repeats what it was sent: whole, cut, folded into one line, or escaped as JSON, HTML or a URL. So the text and each value
are compared without white space and escapes, before anything of ours cuts or folds the text, and of a long value its
parts are hidden as well. Every answer of AWS's that people see passes here: refusals in `account`, the reasons that a job
gives in `jobs.lookup`. The lines that a job itself has printed are its user's, and are shown as they are.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

HIDDEN = "***"
_SECRET_WORDS = (
    *("token", "key", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd"),
    *("credential", "credentials", "auth"),
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of snake_case, kebab-case and camelCase
_ONE_UNIT = re.compile(
    r"\s+|\\u[0-9a-fA-F]{4}|\\[nrt\"'\\/]|&(?:#\d+|#x[0-9a-fA-F]+|[a-zA-Z]+);|(?:%[0-9a-fA-F]{2})+|.", re.DOTALL
)
_ESCAPES = {"n": "", "r": "", "t": ""}  # white space, which is left out; of others the character stays
_PART = 12  # characters of a long value that are hidden where they stand alone
_LONG = 16
_SHORT = 4  # characters; a shorter value is hidden only where it is a word, since it stands in others by chance


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name is likely to hold a secret: `api-key`, `HF_TOKEN`, `dbPassword`; not `max_tokens`."""
    return any(word.lower().endswith(_SECRET_WORDS) for word in _WORD.findall(name))


def settings_to_hide(request: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Of a job that ran, nobody knows which settings were secrets: all of Environment, and hyperparameters named like them.

    (member, name) -> the value.
    """
    environment, hyperparameters = request.get("Environment") or {}, request.get("HyperParameters") or {}
    return {("Environment", name): str(value) for name, value in environment.items()} | {
        ("HyperParameters", name): str(value) for name, value in hyperparameters.items() if is_secret_name(name)
    }


class Mask:
    """Knows what is to be hidden, and what stands in its place."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def add(self, value: str, shown: str = HIDDEN) -> None:
        """Hide this value from now on; where it was, `shown` will stand."""
        if value.strip() and value != shown:
            self._known.setdefault(value, shown)

    def apply(self, text: str) -> str:
        """The text without what is hidden."""
        if not text or not self._known:
            return text
        found: list[tuple[int, int, str]] = []
        views = [_view(text, decode=False), _view(text, decode=True)]
        for value, shown in self._known.items():
            if len(value) < _SHORT:
                words = re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text)
                found += [(*word.span(), shown) for word in words]
                continue
            escaped = (value, html.escape(value), json.dumps(value)[1:-1])
            forms = {_squeezed(value, decode=True), *(_squeezed(each, decode=False) for each in escaped)} - {""}
            for squeezed, spans in views:
                for form in forms:
                    found += [(spans[a][0], spans[b - 1][1], shown) for a, b in _places(squeezed, form)]
        return _replaced(text, found)


def _view(text: str, *, decode: bool) -> tuple[str, list[tuple[int, int]]]:
    """The text without white space, and where in it each character that is left has stood."""
    characters: list[str] = []
    spans: list[tuple[int, int]] = []
    for unit in _ONE_UNIT.finditer(text) if decode else re.finditer(r"\S", text):
        for character in _decoded(unit[0]) if decode else unit[0]:
            characters.append(character)
            spans.append(unit.span())
    return "".join(characters), spans


def _squeezed(text: str, *, decode: bool) -> str:
    return _view(text, decode=decode)[0]


def _decoded(unit: str) -> str:
    if len(unit) == 1 and not unit.isspace():
        return unit
    if unit.startswith("\\"):
        meant = chr(int(unit[2:], 16)) if unit[1] == "u" else _ESCAPES.get(unit[1], unit[1])
    elif unit.startswith("%"):
        meant = bytes.fromhex(unit.replace("%", "")).decode("utf-8", "replace")
    else:
        meant = html.unescape(unit)
    return "".join(meant.split())


def _places(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Where the value stands in the text, or, of a long one, so much that it can be nothing else."""
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)
    if len(value) < _LONG:
        return
    parts = {value[start : start + _PART] for start in range(len(value) - _PART + 1)}
    for start in range(len(text) - _PART + 1):
        if text[start : start + _PART] in parts:
            yield start, start + _PART


def _replaced(text: str, found: list[tuple[int, int, str]]) -> str:
    """The text with each run of what was found, overlapping or touching, replaced by what stands for its longest part."""
    pieces, done = [], 0
    found.sort(key=lambda each: (each[0], -each[1]))
    index = 0
    while index < len(found):
        begin, end, shown = found[index]
        longest = end - begin
        index += 1
        while index < len(found) and found[index][0] < end:
            if found[index][1] - found[index][0] > longest:
                longest, shown = found[index][1] - found[index][0], found[index][2]
            end = max(end, found[index][1])
            index += 1
        pieces += [text[done:begin], shown]
        done = end
    return "".join([*pieces, text[done:]])
