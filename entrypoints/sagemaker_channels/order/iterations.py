"""Which epoch each iteration over a dataset reads, and from where: one state machine of plain integers.

A dataset has one reader (its own process), or one for each worker of a DataLoader; they share the machine's cells. The position in
an epoch is in the states (states.py).

`set_epoch` sets the epoch; otherwise the loaded states do, and the end of an iteration sets the next one. After the state of a
finished epoch the next epoch follows; if other ranks may still be in the middle of it, it is iterated once more, without samples.

torchdata's StatefulDataLoader makes this more than a number. It passes each worker its own state after the epoch was set, passes
the dataset of the loading process nothing, and iterates twice after a state from the end of a loop: first with the state, which
has samples left if `drop_last` dropped them, then without it.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any, NamedTuple

from sagemaker_channels.errors import ChannelError, is_count
from sagemaker_channels.order.states import State

READERS = 1024  # at most, of a dataset
# The cells: the epoch of set_epoch or after the last iteration, that of the loaded states (or -1), the number of readers, whether
# they are workers, whether a finished epoch is iterated once more, whether the end of an iteration has set the epoch, the epoch
# after the one that was begun last, the phase of each reader, and for each the mark of the iteration that it has ended last, which
# is negative until then.
_SET, _LOADED, _COUNT, _WORKERS, _REPEATED, _ADVANCED, _BEGUN, _FIRST = range(8)
CELLS = _FIRST + 2 * READERS

# What a reader's next iteration follows:
FRESH = 0  # no state
OFFERED = 1  # the state from the middle of an epoch that the dataset has loaded for all readers
FINISHED = 2  # one from the end of an epoch
OWN = 3  # the state of this worker alone, which may be at the end although it is not finished
ENDED = 4  # such a state that is finished
PARTLY = 5  # samples after such a state, which may have made no whole batch
SKIPPED = 6  # an iteration over a finished epoch, without samples

TRANSITIONS: dict[str, dict[int, int]] = {  # by event; in any other phase it changes nothing
    "resume": {OFFERED: FRESH},  # an iteration begins at a loaded state
    "read": dict.fromkeys(range(7), FRESH),  # one begins at the beginning of an epoch
    "skip": dict.fromkeys(range(7), SKIPPED),  # one begins in an epoch of which nothing is left
    "yield": {OWN: PARTLY},  # an iteration that resumed yields its first sample
    "ask": {PARTLY: FRESH},  # a worker's state is taken in the middle of its shard, so after a whole batch
    "end": {FINISHED: SKIPPED},  # an iteration that resumed has ended
    "set": {PARTLY: FRESH},  # set_epoch
}


class Start(NamedTuple):
    """How an iteration begins."""

    epoch: int
    state: State | None  # from which it resumes
    is_over: bool  # nothing is left of the epoch


class Iterations:
    """The epochs and loaded states of one dataset.

    Args:
        cells: Integers, shared by all processes that iterate: CELLS, or fewer for fewer readers.
    """

    def __init__(self, cells: MutableSequence[int]) -> None:
        self.cells = cells
        self.waiting: State | None = None  # the loaded state; forked workers have a copy
        self.is_loop = False  # whether the iteration of this process is known to be a loop of its caller
        self.is_again = False  # whether it begins an epoch that was begun before, and neither set nor loaded since
        cells[_SET] = cells[_LOADED] = -1
        cells[_COUNT] = 1

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        chosen, loaded = map(int, self.cells[:_COUNT])
        if chosen >= 0:
            return chosen
        is_repeated = bool(self.cells[_REPEATED]) and not {FINISHED, OWN, ENDED}.isdisjoint(self._phases())
        return loaded + (not is_repeated)

    def set_epoch(self, epoch: int) -> None:
        self.cells[_SET], self.cells[_ADVANCED], self.cells[_BEGUN] = epoch, 0, 0
        readers = range(int(self.cells[_COUNT]))
        for reader in readers:
            self.cells[self._first_end + reader] = 0
        self.move("set", *readers)

    def load(self, state: State, finished: bool, worker: int | None = None, *, are_several: bool = False) -> None:
        """Resume at a state with the next iteration of one worker, or else of each reader.

        `are_several` is whether there are other ranks, which may be in the middle of an epoch that this one has finished.
        """
        has_position = "version" in state or "threads" in state
        self.waiting = state if has_position else None
        self.cells[_LOADED] = state["epoch"]
        self.cells[_REPEATED] = are_several and "merged" not in state  # A merged state is finished if all ranks have.
        if self.cells[_ADVANCED]:
            self.cells[_SET], self.cells[_ADVANCED] = -1, 0
        if worker is not None and (has_position or finished):
            self.cells[_FIRST + worker] = ENDED if finished else OWN
            return
        for place in range(_FIRST, self._first_end):
            self.cells[place] = FINISHED if finished else OFFERED if has_position else FRESH
        if not finished:
            self.set_epoch(state["epoch"])

    def begin(self, reader: int = 0, readers: int = 1, loop: int | None = None) -> Start:
        """Begin an iteration of one of so many readers; of workers, which all know their `loop` by a number."""
        self.cells[_COUNT], self.cells[_WORKERS] = readers, loop is not None
        self.is_loop = self.is_again = False
        phases = self._phases()
        phase, epoch = phases[reader], self.epoch
        # A reader that has resumed from a state can still have a copy of it.
        state, self.waiting = self.waiting if FRESH < phase < PARTLY else None, None
        if state is not None and phase in (OWN, ENDED):
            epoch = state["epoch"]
        self.cells[self._first_end + reader] = -_mark(epoch, loop)
        begun = int(self.cells[_BEGUN])
        if reader == 0:
            self.cells[_BEGUN] = epoch + 1
        if state is not None and state["epoch"] == epoch:
            self.move("resume", reader)
            return Start(epoch, state, False)
        is_over = epoch == self.cells[_LOADED] and phase != SKIPPED and FRESH not in phases
        self.is_again = reader == 0 and begun == epoch + 1 and not is_over
        self.move("skip" if is_over else "read", reader)
        return Start(epoch, None, is_over)

    def move(self, event: str, *readers: int) -> None:
        """Record an event of an iteration of one reader, or of several."""
        if event == "yield" and self.cells[_SET] < 0:
            self.cells[_SET] = self.cells[_LOADED]
        for place in (_FIRST + reader for reader in readers):
            phase = int(self.cells[place])
            self.cells[place] = TRANSITIONS[event].get(phase, phase)

    def end(self, epoch: int, reader: int = 0, loop: int | None = None) -> bool:
        """End an iteration of one reader. The last one's end sets the next epoch, unless `set_epoch` has set one.

        Returns:
            Whether it has.
        """
        self.move("end", reader)
        # Workers of an earlier loop, which was left, must not count as those of this one, which may not have begun yet.
        mark, place = _mark(epoch, loop), self._first_end + reader
        if int(self.cells[place]) in (0, -mark):
            self.cells[place] = mark
        # torchdata's first iteration after a state from the end of a loop is not the loop's.
        is_loop = self.is_loop or not {FRESH, SKIPPED}.isdisjoint(self._phases())
        # Readers that end at the same time all write the same.
        is_next = is_loop and set(self._ends()) == {mark} and int(self.cells[_SET]) in (-1, epoch)
        if is_next:
            self.cells[_SET], self.cells[_ADVANCED] = epoch + 1, 1
        return is_next

    def state(self, now: State | None) -> State:
        """Return the state of a loop: the loaded one if it waits, else the position now, unless another epoch was set."""
        epoch = self.epoch
        # Other ranks may be in the middle of the epoch that this one has just finished.
        epochs = (epoch, epoch - int(self.cells[_ADVANCED]))
        return next((state for state in (self.waiting, now) if state and state["epoch"] in epochs), {"epoch": epoch})

    def is_elsewhere(self) -> bool:
        """Return whether workers iterate, whose position this process does not know."""
        return bool(self.cells[_WORKERS]) and self.is_running()

    def is_running(self) -> bool:
        """Return whether a reader has begun an iteration that it has not ended, and no epoch was set since."""
        return min(self._ends()) < 0

    def ask(self, worker: int) -> None:
        """Record that a worker's state is taken in the middle of its shard."""
        if self.cells[_FIRST + worker] == PARTLY:
            self.move("ask", *range(int(self.cells[_COUNT])))

    def are_finished(self) -> bool:
        """Return whether all readers have loaded states of a finished epoch; ask once all have begun."""
        return {FINISHED, ENDED}.issuperset(self._phases())

    @property
    def _first_end(self) -> int:
        return (_FIRST + len(self.cells)) // 2

    def _phases(self) -> list[int]:
        return [int(self.cells[_FIRST + reader]) for reader in range(int(self.cells[_COUNT]))]

    def _ends(self) -> list[int]:
        return [int(self.cells[self._first_end + reader]) for reader in range(int(self.cells[_COUNT]))]


