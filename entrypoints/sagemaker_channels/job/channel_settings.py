"""Channel settings that are missing from SageMaker's config files.

The launcher passes them in environment variables: JSON, in pieces that fit into a request's Environment.

- The attributes that an augmented manifest's channel sends: without their names any record could be any attribute of any line.
- The instance groups that receive a channel, if they are not all: without them samples would be assigned to hosts without the
  channel.
- The accounts that buckets must belong to, which S3 checks.
- The Pipes whose order is another in each job, so that a resumed job cannot find the middle of an epoch again: those that SageMaker
  shuffles, since it counts epochs from 0 in every container, and those from a directory bucket, which lists in no defined order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sagemaker_channels.contract import (
    ATTRIBUTE_NAMES_VARIABLE,
    BUCKET_OWNERS_VARIABLE,
    CHANNEL_GROUPS_VARIABLE,
    SHUFFLED_CHANNELS_VARIABLE,
)
from sagemaker_channels.errors import ConfigError


def attribute_names(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the attributes of each augmented manifest's channel, in the order in which they are sent.

    Raises:
        ConfigError: The variables are damaged, or one is missing.
    """
    try:
        return {channel: _names(names) for channel, names in _joined(environ, ATTRIBUTE_NAMES_VARIABLE, {}).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{ATTRIBUTE_NAMES_VARIABLE}0 and following do not name channels' attributes: {error}"
        ) from error


def shuffled_channels(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Pipes whose order is another in each job. Raises ConfigError if the variables are damaged, or one is missing."""
    try:
        return _names(_joined(environ, SHUFFLED_CHANNELS_VARIABLE, []))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{SHUFFLED_CHANNELS_VARIABLE}0 and following do not name channels: {error}") from error


def bucket_owners(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the accounts that buckets must belong to. Raises ConfigError if the variables are damaged, or one is missing."""
    try:
        return {str(bucket): str(owner) for bucket, owner in _joined(environ, BUCKET_OWNERS_VARIABLE, {}).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{BUCKET_OWNERS_VARIABLE}0 and following do not name buckets' accounts: {error}") from error


def host_shards(
    environ: Mapping[str, str], groups: Mapping[str, Sequence[str]], current_host: str
) -> dict[str, tuple[int, int]]:
    """Return this host's index among the hosts that receive a channel, and the number of these hosts.

    Only channels that the group of `current_host` receives, but not all `groups` do, have an entry; `groups` has the hosts of
    each. Raises ConfigError if the variable is damaged.
    """
    try:
        settings = json.loads(environ.get(CHANNEL_GROUPS_VARIABLE) or "{}")
        named = {channel: _names(names) for channel, names in settings.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{CHANNEL_GROUPS_VARIABLE} does not name channels' instance groups: {error}") from error
    hosts = {
        channel: [host for name in groups if name in names for host in groups[name]] for channel, names in named.items()
    }
    return {name: (of.index(current_host), len(of)) for name, of in hosts.items() if current_host in of}


def _joined(environ: Mapping[str, str], prefix: str, default: Any) -> Any:
    """Return the JSON of the variables `<prefix>0`, `<prefix>1` and so on together; `default` if there are none."""
    pieces: list[str] = []
    while (piece := environ.get(f"{prefix}{len(pieces)}")) is not None:
        pieces.append(piece)
    return json.loads("".join(pieces)) if pieces else default


def _names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{names!r} is not a list of names")
    return tuple(names)
