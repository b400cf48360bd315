"""Loops that frameworks run over a channel, on one rank: each returns the samples that the rank has got, by epoch."""

from __future__ import annotations

import gc
import json
import os
from collections import defaultdict
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import lightning
import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from lightning.pytorch.strategies import DDPStrategy

from framework_data import BATCH, LOADERS, Seen, as_inputs, dataset_of, number_of, numbers, own_rank
from sagemaker_channels.checkpointing.checkpoints import Checkpoints
from sagemaker_channels.torch_data.loader import ThreadLoader
from sagemaker_channels.torch_data.ranks import EvenLoader, LightningLoader, gather_state

try:
    from transformers import Trainer, TrainerCallback, TrainingArguments
except ImportError:  # It needs Python 3.11.
    Trainer = TrainerCallback = object


gc.freeze()  # so that no rank looks through all that the server of ranks has imported

TRAINER: dict[str, Any] = {
    "per_device_train_batch_size": BATCH,
    "use_cpu": True,
    "report_to": [],
    "logging_steps": 10_000,
    "disable_tqdm": True,
    "remove_unused_columns": False,
    "ddp_backend": "gloo",
}


class Killed(Exception):
    """A job that ends after it has saved its state."""


def by_accelerate(root: Path, kind: str, loader: str, options: dict[str, Any]) -> Seen:
    """Read two epochs from a prepared loader."""
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
    dataset = dataset_of(root, kind)
    prepared = accelerator.prepare(LOADERS[loader](dataset))
    seen = {}
    for epoch in range(2):
        seen[epoch] = [number for batch in prepared for number in numbers(batch)]
        accelerator.wait_for_everyone()
        assert kind == "map" or dataset.epoch == epoch + 1
    return seen


class Module(lightning.LightningModule):
    """Notes the samples of its batches."""

    def __init__(self, loader: Any = None, stop: int | None = None, checkpoint: str = "") -> None:
        super().__init__()
        self.model, self.seen = torch.nn.Linear(1, 1), defaultdict[int, list[int]](list)
        self.hook, self.stop, self.checkpoint = loader, stop, checkpoint

    def training_step(self, batch: Any) -> Any:
        self.seen[self.current_epoch] += numbers(batch)
        return self.model(batch).sum()

    def validation_step(self, batch: Any) -> None:
        self.seen[-1 - self.current_epoch] += numbers(batch)

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step == self.stop:
            self.trainer.save_checkpoint(self.checkpoint)
            raise Killed

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 1e-9)

    def train_dataloader(self) -> Any:
        return self.hook


def lightning_settings(ranks: int) -> dict[str, Any]:
    """Return the settings of a quiet Trainer on the processor."""
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    strategy = DDPStrategy(process_group_backend="gloo") if ranks > 1 else "auto"
    settings = {"accelerator": "cpu", "devices": ranks, "strategy": strategy, "num_sanity_val_steps": 0}
    return {**settings, **dict.fromkeys(quiet, False)}


def by_lightning(
    root: Path,
    kind: str,
    loader: str,
    wrap: bool = True,
    by_hook: bool = False,
    resume: str | None = None,
    stop: int | None = None,
    checkpoint: str = "",
    validate: bool = False,
) -> Seen:
    """Fit two epochs, or so many steps and then save a checkpoint."""
    ranks = int(os.environ["WORLD_SIZE"])
    del os.environ["RANK"]  # Lightning sets none.
    batches: Any = LOADERS[loader](dataset_of(root, kind))
    batches = OwnLightningLoader(batches) if wrap else batches
    module = Module(batches if by_hook else None, stop, checkpoint)
    trainer = lightning.Trainer(max_epochs=2, **lightning_settings(ranks))
    validation: dict[str, Any] = {"val_dataloaders": LOADERS["plain"](dataset_of(root, kind))} if validate else {}
    try:
        trainer.fit(module, None if by_hook else batches, ckpt_path=resume, weights_only=False, **validation)
    except Killed:
        assert stop is not None
    return dict(module.seen)


class OwnLightningLoader(LightningLoader):
    """What a script makes to add something."""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(1, 1)

    def forward(self, x: Any) -> Any:
        return {"loss": self.model(x).sum()}


class NotingTrainer(Trainer):  # type: ignore[misc]
    """Notes the samples of its batches; with a loader of its own it is EvenLoader's."""

    own_loader: Any = None
    noted: list[int]

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        self.noted += numbers(inputs)
        return model(**inputs)["loss"]

    def get_train_dataloader(self) -> Any:
        return self.own_loader or super().get_train_dataloader()


class SaveLoader(TrainerCallback):  # type: ignore[misc]
    """Saves the position in the data beside each checkpoint."""

    def __init__(self, loader: Any, stop: int | None) -> None:
        self.loader, self.stop = loader, stop

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        position = self.loader.state_dict()
        if state.is_world_process_zero:
            (Path(args.output_dir) / f"checkpoint-{state.global_step}" / "loader.json").write_text(json.dumps(position))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= state.global_step == self.stop


