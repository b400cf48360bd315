"""A training script as a user writes it: ranks read channels, and a checkpoint commits what was read together with its position.

SETTINGS in the environment is JSON: channels, epochs, place, every (steps between two saves), ranks, kind and size (threads or
workers per rank), and whether to shuffle. Ranks are forked here in place of torchrun, which would import torch again for each.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
import uuid
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402 - which each rank's optimizer would import, for a second
from torch import distributed, nn  # noqa: E402

from sagemaker_channels import ChannelDataset, Checkpoints, MixedDataset, ThreadLoader, WorkerLoader  # noqa: E402

SETTINGS = json.loads(os.environ["SETTINGS"])
stopped: list[int] = []


class Journal:
    """What all ranks have read, as a part of the checkpoint."""

    def __init__(self) -> None:
        self.read: list[list[Any]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"read": list(self.read)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.read = state["read"]


class Named:
    """A transform that puts the name of the channel before each line."""

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def __call__(self, sample: dict[str, Any]) -> str:
        return f"{self.channel} {sample['data'].decode()}"


def data() -> Any:
    reading: dict[str, Any] = {"seed": 5, "block": 10} if SETTINGS["shuffle"] else {}
    datasets = [ChannelDataset(name, transform=Named(name), **reading) for name in SETTINGS["channels"]]
    return datasets[0] if len(datasets) == 1 else MixedDataset(datasets)


def loader_of(dataset: Any) -> Any:
    if SETTINGS["kind"] == "threads":
        return ThreadLoader(dataset, 3, num_workers=SETTINGS["size"], collate_fn=list)
    return WorkerLoader(dataset, 3, num_workers=SETTINGS["size"], collate_fn=list)


def gathered(value: Any) -> list[Any]:
    values: list[Any] = [None] * SETTINGS["ranks"]
    distributed.all_gather_object(values, value)
    return values


def train() -> None:
    number, ranks = int(os.environ["RANK"]), SETTINGS["ranks"]
    distributed.init_process_group("gloo", f"file://{os.environ['GROUP_FILE']}", rank=number, world_size=ranks)
    dataset = data()
    loader, journal, model = loader_of(dataset), Journal(), nn.Linear(20, 20)
    optimizer = torch.optim.AdamW(model.parameters())
    with Checkpoints(SETTINGS["place"], keep=2) as checkpoints:
        parts = {"model": model, "optimizer": optimizer, "journal": journal, "loader": loader}
        step = checkpoints.load(**parts) or 0
        print("begins at step", step, flush=True)
        for epoch in range(dataset.epoch, SETTINGS["epochs"]):
            dataset.set_epoch(epoch)
            batches = iter(loader)
            while True:
                everyone = gathered((next(batches, None), bool(stopped)))
                journal.read += [[epoch, text] for batch, _ in everyone for text in batch or ()]
                if all(batch is None for batch, _ in everyone):
                    break
                step += 1
                print("step", step, flush=True)
                if any(stop for _, stop in everyone):
                    checkpoints.save(step, **parts)
                    return
                if step % SETTINGS["every"] == 0:
                    checkpoints.save(step, **parts)
    if distributed.get_rank() == 0:
        new = Path(SETTINGS["journal"]).with_suffix(".new")
        new.write_text(json.dumps(journal.read))
        new.rename(SETTINGS["journal"])


def rank(number: int) -> int:
    """Start a rank and return its process."""
    if pid := os.fork():
        return pid
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number)}
    code = 1
    try:
        signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
        train()
        code = 0
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Run the ranks; like torchrun, end all if one fails."""
    torch.set_num_threads(1)
    size = str(SETTINGS["ranks"])
    group_file = Path(SETTINGS["journal"]).with_name(f"group-{uuid.uuid4()}")  # a new one for each life
    os.environ |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_FILE": str(group_file)}
    ranks: set[int] = set()

    def stop(number: int, frame: FrameType | None) -> None:
        for pid in ranks:
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, stop)
    gc.freeze()  # so that no rank looks through all that is imported
    ranks |= {rank(number) for number in range(SETTINGS["ranks"])}
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            ranks.remove(pid)
            if status:
                stop(signal.SIGKILL, None)
                sys.exit(f"a rank ended with {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # without taking torch apart, for a second
