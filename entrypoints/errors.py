"""What can go wrong between a channel and its samples, as two exceptions with one clear line each.

The container side has its own: it never imports the launcher. Both take a single string, so that a DataLoader worker can
hand them to the main process unchanged.
"""

from __future__ import annotations


class ChannelError(Exception):
    """A channel cannot be read as asked. The message says which, why, and what to do, in one line."""


class CorruptError(ChannelError):
    """The data is damaged or ends too early. The message names the offset in bytes."""
