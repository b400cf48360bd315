"""Exceptions with a message of one line, and checks of arguments that raise clear ones.

The container has its own, because it never imports the launcher.
"""

from __future__ import annotations

import operator
import re
from typing import Any, TypeVar

E = TypeVar("E", bound="ChannelError")
RESTART = "restart the epoch"  # the remedy if the data or the reading has changed since a state was taken
# The remedy if objects are not in the format.
CHECK_FORMAT = (
    "check the channel's content_type (or format=), and that the objects are uncompressed or compressed by gzip"
)


class ConfigError(ValueError):
    """A file or variable of SageMaker or the launcher is damaged."""


class ChannelError(Exception):
    """A channel cannot be read as requested. The message is `channel 'train': object 'a.tar', byte 12: reason; remedy`.

    It pickles. A plain DataLoader, which raises an error of its workers again from its text, keeps only the message.

    Args:
        reason: What is wrong.
        channel: The channel's name.
        object: The key of the object.
        position: The byte in it, or in the stream of a Pipe.
        remedy: What to do.

    Attributes:
        channel, object, position, remedy: The arguments; None for what is unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        channel: str | None = None,
        object: str | None = None,
        position: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.channel, self.object, self.position, self.remedy = channel, object, position, remedy
        place = [f"object {object!r}"] * (object is not None) + [f"byte {position}"] * (position is not None)
        where = [f"channel {channel!r}"] * (channel is not None) + [", ".join(place)] * bool(place)
        super().__init__(": ".join([*where, reason]) + (f"; {remedy}" if remedy else ""))

    @property
    def problem(self) -> str:
        """The message without the remedy."""
        return str(self).removesuffix(f"; {self.remedy}")


class MissingError(ChannelError):
    """An object does not exist, or its bucket."""


class CorruptError(ChannelError):
    """The data is damaged or ends too early. A transform may raise it, too, for a sample that it finds damaged."""


def in_channel(error: E, channel: str) -> E:
    """Return an error with the name of its channel, which formats and streams do not know."""
    if error.channel is not None:
        return error
    who, text = f"channel {channel!r}", str(error)
    named = type(error)(text if who in text else f"{who}: {text}")  # some readers' messages name it already
    vars(named).update(vars(error), channel=channel)
    return named


def no_room(what: str, folder: object, reason: object) -> ChannelError:
    """Return the error for a temporary folder without room for something."""
    remedy = "make room there, or set TMPDIR to another folder"
    return ChannelError(f"no room for {what} in {folder} ({reason})", remedy=remedy)


def corrupt(key: str | None, offset: int, reason: object) -> CorruptError:
    """Return the CorruptError for a byte of an object, whose key may be unknown."""
    return CorruptError(str(reason), object=key, position=offset)


def foreign(what: str, key: str | None, offset: int, reason: object) -> CorruptError:
    """Return the CorruptError for bytes that are damaged, or never were `what`, as all of an object's may be."""
    remedy = None if offset else CHECK_FORMAT
    return CorruptError(f"not {what}, or damaged: {reason}", object=key, position=offset, remedy=remedy)


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


def check_path(name: str, path: str) -> None:
    """Raise ChannelError for a mistyped or foreign URI, which would be taken for a path of this machine."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise ChannelError(
            f"{name} is {path!r}, which is no S3 URI", remedy="write s3://bucket/prefix, or a folder's path"
        )


def expect(good: bool, name: str, value: Any, remedy: str) -> None:
    """Raise a TypeError with an argument's value and what to give instead, unless `good`."""
    if not good:
        raise TypeError(f"{name} is {value!r:.100}; give {remedy}")
