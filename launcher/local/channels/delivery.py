"""Delivering one channel of the request to one host of the run, by the module of its storage kind and mode."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from launcher.errors import RefusedError
from launcher.local.channels.selection import epoch_order
from launcher.local.channels.stores import Store
from launcher.local.leftovers import is_mounted, remove_tree
from launcher.local.workspace import BindMount
from launcher.request.view import is_sharded
from launcher.spec.channels import KINDS, source_of_entry

T = TypeVar("T")


def _log_error(error: Exception) -> None:
    logging.getLogger(__name__).error("a channel failed while the job was reading it: %s", error, exc_info=error)


@dataclass(frozen=True)
class Delivery:
    """One channel for one host. Providers call the callbacks from several threads: they must be quick and thread-safe."""

    channel: Mapping[str, Any]  # the InputDataConfig entry, with the job's `InputMode` if it states none
    host: str
    hosts: tuple[str, ...]  # those that share the channel: all hosts of the job, or of its instance groups
    data_dir: Path  # the host's input/data
    scratch: Path  # a directory of the run for caches and logs, not visible to the job
    store: Store
    file_systems: Mapping[str, Path]  # FileSystemId -> the directory that stands for its root
    namespaces: bool = False  # whether the runner mounts what the provider yields; otherwise it makes links and copies
    overlays: bool = False  # whether it can mount an overlay
    other_users: bool = False  # whether the job can run as another user of this machine
    sample: int | None = None  # take only N of the objects, evenly spaced
    # How the channel arrives here, and whether that is as in SageMaker.
    on_delivered: Callable[[str, bool], None] = lambda how, same: None
    on_bytes: Callable[[int], None] = lambda count: None  # progress: bytes delivered since the last call
    on_warning: Callable[[str], None] = lambda text: None  # a difference from SageMaker, and how to avoid it
    on_error: Callable[[Exception], None] = _log_error  # the channel failed after the start, so the job must fail

    @property
    def name(self) -> str:
        return str(self.channel["ChannelName"])

    @property
    def directory(self) -> Path:
        """The directory that `SM_CHANNEL_<NAME>` names; under Pipe it does not exist."""
        return self.data_dir / self.name

    def select(self, items: Sequence[T], epoch: int = 0) -> list[T]:
        """Return the items that this host gets in an epoch, in order.

        The shuffle comes before the split, so that under ShardedByS3Key a host gets other objects in the next epoch, as the
        description of CreateTrainingJob's ShuffleConfig says. A shard takes every n-th item, since neighbours in a listing tend
        to have one kind and size.
        """
        ordered = list(items)
        if shuffle := self.channel.get("ShuffleConfig"):
            ordered = epoch_order(ordered, shuffle["Seed"], epoch)
        return ordered[self.hosts.index(self.host) :: len(self.hosts)] if is_sharded(self.channel) else ordered


@contextmanager
def provide(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
    """Deliver all channels by the providers of their storage kinds and modes; yields the mounts left to the runner.

    Raises RefusedError if there is no provider for a channel, or a provider refuses.
    """
    with ExitStack() as stack:
        binds = []
        for delivery in deliveries:
            provider = importlib.import_module(f"{__package__}.{provider_of(delivery.channel)}")
            binds.append(stack.enter_context(provider.provide(delivery)))
        yield [bind for bind in binds if bind is not None]


def provider_of(channel: Mapping[str, Any]) -> str:
    """Return the name of the module that delivers an InputDataConfig entry, whose `InputMode` is filled in. Raises RefusedError."""
    source, mode = source_of_entry(channel), channel["InputMode"]
    kind, what = KINDS.get(str(source)), f"the DataSource {dict(channel['DataSource'])}"
    if kind is not None and mode in kind.PROVIDERS:
        return kind.PROVIDERS[mode]
    if kind is not None:
        what = f"input_mode {mode} of source {source}"
    reason = f" ({kind.WITHOUT['PROVIDERS']})" if kind and "PROVIDERS" in kind.WITHOUT else ""
    known = ", ".join(f"{name} by {', '.join(each.PROVIDERS)}" for name, each in KINDS.items() if each.PROVIDERS)
    name = channel["ChannelName"]
    raise RefusedError(f"channel {name!r}: local runs do not support {what}{reason}; supported: {known}")


@contextmanager
def empty_directory(delivery: Delivery) -> Iterator[Path]:
    """Make `delivery.directory`; on leaving, remove it and what took its place, or warn if it is still a mount.

    Raises RefusedError if it exists already.
    """
    directory = delivery.directory
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        what = f"channel {delivery.name!r}: cannot make {directory} ({error.strerror})"
        raise RefusedError(f"{what}; every run needs its own directory") from error
    try:
        yield directory
    finally:
        if is_mounted(directory.absolute()):
            delivery.on_warning(f"{directory} is still mounted; unmount it by `fusermount3 -uz {directory}`")
        else:
            remove_tree(directory, delivery.on_warning)
