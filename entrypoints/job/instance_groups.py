"""Which hosts share a channel that only some instance groups get.

SageMaker's files do not say to which groups a channel goes, and without that a host would leave samples to hosts that never
see them. So the launcher tells it in a variable of its own, for jobs in which the groups differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from entrypoints import contract


def sharers(
    environ: Mapping[str, str], groups: Mapping[str, Sequence[str]], current_host: str
) -> dict[str, tuple[int, int]]:
    """Of each channel that this host's group gets and not all do: this host's number among those that get it, and theirs.

    `groups` are the hosts of each instance group. Raises ValueError where the variable holds no JSON.
    """
    told: dict[str, list[str]] = json.loads(environ.get(contract.CHANNEL_GROUPS_VARIABLE) or "{}")
    result = {}
    for channel, names in told.items():
        hosts = [host for name, members in groups.items() if name in names for host in members]
        if current_host in hosts:
            result[channel] = (hosts.index(current_host), len(hosts))
    return result
