"""What the frameworks around a dataset or loader do with it: accelerate, HF's Trainer, Lightning and torch's own loaders.

They ask an iterable dataset nothing, and none of their hooks leaves one alone, so a dataset looks at who calls it:

- accelerate (1.15; its issues 3547 and 4199) puts an IterableDatasetShard or a DataLoaderDispatcher around every iterable dataset,
  also for HF's Trainer. Both expect the same samples on each rank and divide them. Each fetches one batch ahead.
- Lightning (2.6) fetches one batch ahead of a loader without a length, stores the loader's state of rank 0 only, and waits forever
  for a rank that has run out of batches.
- Hugging Face's datasets gives a generator (`from_generator`) to one worker only, lets `split_dataset_by_node` divide its samples
  again, and stores those of one rank as those of all (`Dataset.from_generator`). webdataset has stages that divide, too.
- A DataLoader divides `len(dataset)` by the batch size, but each of its workers may end with an incomplete batch.

Forked workers see their parent's stack. Spawned ones get what the dataset found when it was pickled.
"""

# ruff: noqa: TID253 - its name says that this file needs torch

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from io import BytesIO
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from types import FunctionType
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, get_worker_info

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources.silence import warn_once

DISPATCHER = "DataLoaderDispatcher"  # rank 0 reads for all ranks
_DIVIDERS = (DISPATCHER, "IterableDatasetShard")
_READ_ALL = "with which each rank reads all"
_DIVIDE_AGAIN = {  # among what, and the remedy
    "split_by_node": ("rank", f"leave it out, or give the ChannelDataset ranks=(0, 1), {_READ_ALL}"),
    "single_node_only": ("rank", "leave it out"),
    "Dataset.from_generator": ("rank", f"give the ChannelDataset ranks=(0, 1), {_READ_ALL}"),
    "split_by_worker": ("worker", "leave it out"),
    "num_workers": ("worker", "use num_workers=1, or the ChannelDataset itself"),
}
_ACCELERATE = "accelerate.data_loader"
_MODULES = (_ACCELERATE, "datasets.", "sagemaker_channels.", "torch.utils.data.", "torchdata.", "webdataset.")
_COUNT_EPOCHS = {  # from 0; the Trainer is in front, since it calls accelerate
    "transformers.trainer": ("HF's Trainer", "return an EvenLoader of the loader from get_train_dataloader"),
    _ACCELERATE: ("accelerate", "call set_epoch({}) of the loader that it has prepared before the loop"),
}
_FITS, _EVALUATES = ("fit_loop", "training_epoch_loop"), ("evaluation_loop", "prediction_loop")


def _callers() -> Iterator[tuple[Any, str, str]]:
    """Yield the object whose method each frame of the stack runs, or None, its module and its name, the innermost first.

    Until Python 3.12, a frame whose variables were looked at keeps them alive until it ends, such as the last batch of a loop.
    """
    frame = sys._getframe(2)
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        matters = name == "__len__" or module.startswith(_MODULES)
        yield frame.f_locals.get("self") if matters else None, module, name
        frame = frame.f_back  # type: ignore[assignment]


def divider() -> str | None:
    """Return the class of accelerate that divides among the ranks what is read here, or None if there is none."""
    names = (type(caller).__name__ for caller, module, _ in _callers() if module == _ACCELERATE)
    return next((name for name in names if name in _DIVIDERS), None)


def is_fetched_ahead() -> bool:
    """Return whether accelerate iterates here, which fetches a batch before it yields the last one."""
    return any(module == _ACCELERATE for _, module, _ in _callers())


def warn_of_skipping(dataset: Any) -> None:
    """Warn if accelerate skips batches of a dataset without a length, as for HF's Trainer, which then counts no epochs."""
    info = get_worker_info()
    if (info and info.id) or not any(
        module == _ACCELERATE and getattr(caller, "skip_batches", 0) for caller, module, _ in _callers()
    ):
        return
    try:
        len(dataset)
    except TypeError:
        warn_once(
            f"batches of epoch {dataset.epoch} are skipped up to where the job was interrupted, as HF's Trainer resumes; without a"
            " length it does not know whether that was in a later epoch, and would read samples again; return an EvenLoader of a"
            " ThreadLoader from get_train_dataloader"
        )


