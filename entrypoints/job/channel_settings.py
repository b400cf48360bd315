"""What SageMaker's files do not tell of channels, and a reader has to know.

The launcher tells it in variables of its own: JSON, in pieces that fit into a request's Environment.

- Which attributes an augmented manifest's channel sends: without the names a record of the stream is any attribute of any line.
- Which Pipes SageMaker shuffles. It counts epochs from 0 in every container, so a job that goes on is brought other orders than
  the one that was interrupted, and the middle of an epoch cannot be found again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from entrypoints.contract import ATTRIBUTE_NAMES_VARIABLE, SHUFFLED_CHANNELS_VARIABLE
from entrypoints.errors import ConfigError


def attribute_names(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Each augmented manifest's channel with its attributes, in the order in which they are sent.

    Raises ConfigError where the variables are damaged, or one is missing.
    """
    try:
        return {channel: _names(names) for channel, names in _told(environ, ATTRIBUTE_NAMES_VARIABLE, {}).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{ATTRIBUTE_NAMES_VARIABLE}0 and on do not tell channels' attributes: {error}") from error


def shuffled_channels(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The Pipes that SageMaker shuffles. Raises ConfigError where the variables are damaged, or one is missing."""
    try:
        return _names(_told(environ, SHUFFLED_CHANNELS_VARIABLE, []))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{SHUFFLED_CHANNELS_VARIABLE}0 and on do not name channels: {error}") from error


def _told(environ: Mapping[str, str], prefix: str, nothing: Any) -> Any:
    """What the variables `<prefix>0`, `<prefix>1` and so on say together; `nothing` where there are none."""
    pieces: list[str] = []
    while (piece := environ.get(f"{prefix}{len(pieces)}")) is not None:
        pieces.append(piece)
    return json.loads("".join(pieces)) if pieces else nothing


def _names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{names!r} is no list of names")
    return tuple(names)
