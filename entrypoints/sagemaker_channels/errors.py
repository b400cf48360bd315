"""Exceptions with a message of one line, and checks of arguments that raise clear ones.

The container has its own, because it never imports the launcher. Each exception takes one string, so that it can be pickled
from a DataLoader worker to the main process.
"""

from __future__ import annotations

import operator
from typing import Any


class ConfigError(ValueError):
    """A file or variable of SageMaker or the launcher is damaged."""


class ChannelError(Exception):
    """A channel cannot be read as requested. The message names the channel, the reason and the remedy."""


class MissingError(ChannelError):
    """An object does not exist, or its bucket."""


class CorruptError(ChannelError):
    """The data is damaged or ends too early. The message names the offset in bytes.

    A transform may raise it, too, for a sample that it finds damaged.
    """

    key: str | None = None  # of the object
    offset: int | None = None
    is_final: bool = False  # whether nothing after it in the object can be read


def no_room(what: str, folder: object, reason: object) -> ChannelError:
    """Return the error for a temporary folder without room for something."""
    return ChannelError(f"no room for {what} in {folder} ({reason}); make room there, or set TMPDIR to another folder")


def corrupt(key: str | None, offset: int, reason: object) -> CorruptError:
    """Return the CorruptError for a byte of an object, whose key may be unknown."""
    place = f"object {key!r}, " if key is not None else ""
    error = CorruptError(f"{place}byte {offset}: {reason}")
    error.key, error.offset = key, offset
    return error


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return an argument as Python's int, which JSON can hold; numpy's integers too.

    Raises:
        ValueError: It is not a whole number, or less than `least`.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise ValueError(f"{name} is {value!r}; give a whole number{'' if least is None else f' from {least} on'}")
    return number


def is_count(value: Any) -> bool:
    """Return whether the value is an int from 0 on, as JSON holds it."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def expect(good: bool, name: str, value: Any, remedy: str) -> None:
    """Raise a TypeError with an argument's value and what to give instead, unless `good`."""
    if not good:
        raise TypeError(f"{name} is {value!r:.100}; give {remedy}")