class _Check(ForkingPickler):
    """A pickler whose pickle is not used, so it leaves out what tensors and arrays hold, and handles, which are sent only once."""

    def reducer_override(self, each: Any) -> Any:
        if isinstance(each, FunctionType | type) and each.__module__ == "__main__":
            raise ChannelError(
                f"worker processes do not see {each.__name__!r} of this notebook or prompt",
                remedy="use a ThreadLoader, or import it from a file",
            )
        package = type(each).__module__.partition(".")[0]
        return (int, ()) if isinstance(each, Tensor) or package in ("multiprocessing", "numpy") else NotImplemented


def check_sent(*functions: Any) -> None:
    """Raise ChannelError if a worker that is not forked is sent functions of a notebook, these or its loader's."""
    if get_spawning_popen() is None or hasattr(sys.modules["__main__"], "__file__"):
        return
    of_loader = ("_collate_fn", "_worker_init_fn")
    others = [
        vars(caller).get(name) for caller, _, _ in _callers() if hasattr(caller, "__dict__") for name in of_loader
    ]
    _Check(BytesIO()).dump([functions, others])


def check_epoch(epoch: int, loaded: int) -> None:
    """Raise ChannelError if a framework counts epochs and sets an earlier one than that in which a loaded state continues."""
    modules = {module for _, module, _ in _callers()}
    for module, (name, remedy) in _COUNT_EPOCHS.items():
        if module in modules:
            raise ChannelError(
                f"{name} counts epochs itself and would begin epoch {epoch}, but the loaded state continues in epoch {loaded}",
                remedy=remedy.format(loaded),
            )


def loader_that_counts() -> DataLoader[Any] | None:
    """Return the DataLoader with several workers that asks a dataset for its length, if one does.

    Raises TypeError if it asks through something that divides the length itself.
    """
    for depth, (caller, _, name) in enumerate(_callers()):
        if name != "__len__":
            break
        if isinstance(caller, DataLoader) and caller.num_workers > 1 and caller.batch_size is not None:
            if depth > 1:  # 0 is the dataset itself.
                raise TypeError(
                    f"the number of batches of {caller.num_workers} workers is unknown, since each may add an incomplete one; use"
                    " num_workers=1 or a ThreadLoader"
                )
            return caller
    return None


def check_lightning(ranks: int) -> None:
    """Raise ChannelError if Lightning trains on batches of which it would lose some, or wait for those of another rank forever."""
    loader: Any = None  # the innermost
    for caller, module, _ in _callers():
        package, _, name = module.rpartition(".loops.")
        kinds = {kind.__name__ for kind in type(caller).__mro__}  # its module imports this one
        if "LightningLoader" in kinds or name in _EVALUATES:
            return
        loader = caller if loader is None and isinstance(caller, DataLoader) else loader
        if package in ("lightning.pytorch", "pytorch_lightning") and name in _FITS:
            if ranks > 1 or loader is None or hasattr(loader, "state_dict"):
                raise ChannelError(
                    "Lightning would store the position of rank 0 alone, one batch late, and wait forever for a rank that has run"
                    " out of batches",
                    remedy="give it sagemaker_channels.LightningLoader(loader) in place of the loader",
                )
            return


def check_not_divided_again(ranks: int, workers: int) -> None:
    """Raise ChannelError if a package iterates here that leaves out what it takes for the samples of other ranks or workers."""
    for caller, module, _ in _callers():
        dividers: set[str] = set()
        if module == "webdataset.pipeline":
            dividers = {getattr(stage, "__name__", "") for stage in getattr(caller, "pipeline", ())}
        elif module == "datasets.iterable_dataset":
            dividers = {"num_workers", *(["split_by_node"] if getattr(caller, "_distributed", None) else [])}
        elif module == "datasets.builder":
            dividers = {"Dataset.from_generator"}
        for name in dividers & _DIVIDE_AGAIN.keys():
            among, remedy = _DIVIDE_AGAIN[name]
            if (ranks if among == "rank" else workers) > 1:
                raise ChannelError(
                    f"{name} of {module.partition('.')[0]} would lose samples, since each {among} reads its own part already",
                    remedy=remedy,
                )


