"""Notes on exceptions: which sample a transform failed on.

They are part of the traceback's text, which a DataLoader passes on from its workers, and cost nothing until a transform fails.
"""

from __future__ import annotations

import sys

from sagemaker_channels.formats import signatures
from sagemaker_channels.sample import DATA, KEY, Sample


def add_sample_note(error: Exception, sample: Sample, channel: str, place: str) -> None:
    """Add a note with the channel, key and place of a sample.

    The key of a line, row or record is only its object's, and samples of a Pipe mostly have none, so the position is added. So are
    the fields, for a KeyError, and what a whole object holds, if it is a shard of samples.
    """
    more = f"; {place}"
    if isinstance(error, KeyError):
        more += f"; its fields are {', '.join(sample)}"
    data = sample.get(DATA)
    found = signatures.found_in(data[: signatures.SIZE]) if isinstance(data, bytes) else None
    if found and found.has_samples:
        more += f"; its bytes are {found.what}: {found.remedy}"
    add_key_note(error, sample.get(KEY), channel, more)


def add_key_note(error: Exception, key: str | None, channel: str, more: str = "") -> None:
    """Add a note with the channel and key of the sample; `more` is appended."""
    note = f"in the transform of a sample of channel {channel!r}{'' if key is None else f' with the key {key!r}'}{more}"
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:  # Python 3.10 has no notes, so the first exception of the chain gets the note as its cause.
        first: BaseException = error
        while (earlier := first.__cause__ or (None if first.__suppress_context__ else first.__context__)) is not None:
            first = earlier
        first.__cause__ = RuntimeError(note)
