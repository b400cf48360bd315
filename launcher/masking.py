"""Mask what must never be shown: the account's own keys, and settings from the environment or with names like secrets.

AWS repeats what it was sent: whole, cut, folded into one line, or escaped as JSON, HTML or a URL. So texts and values are
compared without white space and escapes, before our own code cuts or folds the text, and parts of long values are masked too.
Every text that may repeat a secret passes through here: problems of a spec, refusals of AWS, the failure reasons of jobs. Lines
that a job printed belong to its user and are shown unchanged.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import unquote

from sagemaker_channels import contract

HIDDEN = "***"
_SECRET_WORDS = (
    *("token", "key", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd"),
    *("credential", "credentials", "auth", "dsn", "cookie", "cookies", "jwt", "bearer"),
)
_WHOLE_WORDS = ("pass", "pat", "pgpass")  # ends of other words: bypass, spat
# Forms of tokens that have a prefix of their own, as in gitleaks.
TOKEN_FORMS = (
    ("Hugging Face token", r"hf_[A-Za-z0-9]{30,}"),
    ("GitHub token", r"gh[posu]_[A-Za-z0-9]{36,}"),
    ("GitHub token", r"github_pat_[A-Za-z0-9_]{22,}"),
    ("GitLab token", r"glpat-[A-Za-z0-9_.-]{20,}"),
    ("Slack token", r"xox[bp]-[A-Za-z0-9-]{20,}"),
)
_TOKEN = re.compile(rf"(?<![A-Za-z0-9_-])(?:{'|'.join(form for _, form in TOKEN_FORMS)})(?![A-Za-z0-9_-])")
_PASSWORDS = ("secret", "password", "passwd", "passphrase", "pwd", "pass")  # words that end the name of a password
_KEYS = ("token", "key", "jwt", "bearer", "pat")  # and those of a key, whose value looks random
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])(?!arn:)[A-Za-z0-9+/=_.~-]{16,}")
_REFERENCE = re.compile(contract.SECRET_REFERENCE)
_URL_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]*:[^/?#\s]+@", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of snake_case, kebab-case and camelCase
_CHARACTER = re.compile(r"\S")
_UNIT = re.compile(
    r"\\u[0-9a-f]{4}|\\[nrt\"'\\/]|&#?\w+;|(?:%[0-9a-f]{2})+|\S", re.IGNORECASE
)  # escaped for JSON, HTML or a URL
_PART = 12  # characters; such parts of a long value are masked too
_LONG = 16  # characters of a long value
_SHORT = 4  # characters; a shorter value is masked only as a whole word, since it occurs in others by chance


def is_secret_name(name: str) -> bool:
    """Return whether a setting with this name probably holds a secret: `api-key`, `HF_TOKEN`, `DB_PASS`; not `max_tokens`."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word.endswith(_SECRET_WORDS) or word in _WHOLE_WORDS for word in words)


def is_secret(name: str, value: str) -> bool:
    """Return whether a setting probably is a secret, by its name, or as a URL with a password: `postgres://me:hush@host/db`."""
    if _REFERENCE.fullmatch(value):
        return False  # it names a secret
    return is_secret_name(name) or _URL_WITH_PASSWORD.search(value) is not None


def holds_secret(name: str, value: str) -> bool:
    """Return whether a setting surely is a secret that should be stored elsewhere: by its value, or by its name and value.

    Masking hides more, since it costs nothing: `image_key: jpg`, `SECRET_ARN`, `DB_PASSWORD: ""`.
    """
    if not value or _REFERENCE.search(value):
        return False
    if _TOKEN.search(value) or _URL_WITH_PASSWORD.search(value):
        return True
    last = [word.lower() for word in _WORD.findall(name)][-1:] or [""]
    is_place = value.startswith(("/", "arn:", "s3://", "./"))
    return not is_place and (
        (last[0].endswith(_PASSWORDS) and last[0] not in ("bypass", "compass"))
        or (last[0].endswith(_KEYS) and _RANDOM.fullmatch(value) is not None)
    )


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
        if not text or not self._known:
            return text
        views = [_view(text, _CHARACTER), _view(text, _UNIT)]
        spans: list[tuple[int, int, str]] = []
        for value, shown in list(self._known.items()):  # other threads add more meanwhile
            if len(value) < _SHORT:
                words = re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text)
                spans += [(*word.span(), shown) for word in words]
                continue
            forms = {_view(value, units)[0] for units in (_CHARACTER, _UNIT)} - {""}
            for squeezed, places in views:
                found = [span for form in forms for span in _spans(squeezed, form)]
                spans += [(places[begin][0], places[end - 1][1], shown) for begin, end in found]
        masks = [""] * len(text)
        for begin, end, shown in sorted(spans, key=lambda span: span[1] - span[0]):  # the longest is last
            masks[begin:end] = [shown] * (end - begin)
        runs = groupby(zip(text, masks, strict=True), key=itemgetter(1))
        return "".join(mask or "".join(letter for letter, _ in run) for mask, run in runs)


def _view(text: str, units: re.Pattern[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without white space and with its units decoded, and the span that each character came from."""
    characters = [(character, unit.span()) for unit in units.finditer(text) for character in _decoded(unit[0])]
    return "".join(character for character, _ in characters), [span for _, span in characters]


def _decoded(unit: str) -> str:
    if len(unit) == 1:
        return unit
    if unit.startswith("\\"):
        return chr(int(unit[2:], 16)) if len(unit) > 2 else unit[1].strip("nrt")  # escaped white space is dropped, too
    return "".join((unquote(unit) if unit.startswith("%") else html.unescape(unit)).split())


def _spans(text: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of a value in the text; of a long value those of its parts."""
    size = len(value) if len(value) < _LONG else _PART
    parts = {value[start : start + size] for start in range(len(value) - size + 1)}
    for start in range(len(text) - size + 1):
        if text[start : start + size] in parts:
            yield start, start + size
