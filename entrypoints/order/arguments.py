"""What a caller gave, looked at before anything is begun with it: one clear line, and not an error from somewhere within."""

from __future__ import annotations

import operator
from typing import Any


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """What was given as `name` as Python's own int, which JSON can hold, numpy's integers too; else ValueError."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise ValueError(f"{name} is {value!r}; give a whole number{'' if least is None else f' from {least} on'}")
    return number


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0 on, as a state's JSON holds it."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def expect(good: bool, name: str, value: Any, remedy: str) -> None:
    """TypeError, which says what was given as `name` and what to give, where that is not `good`."""
    if not good:
        raise TypeError(f"{name} is {value!r:.100}; give {remedy}")