def check_not_skipped() -> None:
    """Raise ChannelError if accelerate skips batches of a loader here, since it would read the dataset by another one instead."""
    if any((module, name) == (_ACCELERATE, "skip_first_batches") for _, module, name in _callers()):
        raise ChannelError(
            "this loader resumes at its own position, so no batches must be skipped",
            remedy="call load_state_dict() with the position that was saved beside the checkpoint, in HF's Trainer with"
            " TrainingArguments(ignore_data_skip=True)",
        )


def check_not_flattened() -> None:
    """Raise ChannelError if DCP takes a state here: it stores one rank's, and loads of it only the keys of a fresh loader's."""
    caller = next(module for _, module, _ in _callers() if not module.startswith("sagemaker_channels."))
    if caller.startswith("torch.distributed.checkpoint"):
        raise ChannelError(
            "torch.distributed.checkpoint would load a part of the position only",
            remedy="use sagemaker_channels.Checkpoints, or give it pickle.dumps(gather_state(loader))",
        )


def check_not_prepared(loader: Any) -> None:
    """Raise ChannelError if accelerate has prepared a loader, since its state is of one rank and may be a batch ahead."""
    if type(loader).__module__ == _ACCELERATE:
        raise ChannelError(
            "a DataLoader that accelerate has prepared has no position from which all ranks can resume",
            remedy="use a ThreadLoader, which accelerate leaves as it is",
        )


def check_stateful(loader: Any) -> None:
    """Raise ChannelError if a loader does not know its position, or only that of one rank."""
    check_not_prepared(loader)
    if not hasattr(loader, "state_dict"):
        kind = type(getattr(loader, "_loader", loader)).__name__  # the loader that `timed` was given
        raise ChannelError(f"a {kind} does not know its position", remedy="use a ThreadLoader or a WorkerLoader")


def check_divided(channels: Sequence[Channel], hosts: int, divider: str, workers: int) -> None:
    """Warn that accelerate divides the samples of channels; raise ChannelError if some would be lost."""
    for channel in channels:
        name, remedy = f"channel {channel.name!r}", "use a ThreadLoader"
        is_part = channel.host_shard is not None or (hosts > 1 and channel.distribution == contract.SHARDED)
        if is_part or channel.mode == "Pipe":
            raise ChannelError(
                f"{name}: accelerate divides what each rank reads among all ranks, but a rank cannot read the whole channel",
                remedy=remedy,
            )
        if workers > 1 and divider == DISPATCHER:
            raise ChannelError(
                f"{name}: accelerate drops samples of the incomplete batches with which {workers} workers end",
                remedy=f"use num_workers=1, or {remedy}",
            )
        warn_once(
            f"{name}: accelerate divides its samples among the ranks after they are read, so one rank reads them for all, or each"
            f" reads all of them; to read only each rank's, {remedy}"
        )


def check_sampler(ranks: int, local_ranks: int) -> None:
    """Raise ChannelError if a sampler divides one host's objects among the ranks of all hosts, which would leave some unread."""
    for caller, module, _ in _callers():
        divided = 1
        if isinstance(caller, DistributedSampler):
            divided = caller.num_replicas
        elif module == _ACCELERATE and type(caller).__name__ == "BatchSamplerShard":
            divided = caller.num_processes
        if divided > local_ranks:
            raise ChannelError(
                f"each host has other objects (ShardedByS3Key), but they are divided among all {ranks} ranks, so that"
                " some are never read",
                remedy=f"divide them among the {local_ranks} of this host:"
                " DistributedSampler(dataset, num_replicas=LOCAL_WORLD_SIZE, rank=LOCAL_RANK), or use a ChannelDataset",
            )
