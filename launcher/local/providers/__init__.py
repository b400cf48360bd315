"""How a channel reaches the hosts of a local run: one module per way, named by the cards of the storage kinds (`PROVIDERS`).

Each module has one context manager, `provide(*deliveries)`: on entering, the channels are below their hosts' `input/data`; on
leaving, everything it made (files, mount, FIFO, process, thread) is gone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery
from launcher.spec.channels import KINDS, source_of_entry


@contextmanager
def provide(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
    """Deliver all channels by the providers of their storage kinds and modes; yields the mounts left to the runner.

    Raises:
        RefusedError: There is no provider for a channel, or a provider refuses.
    """
    by_module: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        by_module.setdefault(provider_of(delivery.channel), []).append(delivery)
    with ExitStack() as stack:
        binds: list[BindMount] = []
        for name, own in by_module.items():
            provider = importlib.import_module(f"{__name__}.{name}")
            binds += stack.enter_context(provider.provide(*own))
        yield binds


def provider_of(channel: Mapping[str, Any]) -> str:
    """Return the name of the module that delivers an InputDataConfig entry, whose `InputMode` is filled in.

    Raises:
        RefusedError: There is none.
    """
    source, mode = source_of_entry(channel), channel["InputMode"]
    kind, what, reason = KINDS.get(str(source)), f"source {source}", ""
    if kind is None:
        what = f"the DataSource {dict(channel['DataSource'])}"
    elif mode in kind.PROVIDERS:
        return kind.PROVIDERS[mode]
    elif kind.PROVIDERS:
        what = f"input_mode {mode} of source {source}"
    else:
        reason = f" ({kind.WITHOUT.get('PROVIDERS', 'it has no provider')})"
    known = ", ".join(f"{name} by {', '.join(each.PROVIDERS)}" for name, each in KINDS.items() if each.PROVIDERS)
    name = channel["ChannelName"]
    raise RefusedError(f"channel {name!r}: local runs do not support {what}{reason}; supported: {known}")
