"""Several shards of a channel as one, a sample of each in turn: `Reading(shards=...)`.

With the epoch divided among a fixed number of shards instead of ranks, the n-th batch of all ranks together has the same samples
on any number of ranks that divides it, if these together take the same number of samples in each step.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.order.merging import united
from sagemaker_channels.order.samples import Samples
from sagemaker_channels.order.sharding import Shard
from sagemaker_channels.order.states import State
from sagemaker_channels.sample import Sample


def fixed_shards(channel: Channel, shard: Shard, shards: int) -> list[Shard]:
    """Return which of so many shards belong to the reader of `shard`.

    Consecutive shards belong to the workers of a rank: workers take turns by batches, so a batch of all ranks has the same shards
    on any number of ranks, as long as each has as many workers.

    Raises:
        ChannelError: They cannot be divided equally, or the channel is a Pipe.
    """
    where = f"channel {channel.name!r}: Reading(shards={shards})"
    if channel.mode == "Pipe":
        raise ChannelError(f"{where} is impossible in a Pipe; leave shards out, or use input_mode: FastFile")
    if shards % shard.count:
        ranks = shard.count // shard.workers
        raise ChannelError(
            f"{where} cannot be divided equally among {ranks} ranks with {shard.workers} workers or threads; use numbers whose"
            " product divides it"
        )
    worker = shard.index // (shard.count // shard.workers)
    reader = shard.rank * shard.workers + worker
    return [Shard(index, shards, host=shard.host) for index in range(reader, shards, shard.count)]


class Turns(Samples):
    """The samples of several shards, one of each in turn. The turns of a shard that has ended are skipped."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self._parts, self._turn, self._ended = parts, 0, set[int]()
        self._last = parts[0]
        self.epoch, self.about = parts[0].epoch, parts[0].about
        self._samples = self._in_turn()

    def _in_turn(self) -> Generator[Sample, None, None]:
        with ExitStack() as opened:
            for part in self._parts:
                opened.callback(part.close)
            while len(self._ended) < len(self._parts):
                turn = self._turn
                self._turn = (turn + 1) % len(self._parts)
                for sample in self._parts[turn] if turn not in self._ended else ():
                    self._last = self._parts[turn]
                    yield sample
                    break
                else:
                    self._ended.add(turn)

    @property
    def finished(self) -> bool:
        return all(part.finished for part in self._parts)

    @property
    def is_exact(self) -> bool:
        return all(part.is_exact for part in self._parts)

    def finish(self) -> None:
        self.close()
        for part in self._parts:
            part.finish()

    def place(self) -> str:
        return self._last.place()

    def state_dict(self) -> State:
        state = united([part.state_dict() for part in self._parts])
        return {**state, "finished": self.finished, "turn": [self._turn, len(self._parts)]}

    def load_state_dict(self, state: State) -> None:
        for part in self._parts:
            part.load_state_dict(state)
        turn, parts = state.get("turn") or (0, 0)
        self._turn = turn if self.is_exact and parts == len(self._parts) else 0
