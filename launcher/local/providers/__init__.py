"""The table of providers: how each kind of channel is brought to a host of the local run.

A new way of arriving is one module with a `provide`, and one line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from launcher.errors import RefusedError
from launcher.local.delivery import BindMount, Delivery
from launcher.local.providers import copied, fifo, file_system, mounted


class Provider(Protocol):
    """What the table holds: a module with this function."""

    def provide(self, delivery: Delivery) -> AbstractContextManager[Sequence[BindMount]]:
        """On entering, the channel is there, but for the mounts it yields, which the runner makes; on leaving, gone."""


PROVIDERS: Mapping[str, Provider] = {  # by InputMode for S3, by FileSystemType for file systems
    "File": copied,
    "FastFile": mounted,
    "Pipe": fifo,
    "EFS": file_system,
    "FSxLustre": file_system,
}


def way_of(channel: Mapping[str, Any]) -> str:
    """The key of `PROVIDERS` for a channel of the request whose InputMode is filled in."""
    file_system_source = channel["DataSource"].get("FileSystemDataSource")
    return str(file_system_source["FileSystemType"] if file_system_source else channel["InputMode"])


def provide(delivery: Delivery) -> AbstractContextManager[Sequence[BindMount]]:
    """The delivery by the provider that its channel calls for; RefusedError where there is none."""
    way = way_of(delivery.channel)
    if way not in PROVIDERS:
        raise RefusedError(
            f"channel {delivery.name!r}: nothing here brings {way!r} channels; there are {', '.join(PROVIDERS)}"
        )
    return PROVIDERS[way].provide(delivery)