def by_trainer(
    root: Path,
    kind: str,
    steps: int,
    output: str,
    own: bool = False,
    workers: int = 0,
    resume: str | None = None,
    stop: int | None = None,
) -> list[int]:
    """Train so many steps, or with -1 an epoch.

    With a loader of its own, `stop` ends it early with a checkpoint, from which `resume` continues.
    """
    arguments = TrainingArguments(
        output,
        max_steps=steps,
        num_train_epochs=1,
        save_strategy="steps" if stop else "no",
        save_steps=stop or 500,
        ignore_data_skip=True,
        dataloader_num_workers=workers,
        **TRAINER,
    )
    dataset = dataset_of(root, kind, as_inputs)
    trainer = NotingTrainer(model=Model(), args=arguments, train_dataset=dataset)
    trainer.noted = []
    if own:
        trainer.own_loader = EvenLoader(ThreadLoader(dataset, BATCH, num_workers=2))
        trainer.add_callback(SaveLoader(trainer.own_loader, stop))
    if resume:
        trainer.own_loader.load_state_dict(json.loads((Path(resume) / "loader.json").read_text()))
    trainer.train(resume_from_checkpoint=resume)
    return list(trainer.noted)


def by_page(text: str, root: Path, folder: Path, resume: str | None = None, stop: int | None = None) -> list[int]:
    """Run an example of the page, with what it leaves to its reader; return the samples of all steps, or of the first `stop`."""
    ranks, noted = int(os.environ["WORLD_SIZE"]), list[int]()
    module = Module(None, stop, str(folder / "lightning.ckpt"))

    def note(batch: Any) -> None:
        if stop is not None and len(noted) == stop * BATCH:
            raise Killed
        noted.extend(numbers(batch))

    class PageTrainer(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
            note(inputs)
            return model(**inputs)["loss"]

    def training_step(model: Any, optimizer: Any, batch: Any) -> None:
        note(batch)
        model(batch).sum().backward()

    settings: dict[str, Any] = {"cpu": True}
    if "lightning" in text:
        del os.environ["RANK"]  # Lightning sets none.
        settings = lightning_settings(ranks)
    elif "Trainer" in text:
        settings = {**TRAINER, "save_strategy": "steps", "save_steps": stop or 500}
    names = {
        **globals(),
        "decode": number_of,
        "module": module,
        "settings": settings,
        "last_checkpoint": resume,
        "folder": folder,
        "Trainer": PageTrainer,
        "training_step": training_step,
        "output": str(folder),
        "optimizer": None,
        "model": Model() if "Trainer" in text else torch.nn.Linear(1, 1),
    }
    os.environ["SAGEMAKER_BASE_DIR"] = str(root)
    try:
        exec(text, names)
    except Killed:
        assert stop is not None
    return noted or [number for epoch in module.seen.values() for number in epoch]


def misuse(root: Path, what: str) -> None:
    """Do what would lose or repeat samples silently, on two ranks."""
    rank = int(os.environ["RANK"])
    if what == "late process group":
        own_rank()
        iterator = iter(dataset_of(root, "objects"))
        next(iterator)
        torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
        list(iterator)
        return
    dataset = dataset_of(root, "objects")
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
    prepared = accelerator.prepare(LOADERS["plain"](dataset))
    if what == "position of a prepared loader":
        gather_state(prepared)
    elif what == "checkpoint of a prepared loader":
        with Checkpoints(root / "checkpoints") as checkpoints:
            checkpoints.save(1, loader=prepared)
    elif what == "resuming a prepared loader":
        with Checkpoints(root / "checkpoints") as checkpoints:
            checkpoints.save(1, loader=dataset)
            checkpoints.load(loader=prepared)
    elif what == "skipping batches":
        skip_first_batches(EvenLoader(LOADERS["plain"](dataset)), 1)
    elif what == "skipping batches of threads":
        skip_first_batches(LOADERS["threads"](dataset), 1)
    elif what == "position in a prepared loop":
        next(iter(prepared))
        dataset.state_dict()
    elif what == "epoch of accelerate after resuming":
        first = dataset_of(root, "objects")
        first.set_epoch(2)
        next(iter(first))
        dataset.load_state_dict(first.state_dict())
        next(iter(prepared))
    elif what == "epoch of the Trainer after resuming":
        first, dataset = (dataset_of(root, "lines", as_inputs) for _ in range(2))
        first.set_epoch(2)
        next(iter(first))
        dataset.load_state_dict(first.state_dict())
        trainer = NotingTrainer(model=Model(), args=TrainingArguments(str(root / "output"), max_steps=1, **TRAINER))
        trainer.own_loader = ThreadLoader(dataset)
        trainer.train()


def skipping(root: Path, kind: str) -> str:
    """Return what is logged while accelerate skips batches, as it does for HF's Trainer."""
    prepared = Accelerator(cpu=True).prepare(LOADERS["plain"](dataset_of(root, kind)))
    with redirect_stderr(StringIO()) as log:
        next(iter(skip_first_batches(prepared, 1)))
    return log.getvalue()


def fabric(root: Path) -> list[int]:
    """Read a ThreadLoader that Fabric has set up."""
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    loader = fabric.setup_dataloaders(LOADERS["threads"](dataset_of(root, "lines")))
    return [number for batch in loader for number in numbers(batch)]
