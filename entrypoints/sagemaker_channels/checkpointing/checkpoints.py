"""Checkpoints: saves in the background, loads the newest complete one, keeps the last few."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from sagemaker_channels.checkpointing import catalog, data_position
from sagemaker_channels.checkpointing.place import Folder, place_of, warn_unless_kept
from sagemaker_channels.checkpointing.writer import Writer
from sagemaker_channels.errors import ChannelError, CorruptError, whole_number
from sagemaker_channels.fetching.silence import warn
from sagemaker_channels.job.environment import load_environment

LOADER = "loader"  # the part of which each rank's own state is saved


class Checkpoints:
    """The checkpoints of a training: model, optimizer, data position and random states together, whole or not at all.

    Every rank calls each method with the same arguments; `load`, `save` and `close` are collective calls. A context manager, which
    closes it.

    Args:
        place: A folder, which all hosts share unless SageMaker copies it, or s3://bucket/prefix; by default SageMaker's checkpoint
            folder, /opt/ml/checkpoints.
        keep: How many complete checkpoints remain; older ones are removed.
    """

    def __init__(self, place: str | Path | None = None, *, keep: int = 3) -> None:
        text = str(load_environment().checkpoint_dir if place is None else place)
        self._place = place_of(text)
        self._keep = whole_number("keep", keep, 1)
        self._writer = Writer(text)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._group: Any = None
        self._chunks: Any = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def latest(self) -> int | None:
        """Return the step of the newest complete checkpoint; None if there is none. Raises ChannelError if S3 cannot be read."""
        return next((saved.step for saved in catalog.complete(self._place)), None)

    def load(self, **parts: Any) -> int | None:
        """Load the newest complete checkpoint into the parts, and set each rank's random generators.

        Checkpoints that are incomplete or damaged are ignored; the log says why. Nothing is changed unless all ranks can read one.

        Args:
            parts: What was saved under these names, or some of it; a module, an optimizer, or anything with `load_state_dict`.

        Returns:
            The step that was saved; None if there is no complete checkpoint.

        Raises:
            ChannelError: The checkpoint is of another model or has no such part, or S3 cannot be read.
        """
        self.wait()
        found = catalog.complete(self._place) if self._rank == 0 else iter(())
        while (saved := self._gather(next(found, None))[0]) is not None:
            if self._load(saved, parts):
                return int(saved.step)
        return None

    def save(self, step: int, **parts: Any) -> None:
        """Copy the parts' states and each rank's random states, and store them in the background.

        The copy takes as much memory as the tensors that this rank stores; it is used again by the next save.

        Args:
            step: The training's progress, a number that grows.
            parts: The same as for `load`. Of `loader`, each rank's state is saved, of other parts rank 0's, except parameters and
                optimizers' states, which may be sharded.

        Raises:
            ChannelError: The last checkpoint was not stored.
            TypeError: A state has other things than tensors and plain values.
        """
        from sagemaker_channels.checkpointing import chunks, state

        whole_number("step", step, 0)
        self.wait()
        if self._rank == 0:
            warn_unless_kept(self._place)
        name = self._gather(catalog.new_name(step))[0]
        tensors, rest = state.collect({key: part for key, part in parts.items() if key != LOADER}, self._rank)
        own: dict[str, Any] = {"random": state.random_states()}
        if LOADER in parts:
            own[LOADER] = data_position.state_of(parts[LOADER])
        if self._rank == 0:
            own["rest"] = rest
        tail = state.packed(own)
        self._chunks = self._chunks or chunks.Chunks(self._gather)
        stored = self._chunks.of(tensors, self._rank)
        values = [tensor for _, tensor in stored]
        places = chunks.layout(values, len(tail))
        chunks.copy(values, tail, places, self._writer.memory(places[-1][1]))
        self._thread = threading.Thread(target=self._store, args=(name, step, [item for item, _ in stored], places))
        self._thread.start()  # Python's exit waits for it.

    def wait(self) -> None:
        """Wait until the last checkpoint is stored. Raises ChannelError if it was not."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Wait until the last checkpoint is stored, and end the process that writes. Raises what `wait` does."""
        try:
            self.wait()
        finally:
            self._writer.close()

    def _store(self, name: str, step: int, items: list[Any], places: list[tuple[int, int]]) -> None:
        """Write this rank's file; on rank 0, commit the checkpoint when all ranks have; remove old ones."""
        from sagemaker_channels.checkpointing import chunks

        file, size = f"rank-{self._rank}", places[-1][1]
        try:
            mine: Any
            try:
                digests = self._writer.write(f"{name}/{file}", size, places)
                rows = [chunks.row(*each) for each in zip(items, [file] * len(items), places, digests, strict=False)]
                mine = (rows, [file, *places[-1], digests[-1]], size)
            except ChannelError as error:
                mine = str(error)
            outcome: Any = None
            everyone = self._gather(mine)
            if self._rank == 0:
                outcome = self._commit(name, step, everyone)
            outcome = self._gather(outcome)[0]
            if isinstance(outcome, str):
                raise ChannelError(f"the checkpoint of step {step} was not saved: {outcome}")
            # Without a common file system, each host has files of its own to remove.
            if self._rank and os.environ.get("LOCAL_RANK") == "0" and isinstance(self._place, Folder):
                self._writer.remove(outcome)
        except BaseException as error:  # noqa: BLE001 - raised by the next call
            self._failure = error
            if self._rank == 0:
                warn(str(error))

    def _commit(self, name: str, step: int, everyone: list[Any]) -> list[str] | str:
        """Write the manifest, remove old checkpoints and return their names; the reason, a text, if a rank or this failed."""
        from sagemaker_channels.checkpointing import chunks

        if failed := [f"rank {rank}: {each}" for rank, each in enumerate(everyone) if isinstance(each, str)]:
            return "; ".join(failed)
        manifest = {
            "format": catalog.FORMAT,
            "step": step,
            "files": {own[0]: size for _, own, size in everyone},
            "ranks": [own for _, own, _ in everyone],
            "tensors": chunks.table([row for rows, _, _ in everyone for row in rows]),
        }
        try:
            self._writer.write_text(f"{name}/{catalog.MANIFEST}", json.dumps(manifest))
            return self._writer.expire(name, self._keep)
        except ChannelError as error:
            return str(error)

    def _load(self, saved: catalog.Saved, parts: dict[str, Any]) -> bool:
        """Load a checkpoint; False, without a change, if a rank finds it damaged."""
        from sagemaker_channels.checkpointing import chunks, state

        others = {name: part for name, part in parts.items() if name != LOADER}
        sharded = state.layouts(others)
        manifest, problem, everyone = saved.manifest, None, None
        ranks = manifest["ranks"]
        try:
            with chunks.Reader(self._place, saved.name) as reader:
                rest = state.unpacked(reader.piece(*ranks[0]))["rest"]
                own = state.unpacked(reader.piece(*ranks[self._rank % len(ranks)]))
                if unknown := parts.keys() - {*rest, *own}:
                    raise KeyError(f"it has no {', '.join(sorted(unknown))}")
                if LOADER in parts and len(ranks) != self._size:
                    everyone = [state.unpacked(reader.piece(*at))[LOADER] for at in ranks]
                needed = {name: manifest["tensors"][name] for name in state.names_in([rest[name] for name in others])}
                tensors: dict[str, Any] = reader.tensors(needed, sharded)
        except (CorruptError, FileNotFoundError) as error:
            problem = str(error)
        except (RuntimeError, ValueError, KeyError) as error:
            raise self._unlike(saved, error) from error
        problems = [each for each in self._gather(problem) if each is not None]
        if problems:
            if self._rank == 0:
                catalog.ignore(self._place, saved.name, problems[0])
            return False
        for name, live in sharded.items():
            if name in tensors:
                live.to_local().copy_(tensors[name])
                tensors[name] = live
        try:
            state.apply(others, rest, tensors)
        except (RuntimeError, ValueError, KeyError) as error:
            raise self._unlike(saved, error) from error
        if LOADER in parts:
            positions = everyone or self._gather(own[LOADER])
            data_position.load(parts[LOADER], positions, None if everyone else self._rank)
        if self._rank < len(ranks):
            state.restore_random_states(own["random"])
        return True

    def _unlike(self, saved: catalog.Saved, error: Exception) -> ChannelError:
        reason = str(error).strip("'").splitlines()[-1].strip()
        return ChannelError(
            f"{self._place}/{saved.name} is a checkpoint of another training ({reason}); remove it, or give another place"
        )

    @property
    def _rank(self) -> int:
        distributed = _distributed()
        return distributed.get_rank() if distributed else 0

    @property
    def _size(self) -> int:
        distributed = _distributed()
        return distributed.get_world_size() if distributed else 1

    def _gather(self, value: Any) -> list[Any]:
        """Return every rank's value, by a group of our own: the training uses its group at the same time, perhaps with NCCL."""
        distributed = _distributed()
        if not distributed or self._size == 1:
            return [value]
        self._group = self._group or distributed.new_group(backend="gloo")
        values: list[Any] = [None] * self._size
        distributed.all_gather_object(values, value, self._group)
        return values


def _distributed() -> Any:
    """Return torch.distributed if the script has joined a process group."""
    import torch.distributed as distributed

    return distributed if distributed.is_available() and distributed.is_initialized() else None
