"""Which sample an exception is about, said by the exception itself.

A transform that fails says what it could not do, not with which of a million samples. Whoever calls it adds a note, once it
has failed: so this costs nothing while all goes well. A note is part of the traceback's text, which is also what a
DataLoader hands on from its workers.
"""

from __future__ import annotations

import sys
from typing import Any

from entrypoints.order.sampling import Samples
from entrypoints.sample import KEY


def add_sample_note(error: Exception, sample: dict[str, Any], samples: Samples) -> None:
    """Notes that the transform of this sample failed, which `samples` gave last: its channel, its key, and its place.

    Lines and records have their object's key, and what comes through a Pipe mostly none; so where the reader stands is told, too,
    by the numbers of its state.
    """
    state = samples.state_dict()
    place = ("block", "given") if "seed" in state["of"] else ("object", "position")
    stands = ", ".join(f"{name} {state[name]}" for name in place)
    add_key_note(error, sample.get(KEY), state["of"]["channel"], f"; after it the reader stands at {stands}")


def add_key_note(error: Exception, key: str | None, channel: str, more: str = "") -> None:
    """Notes that the transform of a sample of this key failed."""
    note = f"in the transform of a sample of channel {channel!r}{'' if key is None else f' with the key {key!r}'}{more}"
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:  # Python 3.10 has no notes: the traceback begins with what the first exception was caused by
        first: BaseException = error
        while (earlier := first.__cause__ or (None if first.__suppress_context__ else first.__context__)) is not None:
            first = earlier
        first.__cause__ = RuntimeError(note)
