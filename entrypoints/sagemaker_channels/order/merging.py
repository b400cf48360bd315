"""Merging the states of all readers into one, from which any number of readers can resume. Pure functions of JSON's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sagemaker_channels.errors import ChannelError, expect, is_count
from sagemaker_channels.order.states import VERSION, State, differences, listed
from sagemaker_channels.order.work import Position


def merge_states(states: Iterable[State]) -> State:
    """Return one state of the states of all ranks, from which any number of ranks, workers and threads can resume.

    With as many ranks and workers as before, each continues at the very next sample, in the same order. With any other number, what
    is left of the epoch is divided again: each sample is still read once, but their order is another. Load it by `load_state`.

    Args:
        states: What `state_dict()` of each rank's loader returned: of a ThreadLoader, StatefulDataLoader, dataset or
            `open_channel`. A rank may not have begun the epoch. Merged states can be merged again.

    Raises:
        ChannelError: They are not the states of all readers of one reading, taken at the same time.
        TypeError: One state instead of a list of them.
    """
    expect(not isinstance(states, dict), "states", states, "a list of the states of all ranks: [loader.state_dict()]")
    states = list(states)
    if not states:
        raise ChannelError("there are no states to merge; give those of all ranks")
    merged = _merged([[*_readers(state)] for state in states])
    # Ranks that took as many steps have the same thread's turn, unless threads have ended.
    turns = [[state["turn"], len(state["threads"])] if "threads" in state else state.get("thread") for state in states]
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
        for reader in (reader for each in inner for reader in _readers(each)):
            # A StatefulDataLoader's workers may have ended after the last batch, with which they sent their states.
            yield _ended(reader) if known.get("_iterator_finished") else reader
    elif is_count(known.get("epoch")):
        yield known
    else:
        raise _unmergeable(f"{', '.join(map(repr, known)) or repr(state):.100} is not a state of ours")


def _ended(reader: State) -> State:
    """Return the state of a reader at its end."""
    if "sources" in reader:
        return {**reader, "finished": True, "sources": [*map(_ended, reader["sources"])]}
    return {**reader, "finished": True, "ended": [*map(int, reader.get("shards", ()))]}


def _merged(ranks: Sequence[Sequence[State]]) -> State:
    """Return the merged state of each rank's readers.

    A rank that has not begun has one state for all of them: the epoch, the finished one before it, or what it has loaded.
    """
    readers = [reader for rank in ranks for reader in rank]
    epoch = max(reader["epoch"] for reader in readers)
    earlier = {r["epoch"] for r in readers if r["epoch"] < epoch - (r.get("finished") is True)}
    if earlier:
        raise _unmergeable(f"they are of the epochs {listed(sorted({*earlier, epoch}))}")
    if any(reader.get("version", VERSION) != VERSION for reader in readers):
        raise _unmergeable(f"they are not all of version {VERSION}, which this release writes")
    begun = [[reader for reader in rank if reader["epoch"] == epoch and "version" in reader] for rank in ranks]
    known = [reader for each in begun for reader in each]
    finished = all(reader["finished"] for reader in known)
    loaded = [reader for reader in known if "merged" in reader]
    if finished and 0 < len(loaded) < len(readers):
        return _merged([loaded])  # The others have passed over the epoch.
    finished = finished and len(known) == len(readers)
    # A Pipe whose order is another in each job begins its epoch again, also for readers that had finished it.
    if not known or (not finished and any(reader.get("restart") for reader in known)):
        return {"epoch": epoch}
    for reader in known:
        differ = differences(_what(known[0]), _what(reader))
        if differ:
            raise _unmergeable(differ.replace("this reader", "another"))
    about = {"version": VERSION, "epoch": epoch, "finished": finished, "merged": True}
    if "sources" in known[0]:
        return _merged_mixtures(ranks, begun, {**known[0], **about})
    hosts = _hosts(ranks, begun)
    if len(hosts) == 1:
        return hosts[0]
    return {**about, "finished": all(host["finished"] for host in hosts), "hosts": hosts}


def _what(reader: State) -> State:
    """Return what the states of all readers have in common."""
    of = {name: value for name, value in reader["of"].items() if name != "host"}
    return {**of, "mixture": "sources" in reader}


def _merged_mixtures(ranks: Sequence[Sequence[State]], begun: Sequence[Sequence[State]], merged: State) -> State:
    sources = []
    for number in range(len(merged["sources"])):
        of_ranks: list[list[State]] = [[s for r in each for s in _readers(r["sources"][number])] for each in begun]
        for of_rank, rank, each in zip(of_ranks, ranks, begun, strict=True):
            of_rank += [{"epoch": merged["epoch"]}] * (len(rank) - len(each))
        sources.append(_merged(of_ranks))
    merged = {**merged, "sources": sources}
    own_last = sorted((r for each in begun for r in each), key=lambda reader: "merged" not in reader)
    fitting = [reader for reader in own_last if "merged" not in reader or _counts(reader) == _counts(merged)]
    return {**merged, "draws": {seed: drawn for reader in fitting for seed, drawn in reader["draws"].items()}}


def _counts(mixture: State) -> list[list[int | None]]:
    """Return among how many readers each source of a mixture is divided, on each host."""
    return [[reader.get("count") for reader in _readers(source)] for source in mixture["sources"]]


def _hosts(ranks: Sequence[Sequence[State]], begun: Sequence[Sequence[State]]) -> list[State]:
    """Return the merged state of each host, or of all hosts if these see the same objects."""
    own = [reader for each in begun for reader in each if "merged" not in reader]
    layouts = {_host(reader): _layout(reader) for reader in own}
    most = max((len(rank) for rank, each in zip(ranks, begun, strict=True) if any(r in own for r in each)), default=1)
    known, late = list[State](), 0  # the number of readers that have not begun
    for rank, each in zip(ranks, begun, strict=True):
        is_own = any("merged" not in reader for reader in each)
        # What a rank has loaded holds for it, unless the others have divided again what was left.
        left = [r for r in each if is_own or layouts.get(_host(r), _layout(r)) == _layout(r)]
        known += left
        late += len(rank) - len(each) if is_own else most if len(left) < max(len(each), 1) else 0
    first = (own or known)[0]
    number = (first["of"].get("host") or (0, 1))[1]
    of_hosts = {_host(reader): reader["of"] for reader in known}
    if late and number > 1 and not first["left"]:  # No reader of a host may have begun.
        of_hosts = {str([host, number]): {**first["of"], "host": [host, number]} for host in range(number)} | of_hosts
    nothing = {**first, "shards": {}, "ended": [], "listing": []}
    # Nothing was left on these hosts: readers that have begun again passed over the epoch.
    over = {_host(reader): reader for each in begun for reader in each if "merged" in reader and reader["finished"]}
    hosts = [
        over.get(name) or united([reader for reader in known if _host(reader) == name] or [{**nothing, "of": of}])
        for name, of in sorted(of_hosts.items())
    ]
    missing = [(each["shards"], str(i)) for each in hosts for i in range(each["count"]) if str(i) not in each["shards"]]
    if len(missing) > late * len(first["shards"]):
        what = f"shard {listed(index for _, index in missing)} of {first['count']} is missing"
        what += f", and {late} readers had not begun the epoch" if late else ""
        raise _unmergeable(f"{what}; give the states of all ranks")
    for shards, index in missing:
        shards[index] = list(Position())
    return [{**each, "finished": len(each["ended"]) == each["count"], "merged": True} for each in hosts]


def _host(reader: State) -> str:
    return str(reader["of"].get("host"))


def _layout(reader: State) -> tuple[int, bool]:
    return reader["count"], reader["assigned"]


def united(readers: Sequence[State]) -> State:
    """Return the state of some readers of one reading, which may have further ones. Raises ChannelError as merge_states does."""
    first, ended, listing = max(readers, key=_is_read), set[int](), dict[int, int]()
    shards, loaded = dict[str, Any](), dict[str, Any]()
    for reader in readers:
        names = ("count", "assigned", "left") if _is_read(reader) else ("count", "assigned")
        differ = [name for name in names if reader[name] != first[name]]
        if differ:
            raise _unmergeable(
                f"they are of different numbers of readers, or were resumed differently ({differ[0]} differs)"
            )
        for index, at in reader["shards"].items():
            if list((loaded if "merged" in reader else shards).setdefault(index, at)) != list(at):
                raise _unmergeable(f"two of shard {index} have different positions")
        ended.update(reader["ended"])
        for count, digest in reader["listing"]:
            if listing.setdefault(count, digest) != digest:
                raise _unmergeable(f"the readers' first {count:,} objects differ: the data or its listing has changed")
    same = first if all(reader.get("turn") == first.get("turn") for reader in readers) else {**first, "turn": None}
    return {
        **same,
        "shards": dict(sorted((loaded | shards).items(), key=lambda shard: int(shard[0]))),
        "ended": sorted(ended),
        "listing": [list(pair) for pair in sorted(listing.items())],
    }


def _is_read(reader: State) -> bool:
    """Return whether a reader has not passed over its shard, which was finished when its state was loaded."""
    return not reader["finished"] or bool(reader["left"] or reader["listing"])


def _unmergeable(reason: str) -> ChannelError:
    return ChannelError(f"these states cannot be merged: {reason}; or restart the epoch")
