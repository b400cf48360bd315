"""The state of an epoch: a record of JSON's values, the same for one reader, a rank's readers, and all readers of a job.

    {"version": 6, "epoch": 3, "of": {...}, "history": [deal, ...], "count": 4, "at": {"0": position, ...}, "listing": {...},
     "turn": {...}, "checksum": 2271560481}

`at` has the positions of those readers of the present deal that the state knows. Merging unites them. As many readers as before
continue at their own; any other number deals again, which needs all positions: they become the last deal of the history.

`listing` has, for each list of objects, how many of its first ones must be the same when reading resumes, and their digest. `turn`
has, for each group of readers that take turns, by its first, which of how many has the next sample or batch.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from sagemaker_channels.epoch.deals import FRESH, Deal, Position
from sagemaker_channels.errors import RESTART, ChannelError, expect

State: TypeAlias = dict[str, Any]
Listing: TypeAlias = "dict[str, list[int]]"
VERSION = 6
_SAME = ("version", "of", "history", "count")
_SUMMED = (*_SAME, "epoch", "at", "listing", "turn")


def changed(what: str) -> ChannelError:
    """Return the error for data that are not those of a state; `what` is in words."""
    return ChannelError(f"{what}: the data has changed", remedy=RESTART)


def merge_states(states: Iterable[State]) -> State:
    """Return one state of the states of all ranks, from which any number of ranks, workers and readers can resume.

    With as many ranks and workers as before, each continues at the very next sample, in the same order. With any other number, what
    is left of the epoch is divided again: each sample is still read once, but their order is another.

    Args:
        states: What `state_dict()` of each rank's loader, dataset or `open_channel` returned. A rank may not have begun the epoch.
            Merged states can be merged again.

    Raises:
        ChannelError: They are not the states of all readers of one reading, taken at the same time.
        TypeError: One state instead of a list of them.
    """
    expect(not isinstance(states, dict), "states", states, "a list of the states of all ranks: [loader.state_dict()]")
    known = sorted(map(checked, states), key=lambda state: -int(state["epoch"]))
    if not known:
        raise ChannelError("there are no states to merge", remedy="give those of all ranks")
    merged = united(
        _next_of(state, known[0]) if state["epoch"] == known[0]["epoch"] - 1 and is_finished(state) else state
        for state in known
    )
    missing = [index for index in range(merged["count"]) if str(index) not in merged["at"]]
    if missing:
        raise _unmergeable(f"reader {missing[0]} of {merged['count']} is missing", "give the states of all ranks, or ")
    if merged["of"].get("restart") and not is_finished(merged):  # also for readers that had finished it
        merged |= {"at": dict.fromkeys(merged["at"], FRESH), "history": [], "turn": {}}
    return sealed({**merged, "at": dict(sorted(merged["at"].items(), key=lambda at: int(at[0])))})


def united(states: Iterable[State]) -> State:
    """Return one state of some readers of one reading, which may have others. Raises ChannelError as merge_states does."""
    first, *others = states
    union: State = {**first, "at": {}, "listing": {}, "turn": {}}
    for state in (first, *others):
        if state["epoch"] != union["epoch"]:
            raise _unmergeable(f"they are of the epochs {state['epoch']} and {union['epoch']}")
        if any(state[name] != union[name] for name in _SAME):
            differ = compared(*({**each["of"], "readers": each["count"]} for each in (union, state)))
            how = f"one has {differ[1]}, another has {differ[0]}" if differ else "they were resumed differently"
            raise _unmergeable(how)
        for index, position in state["at"].items():
            if union["at"].setdefault(index, position) != position:
                raise _unmergeable(f"two of reader {index} have different positions")
        for name, (count, digest) in state["listing"].items():
            known = union["listing"].get(name, [0, 0])
            if known[0] == count and known[1] != digest:
                raise _unmergeable(f"the readers' first {count:,} objects differ: the data or its listing has changed")
            union["listing"][name] = max(known, [count, digest])
        union["turn"] |= state["turn"]
    return union


def _next_of(state: State, newest: State) -> State:
    """Return the state of a rank that has finished an epoch and not begun the one after it, which others have begun."""
    if state["count"] != newest["count"] or set(state["at"]) == set(newest["at"]):
        return state
    return {**newest, "at": dict.fromkeys(state["at"], FRESH), "listing": {}, "turn": {}}


def is_finished(state: State) -> bool:
    """Return whether nothing is left of the epoch for the readers of a state."""
    return bool(state["at"]) and not any(state["at"].values())


def is_over(state: State) -> bool:
    """Return whether nothing is left of the epoch for any reader, so that the next one follows."""
    return is_finished(state) and len(state["at"]) == state["count"]


def is_fresh(state: State) -> bool:
    """Return whether the readers of a state have read nothing of the epoch, and none before them has."""
    return not state["history"] and all(position == FRESH for position in state["at"].values())


def dealt(state: State, indexes: Sequence[int], count: int) -> tuple[list[Deal], list[Position]]:
    """Return the history, and the positions of some of `count` readers that continue at a state.

    Raises ChannelError if they need the positions of all readers, and some are missing.
    """
    at, before = state["at"], state["count"]
    if count == before and all(str(index) in at for index in indexes):
        return state["history"], [at[str(index)] for index in indexes]
    if is_fresh(state):
        return [], [FRESH] * len(indexes)
    missing = [index for index in range(before) if str(index) not in at]
    if missing:
        raise ChannelError(
            f"the state has no position of reader {missing[0]} of {before}, and {count} readers read now",
            remedy="merge the states of all ranks by merge_states, or restart the epoch",
        )
    return [*state["history"], [at[str(index)] for index in range(before)]], [FRESH] * len(indexes)


def checked(state: Any) -> State:
    """Return a state. Raises ChannelError for anything else."""
    known: State = state if isinstance(state, dict) else {}
    version = known.get("version")
    if version != VERSION:
        what = f"of version {version!r}" if version else f"{', '.join(map(repr, known)) or repr(state):.100}"
        raise ChannelError(
            f"this is no state of ours, of version {VERSION}, but {what}",
            remedy="load what state_dict() of a dataset or loader,"
            " gather_state or merge_states returned, or restart the epoch",
        )
    with suppress(LookupError, TypeError, ValueError, RuntimeError):
        own = json.loads(json.dumps({name: known[name] for name in _SUMMED}, default=int))  # as JSON stores it
        if _sum(own) == known["checksum"]:
            return {**known, **own}
    raise ChannelError(
        "the state is damaged or was edited", remedy="load it as state_dict() returned it, or restart the epoch"
    )


def sealed(state: State) -> State:
    """Return a state with its checksum: one that is wrong in a number only would lose or repeat samples."""
    return {**state, "checksum": _sum(state)}


def _sum(state: State) -> int:
    # Without what the caller has stored beside, such as a step; default=int is for numpy's integers.
    return zlib.crc32(json.dumps([state[name] for name in _SUMMED], sort_keys=True, default=int).encode())


def compared(here: State, there: State) -> tuple[str, str] | None:
    """Return, in words, the members that differ: those of `here` and those of `there`; None if none do."""
    differ = [key for key in dict.fromkeys([*here, *there]) if here.get(key) != there.get(key)]
    here_has, there_has = (", ".join(f"{key} {each.get(key)!r}" for key in differ) for each in (here, there))
    return (here_has, there_has) if differ else None


def at_home(of: State, here: State) -> State:
    """Return what a state is of, by the names of `here` as far as it may be the same data in another place.

    A channel of a job, a prefix and a folder can hold the same objects, which are compared when they are listed. Two of one kind,
    and two URIs, do not.
    """
    if all(isinstance(each.get("mixture"), list) for each in (of, here)):
        return {**of, "mixture": [at_home(*pair) for pair in zip(of["mixture"], here["mixture"], strict=False)]}
    names = [each["channel"] for each in (of, here) if isinstance(each.get("channel"), str)]
    kinds = {"prefix" if name.startswith("s3://") else "folder" if "/" in name else "job's" for name in names}
    same = {"channel": here["channel"]} if len(kinds) > 1 else {}
    if None in (of.get("s3_uri"), here.get("s3_uri")):  # One of them is unknown.
        same["s3_uri"] = here.get("s3_uri")
    return {**of, **same}


def _unmergeable(reason: str, remedy: str = "") -> ChannelError:
    return ChannelError(f"these states cannot be merged: {reason}", remedy=remedy + RESTART)
