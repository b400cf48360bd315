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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sagemaker_channels import contract
from sagemaker_channels.errors import ConfigError

T = TypeVar("T")


def attribute_names(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the attributes of each augmented manifest's channel, in the order in which they are sent. Raises ConfigError."""
    return _read(environ, contract.ATTRIBUTE_NAMES_VARIABLE, _names_by_channel)


def shuffled_channels(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Pipes whose order is another in each job. Raises ConfigError."""
    return _read(environ, contract.SHUFFLED_CHANNELS_VARIABLE, lambda value: _names(list(value)))


def bucket_owners(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the accounts that buckets must belong to. Raises ConfigError."""
    return _read(
        environ, contract.BUCKET_OWNERS_VARIABLE, lambda value: {name: str(owner) for name, owner in value.items()}
    )


def host_shards(
    environ: Mapping[str, str], groups: Mapping[str, Sequence[str]], current_host: str
) -> dict[str, tuple[int, int]]:
    """Return this host's index among the hosts that receive a channel, and the number of these hosts.

    Only channels that the group of `current_host` receives, but not all `groups` do, have an entry; `groups` has the hosts of
    each. Raises ConfigError.
    """
    named = _read(environ, contract.CHANNEL_GROUPS_VARIABLE, _names_by_channel)
    hosts = {
        channel: [host for name in groups if name in names for host in groups[name]] for channel, names in named.items()
    }
    return {name: (of.index(current_host), len(of)) for name, of in hosts.items() if current_host in of}


def _read(environ: Mapping[str, str], prefix: str, parse: Callable[[Any], T]) -> T:
    """Return what the JSON of the variables `<prefix>`, or `<prefix>0`, `<prefix>1` and so on together, means.

    Raises ConfigError.
    """
    pieces = [environ[prefix]] if environ.get(prefix) else []
    while (piece := environ.get(f"{prefix}{len(pieces)}")) is not None:
        pieces.append(piece)
    try:
        return parse(json.loads("".join(pieces) or "{}"))
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"the variables {prefix}* are not as `launch` writes them: {error}") from error


def _names_by_channel(value: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    return {name: _names(names) for name, names in value.items()}


def _names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{names!r} is not a list of names")
    return tuple(names)
