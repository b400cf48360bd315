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

WRONG_TYPE = "wrong-type"
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18}(_[0-9]{1,18}){0,6})")  # limited, since Python refuses very long ones
_JSON_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?"
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_OLD_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_OLD_BOOLEANS |= {"1": "true", "0": "false"}
_DURATION = r"(?=[0-9])(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?"
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}  # seconds
_DOLLARS = r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,20})?"
_SIZE = r"([0-9]{1,9}) ?(GB|TB)"
_MAX_DIGITS = 19  # of a 64-bit integer; Python itself refuses to read more than 4,300


class Plain(str):
    """An unquoted scalar of a YAML file, exactly as written."""

    __slots__ = ()


def as_text(value: object) -> str:
    """Return the string to send for a value: a scalar exactly as written, lists and mappings as JSON.

    Raises:
        PydanticCustomError: `wrong-type` for null, which has no text.
    """
    if isinstance(value, str):
        return str(value)
    if value is None:
        raise PydanticCustomError(
            WRONG_TYPE, "has no value; write it after the colon, or '' for an empty text, or 'null' in quotes"
        )
    return as_json(value)


def as_json(value: object) -> str:
    """Return a parsed value as JSON, in which unquoted numbers keep their written form."""
    if isinstance(value, Plain):
        if value in BOOLEANS:
            return str(value).lower()
        return str(value) if re.fullmatch(_JSON_NUMBER, value) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(str(k), ensure_ascii=False)}: {as_json(v)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _text(value: object) -> object:
    if isinstance(value, dict | list):
        kind = "a mapping" if isinstance(value, dict) else "a list"
        raise PydanticCustomError(WRONG_TYPE, "is {kind}, but a single text belongs here", {"kind": kind})
    return None if value is None else as_text(value)


def _integer(value: object, example: str = "2") -> object:
    if isinstance(value, Plain) and INTEGER.fullmatch(value) and len(value) <= _MAX_DIGITS:
        return int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, Plain) and re.fullmatch(r"[-+]?[1-9][0-9_]*", value) and len(value) > _MAX_DIGITS:
        raise PydanticCustomError(WRONG_TYPE, f"has {len(value):,} digits, but numbers go up to {2**63 - 1:,}")
    raise PydanticCustomError(WRONG_TYPE, "{what}, but a whole number belongs here{advice}", _described(value, example))


def _seconds(value: object) -> object:
    """Return seconds for a whole number, or for a duration such as 90m, 12h, 1h30m or 2d."""
    if isinstance(value, str) and (found := re.fullmatch(_DURATION, value)):
        return sum(int(count or 0) * unit for count, unit in zip(found.groups(), _UNITS.values(), strict=True))
    if isinstance(value, str) and not INTEGER.fullmatch(value) and (meant := _duration_meant(value)):
        what = _described(value, "")["what"]
        raise PydanticCustomError(
            WRONG_TYPE, "{what}, but seconds or a duration belong here; write {meant}", {"what": what, "meant": meant}
        )
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
        seconds = float(number[1]) * _UNITS[number[2]]
    left, parts = round(seconds), []
    for unit, size in _UNITS.items():
        if unit != "d" and left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts) or None


def _gigabytes(value: object) -> object:
    """Return GB for a whole number, or for a size such as 100GB or 2TB."""
    if isinstance(value, str) and (found := re.fullmatch(_SIZE, value)):
        return int(found[1]) * (1000 if found[2] == "TB" else 1)
    return _integer(value, "50, 100GB or 2TB")


def _dollars(value: object) -> object:
    if isinstance(value, Plain) and re.fullmatch(_DOLLARS, value):
        return Decimal(value)
    if value is None or isinstance(value, Decimal):
        return value
    context = {"what": _described(value, "")["what"]}
    raise PydanticCustomError(
        WRONG_TYPE, "{what}, but a number of US dollars belongs here, such as 100 or 99.50", context
    )


def _boolean(value: object) -> object:
    if isinstance(value, Plain) and value in BOOLEANS:
        return BOOLEANS[value]
    if value is None or isinstance(value, bool):
        return value
    context = _described(value, "")
    if isinstance(value, str) and value.lower() in _OLD_BOOLEANS:
        context["advice"] = f"; write {_OLD_BOOLEANS[value.lower()]}"
    raise PydanticCustomError(WRONG_TYPE, "{what}, but true or false belongs here{advice}", context)


def _described(value: object, example: str) -> dict[str, Any]:
    """Return the words for a value of a wrong type: its description, and advice on what to write."""
    if isinstance(value, Plain):
        shown = str(value) if len(value) <= 40 else f"{value[:37]}..."
        number = _whole_number(value) if example else None
        advice = f"; write {number}" if number is not None else f", such as {example}" if example else ""
        return {"what": f"is {shown!r}", "advice": advice}
    if isinstance(value, str):
        return {"what": f"is the text {value!r} in quotes", "advice": "; write it without quotes"}
    kind = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    return {"what": f"is {kind}", "advice": f", such as {example}" if example else ""}


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


def _setting(value: object) -> object:
    return as_text(value)


class _Leaf:
    """The annotation of a leaf's type; pydantic's own take twice as long to become a validator."""

    def __init__(self, read: Callable[[object], object], schema: CoreSchema, **described: object) -> None:
        """Create a leaf from a function that converts the written value, its result's type, and the JSON Schema."""
        self._read, self._schema, self._described = read, schema, described

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._read, self._schema)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self._described


# The types of a spec's fields. Each value may be null, which suppresses a default.
Text = Annotated[str, _Leaf(_text, core_schema.str_schema(), type=["string", "number", "boolean"])]
Integer = Annotated[int, _Leaf(_integer, core_schema.int_schema(), type="integer")]
Boolean = Annotated[bool, _Leaf(_boolean, core_schema.bool_schema(), type="boolean")]
Seconds = Annotated[
    int, _Leaf(_seconds, core_schema.int_schema(), type=["integer", "string"], pattern=f"^{_DURATION}$")
]
Gigabytes = Annotated[
    int, _Leaf(_gigabytes, core_schema.int_schema(), type=["integer", "string"], pattern=f"^{_SIZE}$")
]
Dollars = Annotated[Decimal, _Leaf(_dollars, core_schema.decimal_schema(), type="number", minimum=0)]
# A hyperparameter or an environment variable: any value except null, sent as text.
Setting = Annotated[
    str, _Leaf(_setting, core_schema.str_schema(), type=["string", "number", "boolean", "array", "object"])
]
