"""The states of readers, from which any number of readers can resume. Pure functions of JSON's values.

A reader's state has its own position (`shards`, by index) among so many (`count`), and what was left when its reading began
(`left`: a Work; empty for a whole epoch). States of all readers merge into one that has all positions (merging.py). A reader whose
shard is one of as many continues at its position, in the same order. Any other gets its shard of the work that is left (work.py).

Under ShardedByS3Key the numbers are of a host's own objects, so such states merge for each host (`hosts`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sagemaker_channels.errors import ChannelError, is_count
from sagemaker_channels.order.work import Position, Work

State: TypeAlias = dict[str, Any]  # only what JSON can hold

VERSION = 3  # of the states
_LEAST = Position(position=-math.inf, end_position=-math.inf)  # type: ignore[arg-type] # gzip positions are negative


@dataclass(frozen=True)
class Layout:
    """A reader's shard, as far as its order depends on it."""

    index: int
    count: int
    assigned: bool  # The broker assigns the samples, and ends blocks.


class Resumption(NamedTuple):
    """Where a reader begins."""

    work: Work
    left: str  # the work as text
    at: Position = Position()
    ended: bool = False
    listing: Sequence[Sequence[int]] = ()  # numbers of objects, and the digests of so many
    exact: bool = True  # whether the reader continues at its own position


FRESH = Resumption(Work(), "")


def resumption(
    state: State,
    about: State,
    layout: Layout,
    seed: Callable[[int, int, int], str],
    order: Callable[[Sequence[int], str], Sequence[int]] | None,
) -> Resumption:
    """Return where a reader begins that resumes at a state.

    Args:
        state: A reader's state, or a merged one.
        about: What this reader reads (epoch, channel and so on), which the state must agree with.
        layout: The reader's shard.
        seed: Returns the seed of a block's order for a shard's index, the number of shards, and the block's number.
        order: For a Pipe, of which an item is one sample: returns numbers in the order of a seed.

    Raises:
        ChannelError: The state is damaged, does not match, or lacks the shards of other readers.
    """
    state = _of_host(state, about)
    of = state.get("of")
    there = {"version": state.get("version"), "epoch": state.get("epoch"), **(of if isinstance(of, dict) else {})}
    differ = differences({"version": VERSION, **about}, there)
    if not differ and not _is_whole(state):
        differ = "it has no position"
    if differ:
        raise ChannelError(f"the state does not match this reading: {differ}; restart the epoch")
    count, ended = state["count"], set(state["ended"])
    positions = {int(index): Position(*at) for index, at in state["shards"].items()}
    try:
        work = Work.decoded(state["left"])
    except ValueError as error:
        raise ChannelError(f"the state is damaged: {error}; restart the epoch") from error
    mine = positions.get(layout.index)
    if mine is not None and (count, state["assigned"]) == (layout.count, layout.assigned):
        return Resumption(work, state["left"], mine, layout.index in ended, state["listing"])
    if len(positions) < count:
        raise ChannelError(
            f"the state is only of {listed(positions)} of {count} shards, and this reader has shard {layout.index} of"
            f" {layout.count}; merge the states of all ranks, workers and threads by sagemaker_channels.merge_states, or"
            " restart the epoch"
        )
    if len(ended) == count:
        return Resumption(work, state["left"], ended=True, listing=state["listing"], exact=False)
    if order is None:
        work = work.after(count, positions, ended, lambda index, block: seed(index, count, block))
    else:
        of_samples = order
        work = work.after_samples(
            count,
            positions,
            ended,
            lambda index, block, samples: of_samples(range(samples), seed(index, count, block)),
        )
    return Resumption(work, work.encoded(), listing=state["listing"], exact=False)


def _of_host(state: State, about: State) -> State:
    """Return the part of this host, if the state is of several."""
    hosts = state.get("hosts")
    own = [each for each in hosts if each["of"].get("host") == about.get("host")] if isinstance(hosts, list) else ()
    return own[0] if own else state


def _is_whole(state: State) -> bool:
    shards, ended, count = state.get("shards"), state.get("ended"), state.get("count", 0)
    return (
        is_count(count)
        and isinstance(state.get("assigned"), bool)
        and isinstance(state.get("left"), str)
        and isinstance(state.get("listing"), list)
        and all(isinstance(pair, list) and len(pair) == 2 and all(map(is_count, pair)) for pair in state["listing"])
        and isinstance(ended, list)
        and isinstance(shards, dict)
        and all(isinstance(index, str) and index.isdigit() and int(index) < count for index in shards)
        and {*map(str, ended)} <= set(shards)
        and all(
            isinstance(at, list)
            and len(at) == len(_LEAST)
            and all(isinstance(n, int) and n >= least for n, least in zip(at, _LEAST, strict=True))
            for at in shards.values()
        )
    )


def differences(here: State, there: State) -> str:
    """Return, in words, how a state (`there`) differs from this reading (`here`); empty if it does not."""
    differ = [key for key in dict.fromkeys([*here, *there]) if there.get(key) != here.get(key)]
    old, new = (", ".join(f"{key} {about.get(key)!r}" for key in differ) for about in (there, here))
    return f"it has {old}, but this reader has {new}" if differ else ""


def listed(numbers: Iterable[Any]) -> str:
    """Return the first few of some numbers, in words."""
    names = [*map(str, numbers)]
    return ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])])
