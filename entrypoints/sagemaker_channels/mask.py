"""Mask secrets in texts that may repeat them.

AWS, and programs in their errors, repeat a value whole, cut, folded into one line, quoted, or escaped as JSON, HTML or a URL. So
texts and values are compared without white space and escapes, before our own code cuts or folds the text, and parts of long values
are masked too. Standard library only: the launcher imports it too.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import groupby, product
from operator import itemgetter
from urllib.parse import unquote

HIDDEN = "***"
URL_PASSWORD = re.compile(r"(?<=://)[^/?#\s\"<>:]*:[^/?#\s\"<>]+(?=@)")
_CHARACTER = re.compile(r"\S")
# Escaped for JSON, HTML or a URL.
_ESCAPED = re.compile(r"\\u[0-9a-f]{4}|\\[nrt\"'\\/]|&#?\w+;|(?:%[0-9a-f]{2})+", re.IGNORECASE)
_UNIT = re.compile(rf"{_ESCAPED.pattern}|\S", re.IGNORECASE)
_PART = 12  # characters; such parts of a long value are masked too
_LONG = 16  # characters of a long value
_SHORT = 4  # characters; a shorter value is masked only as a whole word, since it occurs in others by chance


class Mask:
    """The secrets to mask, and the text to show in their place."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def add(self, value: str, shown: str = HIDDEN) -> None:
        """Mask this value from now on, and show `shown` in its place."""
        if value.strip() and value != shown:
            self._known.setdefault(value, shown)

    def apply(self, text: str) -> str:
        """Return the text with its secrets masked, and users with passwords in URLs, which may be of no known setting."""
        return URL_PASSWORD.sub(HIDDEN, self._apply(text))

    def _apply(self, text: str) -> str:
        if not text or not self._known:
            return text
        spans: list[tuple[int, int, str]] = []
        views = _views(text)
        places: dict[str, list[tuple[int, int]]] = {}  # by view; of lines without a secret, which most are, none
        for value, shown in list(self._known.items()):  # other threads add more meanwhile
            if len(value) < _SHORT:
                words = re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text)
                spans += [(*word.span(), shown) for word in words]
                continue
            for form, (view, unit) in product(_views(value), views.items()):
                for begin, end in _spans(view, form):
                    at = places[view] = places.get(view) or _places(text, unit)
                    spans.append((at[begin][0], at[end - 1][1], shown))
        if not spans:
            return text
        masks = [""] * len(text)
        for begin, end, shown in sorted(spans, key=lambda span: span[1] - span[0]):  # the longest is last
            masks[begin:end] = [shown] * (end - begin)
        runs = groupby(zip(text, masks, strict=True), key=itemgetter(1))
        return "".join(mask or "".join(letter for letter, _ in run) for mask, run in runs)


def _views(text: str) -> dict[str, re.Pattern[str]]:
    """Return the text without white space, and if that differs, with its escapes decoded, too; each with its units."""
    views = {"".join(text.split()): _CHARACTER}
    if _ESCAPED.search(text):
        views.setdefault("".join(_ESCAPED.sub(lambda unit: _decoded(unit[0]), text).split()), _UNIT)
    return {view: unit for view, unit in views.items() if view}


def _places(text: str, unit: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the span that each character of a view came from."""
    return [found.span() for found in unit.finditer(text) for _ in _decoded(found[0])]


def _decoded(unit: str) -> str:
    if len(unit) == 1:
        return unit
    if unit.startswith("\\"):
        return chr(int(unit[2:], 16)).strip() if len(unit) > 2 else unit[1].strip("nrt")  # white space is dropped, too
    return "".join((unquote(unit) if unit.startswith("%") else html.unescape(unit)).split())


def _spans(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a value in the text; of a long value those of its parts."""
    size = len(value) if len(value) < _LONG else _PART
    parts = {value[start : start + size] for start in range(len(value) - size + 1)}
    for start in range(len(text) - size + 1):
        if text[start : start + size] in parts:
            yield start, start + size
