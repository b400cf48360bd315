"""Which epoch each iteration reads: the whole transition table, and loaders whose loops are compared with a simple model."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sagemaker_channels.order import iterations
from sagemaker_channels.order.iterations import ENDED, FINISHED, FRESH, OFFERED, OWN, PARTLY, SKIPPED, Iterations, Start

PHASES = {"fresh": FRESH, "offered": OFFERED, "finished": FINISHED, "own": OWN, "ended": ENDED}
PHASES |= {"partly": PARTLY, "skipped": SKIPPED}
TABLE = """
         resume   read  skip    yield    ask      end      set
fresh    fresh    fresh skipped fresh    fresh    fresh    fresh
offered  fresh    fresh skipped offered  offered  offered  offered
finished finished fresh skipped finished finished skipped  finished
own      own      fresh skipped partly   own      own      own
ended    ended    fresh skipped ended    ended    ended    ended
partly   partly   fresh skipped partly   fresh    partly   fresh
skipped  skipped  fresh skipped skipped  skipped  skipped  skipped
"""


def test_every_event_in_every_phase_leads_to_the_phase_of_the_table() -> None:
    events, *rows = (line.split() for line in TABLE.strip().splitlines())
    found = {
        (phase, event): iterations.TRANSITIONS[event].get(PHASES[phase], PHASES[phase])
        for phase, *_ in rows
        for event in events
    }
    assert found == {
        (row[0], event): PHASES[after] for row in rows for event, after in zip(events, row[1:], strict=True)
    }
    assert [*iterations.TRANSITIONS] == events


def machine() -> Iterations:
    return Iterations([0] * 14)  # for three readers


def state(epoch: int, **more: Any) -> dict[str, Any]:
    return {"version": 3, "epoch": epoch, **more}


def test_iteration_without_a_state_is_of_the_epoch_that_is_set_or_follows() -> None:
    loops = machine()
    assert loops.begin() == Start(0, None, False)
    assert loops.begin() == Start(0, None, False)  # since the first was left
    loops.end(0)
    assert loops.state(state(0, finished=True)) == state(0, finished=True)  # Other ranks may be in the middle of it.
    assert loops.begin() == Start(1, None, False)
    loops.set_epoch(7)
    assert loops.begin() == Start(7, None, False)
    loops.set_epoch(3)
    loops.end(7)
    assert loops.state(None) == {"epoch": 3}


def test_epoch_advances_when_all_workers_of_one_loop_have_ended() -> None:
    loops = machine()
    for epoch in range(2):
        for worker in range(2):
            assert loops.begin(worker, 2, loop=epoch).epoch == epoch
        for worker in range(2):
            assert loops.epoch == epoch
            loops.end(epoch, worker, loop=epoch)
    assert loops.epoch == 2


def test_worker_that_ended_a_loop_that_was_left_does_not_count_for_the_next_loop() -> None:
    """Else a worker that begins after another has ended would skip its part of the epoch."""
    loops = machine()
    for worker in range(2):
        loops.begin(worker, 2, loop=5)
    loops.end(0, 1, loop=5)
    loops.begin(0, 2, loop=6)
    loops.end(0, 0, loop=6)
    assert loops.begin(1, 2, loop=6) == Start(0, None, False)


def test_epoch_is_begun_again_if_it_was_left_and_not_set_since() -> None:
    loops = machine()
    found = []
    for is_left, is_set in ((True, False), (True, True), (False, False), (True, False), (True, False)):
        if is_set:
            loops.set_epoch(0)
        epoch = loops.begin().epoch
        found.append((epoch, loops.is_again))
        if not is_left:
            loops.end(epoch)
    assert found == [(0, False), (0, False), (0, True), (1, False), (1, True)]


def test_position_is_known_elsewhere_while_workers_iterate() -> None:
    loops = machine()
    loops.begin()
    assert (loops.is_running(), loops.is_elsewhere()) == (True, False)
    loops.begin(0, 1, loop=5)
    assert loops.is_elsewhere()
    loops.end(0, 0, loop=5)
    assert not loops.is_running()


@pytest.mark.parametrize(("is_only", "epochs"), [(True, [6, 7, 8]), (False, [5, 6, 7])], ids=["one", "several"])
def test_finished_epoch_is_iterated_again_if_other_ranks_may_be_in_it(is_only: bool, epochs: list[int]) -> None:
    loops = machine()
    loops.load(state(5), finished=True, are_several=not is_only)
    found = []
    for _ in epochs:
        begin = loops.begin()
        found.append(begin.epoch)
        loops.end(begin.epoch)
    assert found == epochs


@pytest.mark.parametrize("is_merged", [False, True], ids=["own", "merged"])
def test_finished_epoch_of_forked_workers_on_several_ranks_is_skipped_once_unless_all_ranks_have_finished(
    is_merged: bool,
) -> None:
    """A merged state is finished only if all ranks are.

    Torchdata begins to iterate when it is asked for a state, so workers can end an iteration before its loop begins: the dataset's
    epoch was the next one then, and the loop of that epoch got the iteration of the finished one.
    """
    loops = machine()
    loops.load(state(5, **({"merged": True} if is_merged else {})), finished=True, are_several=True)
    found = []
    for loop in range(3):
        epoch = loops.epoch
        workers = [copy(loops) for _ in range(2)]
        begins = [worker.begin(number, 2, loop) for number, worker in enumerate(workers)]
        found.append([(begin.epoch, begin.state is None) for begin in begins])
        assert all(begin.epoch == epoch for begin in begins)
        for number, worker in enumerate(workers):
            worker.end(begins[number].epoch, number, loop)
    assert (
        found
        == ([] if is_merged else [[(5, False)] * 2]) + [[(epoch, True)] * 2 for epoch in (6, 7, 8)][: 2 + is_merged]
    )


def test_set_epoch_makes_a_loaded_state_of_another_epoch_void() -> None:
    loops = machine()
    waiting = state(5)
    loops.load(waiting, finished=False)
    assert loops.epoch == 5
    assert loops.state(None) is waiting
    loops.set_epoch(6)
    assert loops.state(None) == {"epoch": 6}
    assert loops.begin() == Start(6, None, False)
    loops.set_epoch(5)
    assert loops.begin() == Start(5, None, False)


def test_state_without_a_position_begins_its_epoch_or_the_next() -> None:
    loops = machine()
    loops.load({"epoch": 4}, finished=False)
    assert loops.begin() == Start(4, None, False)
    loops.load({"epoch": 4, "finished": True}, finished=True)
    assert loops.begin() == Start(4, None, True)
    assert loops.begin() == Start(4, None, False)


def test_workers_of_a_loop_that_was_left_do_not_end_the_next_one() -> None:
    loops = machine()
    for loop in (5, 6):
        loops.begin(0, 2, loop)
    loops.end(0, 0, 5)
    loops.begin(1, 2, 5)
    loops.end(0, 1, 5)
    assert loops.begin(1, 2, 6) == Start(0, None, False)
    loops.end(0, 0, 6)
    assert loops.epoch == 0
    loops.end(0, 1, 6)
    assert loops.epoch == 1


def test_state_that_is_loaded_after_an_iteration_decides_about_the_next() -> None:
    loops = machine()
    loops.begin()
    loops.end(0)
    loops.load(state(5), finished=True)
    assert loops.begin() == Start(6, None, False)


class Loader:
    """A loader over `readers` readers of `samples` samples each, which are pairs of epoch and number, as torch makes it.

    Its own states are torchdata's: a state for each worker, and whether the loop had ended; then it iterates twice.
    """

    def __init__(self, samples: int, readers: int, kind: str, drop_last: bool) -> None:
        self.samples, self.readers, self.kind, self.drop_last = samples, readers, kind, drop_last
        self.machine = machine()
        self.given: dict[str, Any] | None = None  # of the loader itself
        self.at: list[dict[str, Any]] = []

    def load(self, position: dict[str, Any]) -> None:
        if self.kind == "own":
            self.given = position
        else:
            all_ended = all(each["finished"] for each in position["workers"])
            self.machine.load({"version": 3, "merged": True, **position}, finished=all_ended)

    def loop(self, most: int) -> list[tuple[int, int, int]]:
        """Return the samples of an iteration of which at most so many batches are taken."""
        given, self.given = self.given, None
        found = self._iterate(most, given)
        return self._iterate(most, None) if given is not None and given["finished"] else found

    def _iterate(self, most: int, given: dict[str, Any] | None) -> list[tuple[int, int, int]]:
        # A worker is forked: it shares the cells, and has its own copy of what was loaded.
        self.machines = [self.machine if self.kind == "dataset" else copy(self.machine) for _ in range(self.readers)]
        begins = []
        for reader, each in enumerate(self.machines):
            if given is not None:
                own = given["workers"][reader]
                each.load(state(given["epoch"], **own), own["finished"], worker=reader)
            begins.append(each.begin(reader, self.readers))
        found, self.at = [], []
        for reader, begin in enumerate(begins):
            found += self._read(reader, begin, most)
        self.finished = most > self.samples
        return found

    def _read(self, reader: int, begin: Start, most: int) -> list[tuple[int, int, int]]:
        of = begin.state or {"at": 0}
        at = of["workers"][reader]["at"] if "workers" in of else of["at"]
        at = self.samples if begin.is_over else at
        left = [(begin.epoch, reader, number) for number in range(at, self.samples)]
        if begin.state is not None and left:
            self.machines[reader].move("yield", reader)
        batches = [left[place : place + 2] for place in range(0, len(left), 2)][:most]
        whole = [batch for batch in batches if len(batch) == 2 or not self.drop_last]
        for batch in whole:
            at += len(batch)
            if len(batch) == 2 and self.kind == "own":
                self.machines[reader].ask(reader)
        if begin.state is not None and self.machines[reader].are_finished():
            assert not left
        ended = begin.is_over or len(batches) < most
        if ended and begin.state is not None:
            self.machines[reader].move("end", reader)
        # Without `drop_last` the end is in the state of the last batch only if that was not whole.
        self.at.append({"at": at, "finished": begin.is_over or (ended and not (self.drop_last and at < self.samples))})
        return [sample for batch in whole for sample in batch]


class Loops(RuleBasedStateMachine):
    """Loops over an epoch each, interrupted and resumed by another process.

    The model: the first loop after a restart reads what the last loop left if it is in the same epoch; each other reads all.
    """

    @initialize(
        samples=st.integers(0, 5),
        readers=st.integers(1, 3),
        kind=st.sampled_from(["own", "workers", "dataset"]),
        drop_last=st.booleans(),
    )
    def start(self, **how: Any) -> None:
        self.how = how if how["kind"] != "dataset" else {**how, "readers": 1}
        self.loader = Loader(**self.how)
        self.epoch = 0
        # By reader: the first sample that the next loop in the same epoch reads.
        self.left: dict[int, int] | None = None
        self.has_looped = False
        self.void: int | None = None

    @rule(epoch=st.integers(0, 2), most=st.sampled_from([1, 2, 9]))
    def loop(self, epoch: int, most: int) -> None:
        if self.left is not None and not self.is_finished and self.how["kind"] == "own":
            epoch = self.epoch  # A StatefulDataLoader resumes in its state's epoch, whatever is set.
        self.loader.machine.set_epoch(epoch)
        is_resumed = self.left is not None and epoch == self.epoch
        begins = dict.fromkeys(range(self.how["readers"]), 0)
        if is_resumed and self.left is not None:
            begins = {reader: self.how["samples"] if self.is_finished else at for reader, at in self.left.items()}
        if epoch == self.void:
            begins = dict.fromkeys(begins, self.how["samples"])
        expected = []
        for reader, begin in begins.items():
            numbers = list(range(begin, self.how["samples"]))[: 2 * most]
            whole = len(numbers) // 2 * 2 if self.how["drop_last"] else len(numbers)
            expected += [(epoch, reader, number) for number in numbers[:whole]]
        assert self.loader.loop(most) == expected
        # Workers cannot tell a loop that had nothing left from the first of torchdata's two iterations.
        had_nothing = is_resumed and not self.is_finished and min(begins.values()) == self.how["samples"]
        self.void = epoch if had_nothing and self.how["kind"] == "own" else None
        self.epoch, self.left, self.has_looped = epoch, None, True

    @precondition(lambda self: self.has_looped)
    @rule()
    def restart(self) -> None:
        position = {"epoch": self.epoch, "workers": self.loader.at, "finished": self.loader.finished}
        self.left = {reader: each["at"] for reader, each in enumerate(self.loader.at)}
        self.is_finished = (
            self.loader.finished if self.how["kind"] == "own" else all(each["finished"] for each in self.loader.at)
        )
        self.void = None
        self.loader = Loader(**self.how)
        self.loader.load(position)
        self.has_looped = False


TestLoops = Loops.TestCase
TestLoops.settings = settings(max_examples=40, stateful_step_count=8, deadline=None, derandomize=True)
