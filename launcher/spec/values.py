"""The types of a spec's leaves, which turn written scalars into values.

YAML's own conversions lose the written form: `1e-3` is text to one parser and a number to another, `012` is 10, `12:30` is
750, `no` is false. So the parser keeps every unquoted scalar as written (`Plain`), and the field's type decides: a text is
sent as written, and a number has to be a plain decimal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from launcher.quantities import DURATION, SECONDS, bytes_of, seconds_of

WRONG_TYPE = "wrong-type"
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18}(_[0-9]{1,18}){0,6})")  # limited, since Python refuses very long ones
_JSON_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?"
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_OLD_BOOLEANS |= {"1": "true", "0": "false"}
_DOLLARS = r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,20})?"
_MAX_DIGITS = 19  # of a 64-bit integer; Python itself refuses to read more than 4,300


class Plain(str):
    """An unquoted scalar of a YAML file, exactly as written."""

    __slots__ = ()


def as_text(value: object) -> str:
    """Return the string to send for a value: a scalar as written, others as JSON. Raises PydanticCustomError for null."""
    if isinstance(value, str):
        return str(value)
    if value is None:
        raise _wrong("has no value; write it after the colon, or '' for an empty text, or 'null' in quotes")
    return as_json(value)


def as_json(value: object) -> str:
    """Return a parsed value as JSON, in which unquoted numbers keep their written form."""
    if isinstance(value, Plain):
        if value in BOOLEANS:
            return str(value).lower()
        return str(value) if re.fullmatch(_JSON_NUMBER, value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        pairs = [f"{json.dumps(str(key), ensure_ascii=False)}: {as_json(item)}" for key, item in value.items()]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _wrong(message: str) -> PydanticCustomError:
    # As a value of the template, since a message may contain braces.
    return PydanticCustomError(WRONG_TYPE, "{message}", {"message": message})


def _text(value: object) -> object:
    if isinstance(value, dict | list):
        raise _wrong(f"is {'a mapping' if isinstance(value, dict) else 'a list'}, but a single text belongs here")
    return None if value is None else as_text(value)


def _integer(value: object, example: str = "2", kind: str = "a whole number") -> object:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, Plain) and re.fullmatch(r"[-+]?[1-9][0-9_]*", value) and len(value) > _MAX_DIGITS:
        raise _wrong(f"has {len(value):,} digits, but numbers go up to {2**63 - 1:,}")
    if isinstance(value, Plain) and INTEGER.fullmatch(value):
        return int(value)
    what, advice = _described(value, example)
    raise _wrong(f"{what}, but {kind} belongs here{advice}")


def _seconds(value: object) -> object:
    """Return seconds for a whole number, or for a duration such as 90m, 12h, 1h30m or 2d."""
    if isinstance(value, str) and (seconds := seconds_of(value)) is not None:
        return seconds
    if isinstance(value, str) and not INTEGER.fullmatch(value) and (meant := _duration_meant(value)):
        raise _wrong(f"{_described(value)[0]}, but seconds or a duration belong here; write {meant}")
    return _integer(value, "3600, 90m or 12h")


def _duration_meant(value: str) -> str | None:
    """Return `12h` for `12 hours`, `1h30m` for `1.5h` and `1:30:00`; None for other texts."""
    text = value.strip().lower()
    seconds = 0.0
    if clock := re.fullmatch(r"([0-9]{1,4}):([0-5][0-9]):([0-5][0-9])", text):
        seconds = int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])
    elif number := re.fullmatch(
        r"([0-9]{1,6}(?:\.[0-9]{1,4})?) ?(d|h|m|s)(?:ays?|ours?|rs?|in|ins|inutes?|ec|ecs|econds?)?", text
    ):
        seconds = float(number[1]) * SECONDS[number[2]]
    left, parts = round(seconds), []
    for unit, size in SECONDS.items():
        if unit not in "wd" and left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts) or None


def _gigabytes(value: object) -> object:
    """Return GB for a whole number, or for a size such as 100GB or 2TB."""
    size = bytes_of(value) if isinstance(value, str) and value.lower().endswith("b") else None
    if size is not None and size % 10**9 == 0:
        return size // 10**9
    return _integer(value, "50, 100GB or 2TB", "a whole number of GB")


def _dollars(value: object) -> object:
    if isinstance(value, Plain) and re.fullmatch(_DOLLARS, value):
        return Decimal(value)
    if value is None or isinstance(value, Decimal):
        return value
    raise _wrong(f"{_described(value)[0]}, but a number of US dollars belongs here, such as 100 or 99.50")


def _account_id(value: object) -> object:
    text = _text(value)
    if text is None or re.fullmatch(r"[0-9]{12}", str(text)):
        return text
    raise _wrong(f"{_described(value)[0]}, but the 12 digits of an AWS account belong here")


def _boolean(value: object) -> object:
    if isinstance(value, Plain) and value in BOOLEANS:
        return BOOLEANS[value]
    if value is None or isinstance(value, bool):
        return value
    what, advice = _described(value)
    if isinstance(value, str) and value.lower() in _OLD_BOOLEANS:
        advice = f"; write {_OLD_BOOLEANS[value.lower()]}"
    raise _wrong(f"{what}, but true or false belongs here{advice}")


def _described(value: object, example: str = "") -> tuple[str, str]:
    """Return the description of a value of a wrong type, and advice on what to write."""
    such_as = f", such as {example}" if example else ""
    if isinstance(value, Plain):
        shown = str(value) if len(value) <= 40 else f"{value[:37]}..."
        number = _whole_number(value) if example else None
        return f"is {shown!r}", such_as if number is None else f"; write {number}"
    if isinstance(value, str):
        return f"is the text {value!r} in quotes", "; write it without quotes"
    what = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return f"is {what}", such_as


def _whole_number(value: str) -> int | None:
    """Return the number that a form such as 012, 0x1F, 0o12, 1e3 or 3.0 most probably means."""
    if re.fullmatch(r"[-+]?0[0-9]{1,18}", value):
        return int(value)
    if re.fullmatch(r"0[xob][0-9A-Fa-f]{1,15}", value):
        with suppress(ValueError):
            return int(value, 0)
    if re.fullmatch(r"[-+]?[0-9]{1,15}(\.0+)?([eE][-+]?[0-9]{1,2})?", value):
        return int(float(value)) if abs(float(value)) < 2**53 and float(value).is_integer() else None
    return None


class _Leaf:
    """The annotation of a leaf's type; pydantic's own take twice as long to become a validator."""

    def __init__(self, read: Callable[[object], object], schema: CoreSchema, described: dict[str, Any]) -> None:
        """Create a leaf from a function that converts the written value, its result's type, and the JSON Schema."""
        self._read, self._schema, self._described = read, schema, described

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._read, self._schema)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self._described.copy()


