"""Mask what must never be shown: the account's own keys, and settings from the environment or with names like secrets.

AWS repeats what it was sent: whole, cut, folded into one line, or escaped as JSON, HTML or a URL. So texts and values are
compared without white space and escapes, before our own code cuts or folds the text, and parts of long values are masked too.
Every answer of AWS that users see passes through here: refusals in `account`, the failure reasons of jobs in `jobs.lookup`.
Lines that a job printed belong to its user and are shown unchanged.
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
    *("credential", "credentials", "auth", "dsn", "cookie", "cookies", "jwt", "bearer"),
)
_WHOLE_WORDS = ("pass", "pat", "pgpass")  # ends of other words: bypass, spat
_URL_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]*:[^/?#\s]+@", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of snake_case, kebab-case and camelCase
_ONE_UNIT = re.compile(
    r"\s+|\\u[0-9a-fA-F]{4}|\\[nrt\"'\\/]|&(?:#\d+|#x[0-9a-fA-F]+|[a-zA-Z]+);|(?:%[0-9a-fA-F]{2})+|.", re.DOTALL
)
_ESCAPES = {"n": "", "r": "", "t": ""}  # white space is dropped; other escaped characters are kept
_PART = 12  # characters; such parts of a long value are masked too
_LONG = 16  # characters of a long value
_SHORT = 4  # characters; a shorter value is masked only as a whole word, since it occurs in others by chance


def is_secret_name(name: str) -> bool:
    """Return whether a setting with this name probably holds a secret: `api-key`, `HF_TOKEN`, `DB_PASS`; not `max_tokens`."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word.endswith(_SECRET_WORDS) or word in _WHOLE_WORDS for word in words)


def is_secret(name: str, value: str) -> bool:
    """Return whether a setting probably is a secret, by its name, or as a URL with a password: `postgres://me:hush@host/db`."""
    return is_secret_name(name) or _URL_WITH_PASSWORD.search(value) is not None


def settings_to_hide(request: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the settings of a past job that may be secrets, by (member, name).

    It is not known which were, so these are all of Environment, and the hyperparameters that look like secrets.
    """
    environment, hyperparameters = request.get("Environment") or {}, request.get("HyperParameters") or {}
    return {("Environment", name): str(value) for name, value in environment.items()} | {
        ("HyperParameters", name): str(value) for name, value in hyperparameters.items() if is_secret(name, str(value))
    }


class Mask:
    """The secrets to mask, and the text to show in their place."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def add(self, value: str, shown: str = HIDDEN) -> None:
        """Mask this value from now on, and show `shown` in its place."""
        if value.strip() and value != shown:
            self._known.setdefault(value, shown)

    def apply(self, text: str) -> str:
        """Return the text with all secrets masked."""
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
            forms = {_view(value, decode=True)[0], *(_view(each, decode=False)[0] for each in escaped)} - {""}
            for squeezed, spans in views:
                for form in forms:
                    found += [(spans[a][0], spans[b - 1][1], shown) for a, b in _places(squeezed, form)]
        return _replaced(text, found)


def _view(text: str, *, decode: bool) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without white space, and the span in it that each remaining character came from."""
    characters: list[str] = []
    spans: list[tuple[int, int]] = []
    for unit in _ONE_UNIT.finditer(text) if decode else re.finditer(r"\S", text):
        for character in _decoded(unit[0]) if decode else unit[0]:
            characters.append(character)
            spans.append(unit.span())
    return "".join(characters), spans


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
    """Yield the spans of a value in the text; of a long value also those of its parts."""
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
    """Replace each run of overlapping or touching spans by the text for its longest part."""
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
