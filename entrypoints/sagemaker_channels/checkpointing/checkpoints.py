"""Checkpoints: saves in the background, loads the newest complete one, keeps the last few."""

# ruff: noqa: TID253 - checkpoints are of torch's modules

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import distributed

from sagemaker_channels.checkpointing import chunks, files, state
from sagemaker_channels.checkpointing.place import Folder, place_of
from sagemaker_channels.checkpointing.writer import Writer
from sagemaker_channels.epoch.placement import has_group
from sagemaker_channels.epoch.states import merge_states
from sagemaker_channels.errors import ChannelError, CorruptError, expect, whole_number
from sagemaker_channels.job.environment import load_environment
from sagemaker_channels.job.process_identity import rank_variable
from sagemaker_channels.sources.silence import warn
from sagemaker_channels.torch_data.frameworks import check_not_prepared, check_stateful

LOADER = "loader"  # the part of which each rank's own state is saved
FORMAT = 3


class Checkpoints:
    """The checkpoints of a training: model, optimizer, data position and random states together, whole or not at all.

    All methods but `latest` are collective calls: every rank makes them, with the same arguments. A context, which closes it.

    Args:
        place: A folder, which all hosts share unless SageMaker copies it, or s3://bucket/prefix; by default SageMaker's checkpoint
            folder, /opt/ml/checkpoints.
        keep: How many complete checkpoints remain; older ones are removed.
    """

    def __init__(self, place: str | Path | None = None, *, keep: int = 3) -> None:
        expect(place is None or isinstance(place, str | os.PathLike), "place", place, "a folder or s3://bucket/prefix")
        self._text = str(load_environment().checkpoint_dir if place is None else place)
        self._place = place_of(self._text)
        self._keep = whole_number("keep", keep, 1)
        self._writer = Writer()
        self._chunks = chunks.Chunks(self._gather)
        self._pending: tuple[int, str] | None = None  # the step and name of the checkpoint that is being stored
        self._has_saved = False
        self._stored: list[str] = []  # the last ones that all ranks have stored, or loaded
        self._group: Any = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:  # The other ranks may not be here.
            self._writer.wait()
            self._writer.close()

    def latest(self) -> int | None:
        """Return the step of the newest complete checkpoint; None if there is none. Raises ChannelError if S3 cannot be read."""
        return next((saved.step for saved in files.complete(self._place)), None)

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
        found = files.complete(self._place) if self._rank == 0 else iter(())
        while (saved := self._gather(next(found, None))[0]) is not None:
            try:
                if self._load(saved, parts):
                    self._stored.append(saved.name)
                    return int(saved.step)
            except (RuntimeError, ValueError, KeyError) as error:
                reason = str(error).strip("'").splitlines()[-1].strip()
                raise ChannelError(
                    f"{self._place}/{saved.name} is a checkpoint of another training ({reason})",
                    remedy="remove it, or give another place",
                ) from error
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
        whole_number("step", step, 0)
        for part, value in parts.items():
            is_part = part == LOADER or hasattr(value, "state_dict")
            expect(is_part, part, value, "a module, an optimizer, or anything with state_dict() and load_state_dict()")
        name = self._finish(files.new_name(step))
        if self._rank == 0:
            self._warn_unless_kept()
        tensors, states = state.collect({key: part for key, part in parts.items() if key != LOADER}, self._rank)
        records = self._chunks.copy(tensors, self._rank, self._writer.memory)
        index = {"format": FORMAT, "random": state.random_states(), "chunks": self._chunks.index}
        if LOADER in parts:
            check_stateful(parts[LOADER])
            index[LOADER] = parts[LOADER].state_dict()
        if self._rank == 0:
            index["states"] = states
        file = f"{name}/rank-{self._rank}-of-{self._size}.zip"
        self._writer.start(self._text, file, [*records, (files.INDEX, state.packed(index))], **self._expired)
        self._pending = step, name

    def wait(self) -> None:
        """Wait until the last checkpoint is stored. Raises ChannelError if it was not."""
        self._finish()

    def close(self) -> None:
        """Wait until the last checkpoint is stored, and free the memory. Raises what `wait` does."""
        try:
            if self._pending:
                self.wait()
            if self._has_saved and self._expired:
                files.expire(self._place, **self._expired)
        finally:
            self._writer.close()

    def _warn_unless_kept(self) -> None:
        """Warn before a job's first save into SageMaker's checkpoint folder if that is missing, since then nothing keeps it."""
        environment = load_environment()
        folder = environment.checkpoint_dir
        if environment.job_name is not None and self._text == str(folder) and not folder.exists():
            warn(
                f"{folder} did not exist before this save, so this job seems to have no checkpoint_config, and its checkpoints are "
                "lost when it ends; add checkpoint_config: {s3_uri: s3://bucket/prefix} to the spec, or write "
                'Checkpoints("s3://...")'
            )

    def _finish(self, name: str = "") -> str:
        """Wait until all ranks have stored their files, and return rank 0's `name`. Raises ChannelError if one could not."""
        everyone = self._gather((name, self._writer.wait()))
        pending, self._pending = self._pending, None
        if failed := [f"rank {rank}: {error}" for rank, (_, error) in enumerate(everyone) if error is not None]:
            raise ChannelError(f"the checkpoint of step {pending and pending[0]} was not saved: {'; '.join(failed)}")
        if pending:
            self._has_saved = True
            self._stored.append(pending[1])
        return str(everyone[0][0])

    @property
    def _expired(self) -> dict[str, Any]:
        """The arguments of `files.expire`; empty if another rank does it. Each host may have a folder of its own."""
        self._stored = self._stored[-self._keep :]
        is_folder = isinstance(self._place, Folder) and self._size > 1
        rank = int(rank_variable("LOCAL_RANK") or self._rank) if is_folder else self._rank
        return {"stored": self._stored, "keep": self._keep} if rank == 0 else {}

    def _load(self, saved: files.Saved, parts: dict[str, Any]) -> bool:
        """Load a checkpoint; False, without a change, if a rank finds it damaged."""
        others = {name: part for name, part in parts.items() if name != LOADER}
        paths = [f"{saved.name}/{file}" for file in saved.files]
        read = self._try(saved, lambda: [self._index(path) for path in paths[self._rank :: self._size]])
        if read is None:
            return False
        indexes = [read[rank % self._size][rank // self._size] for rank in range(len(paths))]
        own, states = indexes[self._rank % len(indexes)], indexes[0]["states"]
        known = {*states, *({LOADER} & own.keys())}
        if unknown := sorted(parts.keys() - known):
            raise ChannelError(
                f"{self._place}/{saved.name} has no {', '.join(unknown)}, but {', '.join(sorted(known))}",
                remedy="load what it has, under these names",
            )
        like = state.tensors_of({name: states[name] for name in others})
        sharded = state.sharded(others)
        stored = {path: index["chunks"] for path, index in zip(paths, indexes, strict=True)}
        tensors: dict[str, Any] = {}
        if self._try(saved, lambda: tensors.update(chunks.read(self._place, stored, like, sharded))) is None:
            return False
        state.apply(others, states, tensors, sharded)
        if LOADER in parts:
            same = len(indexes) == self._size
            load_position(parts[LOADER], [index[LOADER] for index in indexes], self._rank if same else None)
        if self._rank < len(indexes):
            state.restore_random_states(own["random"])
        return True

    def _index(self, path: str) -> dict[str, Any]:
        (data,) = files.read(self._place, path, [files.INDEX])
        index: dict[str, Any] = state.unpacked(data)
        if index["format"] != FORMAT:
            raise CorruptError(
                f"its format is {index['format']}, and this version of sagemaker_channels reads {FORMAT}"
            )
        return index

    def _try(self, saved: files.Saved, read: Callable[[], Any]) -> list[Any] | None:
        """Return what every rank has read; None, with a line in the log, if one finds the checkpoint damaged."""
        value = problem = None
        try:
            value = read()
        except (CorruptError, FileNotFoundError) as error:
            problem = str(error)
        everyone = self._gather((value, problem))
        if problems := [problem for _, problem in everyone if problem is not None]:
            if self._rank == 0:
                files.ignore(self._place, saved.name, problems[0])
            return None
        return [value for value, _ in everyone]

    @property
    def _rank(self) -> int:
        return distributed.get_rank() if has_group() else 0

    @property
    def _size(self) -> int:
        return distributed.get_world_size() if has_group() else 1

    def _gather(self, value: Any) -> list[Any]:
        """Return every rank's value, by a group of our own, since the training's may have no backend but NCCL."""
        if self._size == 1:
            return [value]
        self._group = self._group or distributed.new_group(backend="gloo")
        values: list[Any] = [None] * self._size
        distributed.all_gather_object(values, value, self._group)
        return values


def load_position(loader: Any, everyone: list[Any], rank: int | None) -> None:
    """Continue at the data position of all ranks; `everyone` has that of each rank that has saved.

    `loader` is a ThreadLoader, WorkerLoader or dataset, a DataLoader of such a dataset, or anything that loads a state of its own:
    that of the same `rank`, None if there are other ranks now. Raises ChannelError if the positions cannot be merged, or if
    accelerate has prepared the loader.
    """
    check_not_prepared(loader)
    target = loader if hasattr(loader, "load_state_dict") else loader.dataset
    is_ours = isinstance(everyone[0], dict) and {"version", "epoch", "of", "at"} <= everyone[0].keys()
    if not is_ours and rank is not None:
        target.load_state_dict(everyone[rank])
        return
    try:
        merged = merge_states(everyone)
    except ChannelError as error:
        raise ChannelError(
            f"the checkpoint has the data position of {len(everyone)} ranks, which cannot be merged: {error}",
            remedy="load without loader= to begin an epoch",
        ) from error
    target.load_state_dict(merged)