# The types of a spec's fields. Each value may be null, which suppresses a default.
Text = Annotated[str, _Leaf(_text, core_schema.str_schema(), {"type": ["string", "number", "boolean"]})]
Integer = Annotated[int, _Leaf(_integer, core_schema.int_schema(), {"type": "integer"})]
Boolean = Annotated[bool, _Leaf(_boolean, core_schema.bool_schema(), {"type": "boolean"})]
DURATIONS = {"type": ["integer", "string"], "pattern": f"^{DURATION}$"}
Seconds = Annotated[int, _Leaf(_seconds, core_schema.int_schema(), DURATIONS)]
SIZES = {"type": ["integer", "string"], "pattern": r"^[0-9]{1,15}(?:\.[0-9]{1,6})? ?[kKmMgGtT][bB]$"}
Gigabytes = Annotated[int, _Leaf(_gigabytes, core_schema.int_schema(), SIZES)]
Dollars = Annotated[Decimal, _Leaf(_dollars, core_schema.decimal_schema(), {"type": "number", "minimum": 0})]
_TWELVE_DIGITS = {"type": ["string", "integer"], "pattern": "^[0-9]{12}$"}
AccountId = Annotated[str, _Leaf(_account_id, core_schema.str_schema(), _TWELVE_DIGITS)]
# A hyperparameter or an environment variable: any value except null, sent as text.
_ANY = {"type": ["string", "number", "boolean", "array", "object"]}
Setting = Annotated[str, _Leaf(as_text, core_schema.str_schema(), _ANY)]
