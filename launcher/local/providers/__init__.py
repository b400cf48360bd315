"""How a channel reaches a host of a local run: one module per way, named by the cards of the storage kinds (`PROVIDERS`).

Each module has one context manager, `provide(delivery)`: on entering, the channel is below its host's `input/data`, or is a mount
that it yields for the runner; on leaving, everything it made (files, mount, FIFO, process, thread) is gone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery
from launcher.local.leftovers import is_mounted, remove_tree
from launcher.spec.channels import KINDS, source_of_entry


@contextmanager
def provide(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
    """Deliver all channels by the providers of their storage kinds and modes; yields the mounts left to the runner.

    Raises:
        RefusedError: There is no provider for a channel, or a provider refuses.
    """
    with ExitStack() as stack:
        binds = []
        for delivery in deliveries:
            provider = importlib.import_module(f"{__name__}.{provider_of(delivery.channel)}")
            binds.append(stack.enter_context(provider.provide(delivery)))
        yield [bind for bind in binds if bind is not None]


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


@contextmanager
def empty_directory(delivery: Delivery) -> Iterator[Path]:
    """Make `delivery.directory`, empty; on leaving, remove it and what took its place, or warn if it is still a mount.

    Raises:
        RefusedError: It exists already and is not empty.
    """
    directory = delivery.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise occupied(delivery, error) from error
    if any(directory.iterdir()):
        raise occupied(delivery, OSError(0, "it is not empty"))
    try:
        yield directory
    finally:
        if is_mounted(directory.absolute()):
            delivery.on_warning(f"{directory} is still mounted; unmount it by `fusermount3 -uz {directory}`")
        else:
            remove_tree(directory, delivery.on_warning)


def occupied(delivery: Delivery, error: OSError) -> RefusedError:
    """Return the error for a channel whose directory exists already."""
    what = f"channel {delivery.name!r}: cannot make {delivery.directory} ({error.strerror})"
    return RefusedError(f"{what}; every run needs its own directory")
