"""Which hosts share a channel that only some instance groups get.

SageMaker's files do not say to which groups a channel goes, and without that a host would leave samples to hosts that never
see them. So the launcher tells it in a variable of its own, for jobs in which the groups differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from entrypoints import contract

if TYPE_CHECKING:
    from entrypoints.environment import Channel, InstanceGroup


def with_sharers(
    channels: Mapping[str, Channel], environ: Mapping[str, str], groups: tuple[InstanceGroup, ...], current_host: str
) -> dict[str, Channel]:
    """The channels, each with this host's number among those that get it, where not all hosts do. Raises ValueError."""
    told: dict[str, list[str]] = json.loads(environ.get(contract.CHANNEL_GROUPS_VARIABLE) or "{}")
    result = dict(channels)
    for name, group_names in told.items():
        hosts = [host for group in groups if group.name in group_names for host in group.hosts]
        if name in channels and current_host in hosts:
            result[name] = replace(channels[name], sharer=(hosts.index(current_host), len(hosts)))
    return result
