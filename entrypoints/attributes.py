"""Which attributes an augmented manifest's channel sends.

SageMaker's files do not tell, and without the names a record of the stream is any attribute of any line. So the launcher tells
them in variables of its own: one JSON object, in pieces that fit into a request's Environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from entrypoints.contract import ATTRIBUTE_NAMES_VARIABLE
from entrypoints.errors import ConfigError


def attribute_names(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Each channel's attributes, in the order in which they are sent.

    Raises ConfigError where the variables are damaged, or one is missing.
    """
    pieces: list[str] = []
    while (piece := environ.get(f"{ATTRIBUTE_NAMES_VARIABLE}{len(pieces)}")) is not None:
        pieces.append(piece)
    if not pieces:
        return {}
    try:
        return {channel: _names(names) for channel, names in json.loads("".join(pieces)).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{ATTRIBUTE_NAMES_VARIABLE}0 and on do not tell channels' attributes: {error}") from error


def _names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{names!r} is no list of names")
    return tuple(names)
