"""What can go wrong between SageMaker's word, a channel and its samples, as exceptions with one clear line each.

The container side has its own: it never imports the launcher. All take a single string, so that a DataLoader worker can
hand them to the main process unchanged.
"""

from __future__ import annotations


class ConfigError(ValueError):
    """A file or variable by which SageMaker or the launcher speaks to the container cannot be understood."""


class ChannelError(Exception):
    """A channel cannot be read as asked. The message says which, why, and what to do, in one line."""


class CorruptError(ChannelError):
    """The data is damaged or ends too early. The message names the offset in bytes."""


def no_room(what: str, folder: object, reason: object) -> ChannelError:
    """Return the error of a temporary folder in which there is no room for something."""
    return ChannelError(f"no room for {what} in {folder} ({reason}); make room there, or set TMPDIR to another folder")


def corrupt(key: str | None, offset: int, reason: object) -> CorruptError:
    """The CorruptError of an object, by its key where that is known, at one of its bytes."""
    place = f"object {key!r}, " if key is not None else ""
    return CorruptError(f"{place}byte {offset}: {reason}")
