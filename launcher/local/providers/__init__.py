"""The table of providers: how each kind of channel is brought to the hosts of the local run.

A new way of arriving is one module with a `provide`, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery
from launcher.local.providers import copied, fifo, file_system, mounted


class Provider(Protocol):
    """What the table holds: it gets every delivery of its way, so that hosts and channels can share what it makes."""

    def __call__(self, *deliveries: Delivery) -> AbstractContextManager[Sequence[BindMount]]:
        """On entering, the channels are there, except for the mounts it yields, which the runner makes; on leaving, gone."""


def one_by_one(provide: Callable[[Delivery], AbstractContextManager[Sequence[BindMount]]]) -> Provider:
    """A provider for which deliveries have nothing in common."""

    @contextmanager
    def provide_all(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
        with ExitStack() as stack:
            yield [bind for delivery in deliveries for bind in stack.enter_context(provide(delivery))]

    return provide_all


PROVIDERS: Mapping[str, Provider] = {  # by InputMode for S3, by FileSystemType for file systems
    "File": copied.provide,
    "FastFile": mounted.provide,
    "Pipe": one_by_one(fifo.provide),
    "EFS": one_by_one(file_system.provide),
    "FSxLustre": one_by_one(file_system.provide),
}


def way_of(channel: Mapping[str, Any]) -> str:
    """The key of `PROVIDERS` for a channel of the request whose InputMode is filled in."""
    file_system_source = channel["DataSource"].get("FileSystemDataSource")
    return str(file_system_source["FileSystemType"] if file_system_source else channel["InputMode"])


@contextmanager
def provide(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
    """The deliveries by the providers that their channels call for. Raises RefusedError if there is none for one."""
    ways: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        way = way_of(delivery.channel)
        if way not in PROVIDERS:
            raise RefusedError(
                f"channel {delivery.name!r}: nothing here brings {way!r} channels; there are {', '.join(PROVIDERS)}"
            )
        ways.setdefault(way, []).append(delivery)
    with ExitStack() as stack:
        yield [bind for way, mine in ways.items() for bind in stack.enter_context(PROVIDERS[way](*mine))]
