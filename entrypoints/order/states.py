"""The states of readers: merged into one, from which any number of readers can resume. Pure functions of JSON's values.

A reader's state has its own position (`shards`, by index) among so many (`count`), and what was left when its reading began
(`left`: a Work; empty for a whole epoch). States of all readers merge into one that has all positions. A reader whose shard is one
of as many continues at its position, in the same order. Any other gets its shard of the work that is left (work.py).

Under ShardedByS3Key the numbers are of a host's own objects, so such states merge for each host (`hosts`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from entrypoints.errors import ChannelError, expect, is_count
from entrypoints.order.work import Position, Work

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
            f"the state is only of {_listed(positions)} of {count} shards, and this reader has shard {layout.index} of"
            f" {layout.count}; merge the states of all ranks, workers and threads by entrypoints.merge_states, or restart the epoch"
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


def merge_states(states: Iterable[State]) -> State:
    """Return one state of the states of all ranks, from which any number of ranks, workers and threads can resume.

    With as many ranks and workers as before, each continues at the very next sample, in the same order. With any other number, what
    is left of the epoch is divided again: each sample is still read once, but their order is another. Load it by `load_state`.

    Args:
        states: What `state_dict()` of each rank's loader returned: of a ThreadLoader, StatefulDataLoader, dataset or
            `open_channel`. Merged states can be merged again.

    Raises:
        ChannelError: They are not the states of all readers of one reading, taken at the same time.
        TypeError: One state instead of a list of them.
    """
    expect(not isinstance(states, dict), "states", states, "a list of the states of all ranks: [loader.state_dict()]")
    states = list(states)
    readers = [reader for state in states for reader in _readers(state)]
    if not readers:
        raise ChannelError("there are no states to merge; give those of all ranks")
    # Ranks that took as many steps have the same thread's turn, unless threads have ended.
    turns = [[state["turn"], len(state["threads"])] if "threads" in state else state.get("thread") for state in states]
    merged = _merged(readers)
    return merged if turns[0] is None or turns.count(turns[0]) < len(turns) else {**merged, "thread": turns[0]}


def epoch_of(state: State) -> int:
    """Return the epoch of any loader's state. Raises ChannelError if it is of another kind."""
    return int(next(_readers(state))["epoch"])


def _readers(state: Any) -> Iterator[State]:
    """Yield the states of single readers in a loader's state."""
    known = state if isinstance(state, dict) else {}
    if known.get("_steps_since_snapshot"):
        raise _unmergeable("a StatefulDataLoader's is older than its last batch; set snapshot_every_n_steps=1")
    workers = known.get("_snapshot", {}).get("_worker_snapshots", {}).values()
    inner = [worker["dataset_state"] for worker in workers] or known.get("hosts") or known.get("threads")
    if inner is None and "dataset_state" in known:
        inner = [known["dataset_state"]]
    if inner is not None:
        for each in inner:
            yield from _readers(each)
    elif is_count(known.get("epoch")):
        yield known
    else:
        raise _unmergeable(f"{', '.join(map(repr, known)) or repr(state):.100} is not a state of ours")


def _merged(readers: Sequence[State]) -> State:
    first = readers[0]
    epochs = sorted({reader["epoch"] for reader in readers})
    if len(epochs) > 1:
        raise _unmergeable(f"they are of the epochs {_listed(epochs)}")
    if any(reader.get("version", VERSION) != VERSION for reader in readers):
        raise _unmergeable(f"they are not all of version {VERSION}, which this release writes")
    begun = [reader for reader in readers if "version" in reader and not reader.get("restart")]
    if len(begun) < len(readers):
        # A Pipe that SageMaker shuffles begins its epoch again, also for readers that had finished it.
        if any(not reader["finished"] for reader in begun):
            raise _unmergeable("some were taken before their reader had begun the epoch")
        return {"epoch": first["epoch"]}
    for reader in readers:
        differ = differences(_what(first), _what(reader))
        if differ:
            raise _unmergeable(differ.replace("this reader", "another"))
    if "sources" in first:
        return _merged_mixtures(readers)
    hosts = {str(reader["of"].get("host")): reader["of"].get("host") for reader in readers}
    merged = [_of_one_host([r for r in readers if r["of"].get("host") == host]) for _, host in sorted(hosts.items())]
    if len(merged) == 1:
        return merged[0]
    finished = all(each["finished"] for each in merged)
    return {"version": VERSION, "epoch": first["epoch"], "finished": finished, "hosts": merged, "merged": True}


def _what(reader: State) -> State:
    """Return what the states of all readers have in common."""
    of = {name: value for name, value in reader["of"].items() if name != "host"}
    return {**of, "mixture": "sources" in reader}


def _merged_mixtures(readers: Sequence[State]) -> State:
    sources = [_merged(sources) for sources in zip(*(reader["sources"] for reader in readers), strict=True)]
    draws = {seed: drawn for reader in readers for seed, drawn in reader["draws"].items()}
    finished = all(reader["finished"] for reader in readers)
    return {**readers[0], "finished": finished, "sources": sources, "draws": draws, "merged": True}


def _of_one_host(readers: Sequence[State]) -> State:
    """Return the merged state of all readers of one host, or of all hosts if these see the same objects."""
    merged = united(readers)
    missing = sorted({*map(str, range(merged["count"]))} - {*merged["shards"]}, key=int)
    if missing:
        raise _unmergeable(f"shard {_listed(missing)} of {merged['count']} is missing; give the states of all ranks")
    return {**merged, "finished": len(merged["ended"]) == merged["count"], "merged": True}


def united(readers: Sequence[State]) -> State:
    """Return the state of some readers of one reading, which may have further ones. Raises ChannelError as merge_states does."""
    first, shards, ended, listing = readers[0], dict[str, Any](), set[int](), dict[int, int]()
    for reader in readers:
        differ = [name for name in ("count", "assigned", "left") if reader[name] != first[name]]
        if differ:
            raise _unmergeable(
                f"they are of different numbers of readers, or were resumed differently ({differ[0]} differs)"
            )
        for index, at in reader["shards"].items():
            if list(shards.setdefault(index, at)) != list(at):
                raise _unmergeable(f"two of shard {index} have different positions")
        ended.update(reader["ended"])
        for count, digest in reader["listing"]:
            if listing.setdefault(count, digest) != digest:
                raise _unmergeable(f"the readers' first {count:,} objects differ: the data or its listing has changed")
    same = first if all(reader.get("turn") == first.get("turn") for reader in readers) else {**first, "turn": None}
    return {
        **same,
        "shards": {index: shards[index] for index in sorted(shards, key=int)},
        "ended": sorted(ended),
        "listing": [list(pair) for pair in sorted(listing.items())],
    }


def _unmergeable(reason: str) -> ChannelError:
    return ChannelError(f"these states cannot be merged: {reason}; or restart the epoch")


def _listed(numbers: Iterable[Any]) -> str:
    names = [*map(str, numbers)]
    return ", ".join([*names[:5], *(["..."] if len(names) > 5 else [])])