def _mark(epoch: int, loop: int | None) -> int:
    return 1 + abs(hash((epoch, loop or 0))) % 2**62


def check_state(state: Any, taker: str) -> None:
    """Raise ChannelError if a `dataset` or `ThreadLoader` cannot load a state: its epoch alone would repeat samples."""
    known = state if isinstance(state, dict) else {}
    what = None
    if "_snapshot" in known or "_num_yielded" in known:
        what = "a StatefulDataLoader's: load it there, or merge it"
    elif not is_count(known.get("epoch")):
        what = f"{', '.join(map(repr, known)) or repr(state):.100}, without an epoch"
    elif taker == "dataset" and "threads" in known:
        what = "a ThreadLoader's: load it there, or merge it"
    elif taker != "dataset" and "version" in known and "merged" not in known:
        dataset = "MixedDataset's" if "sources" in known else "ChannelDataset's"
        what = f"a {dataset}, without a loader or with num_workers=0: load it there, or merge it"
    elif "threads" in known and not _has_threads(known):
        what = "damaged: threads, ended threads or turn is missing"
    if what is not None:
        raise ChannelError(
            f"a {taker} resumes only from a {taker}'s state_dict(), or from merge_states(); this is {what}; or restart the epoch"
        )


def _has_threads(state: State) -> bool:
    threads, ended = state["threads"], state.get("ended")
    are_states = (
        isinstance(threads, list) and isinstance(ended, list) and all(isinstance(each, dict) for each in threads)
    )
    return are_states and all(
        is_count(number) and number < len(threads) for number in [*(ended or ()), state.get("turn")]
    )
