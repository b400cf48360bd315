"""Checkpoints of several ranks, replicated or sharded, load on any other number of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from format_channels import lines_channel
from sagemaker_channels import Checkpoints
from torch_ranks import free_port, torch_processes, torch_ranks

REPOSITORY = Path(__file__).parents[3]
SCRIPT = """
import json, os, sys
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from sagemaker_channels import Checkpoints

task, kind, place = sys.argv[1:]
distributed.init_process_group("gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()
torch.manual_seed(0 if task == "save" else 1)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
if kind == "fsdp2":
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (size,)))
elif kind == "ddp":
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)


class Loader:
    position = rank

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def step(number):
    # All ranks see the same images, so that any number of them computes the same.
    optimizer.zero_grad()
    images = torch.rand(6, 5, generator=torch.Generator().manual_seed(number))
    loss = model(images).square().mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return round(float(loss.detach()), 5)


loader = Loader()
with Checkpoints(place, keep=2) as checkpoints:
    if task == "save":
        for number in range(4):
            step(number)
            checkpoints.save(number, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
        random = torch.rand(1).item()
    else:
        parts = {"loader": loader} if task == "all" else {}
        assert checkpoints.load(model=model, optimizer=optimizer, scheduler=scheduler, **parts) == 3
        random = torch.rand(1).item()
losses = [step(number) for number in range(10, 13)]
found = [None] * size
distributed.all_gather_object(found, [losses, loader.position, random, scheduler.get_last_lr()])
if rank == 0:
    print(json.dumps(found), flush=True)
distributed.barrier()
os._exit(0)  # gloo's threads abort one exit in some ten
"""


DATA = """
import json, os, sys
from itertools import islice
from torch import distributed
from sagemaker_channels import ChannelDataset, Checkpoints, ThreadLoader
from sagemaker_channels.epoch.states import VERSION, sealed

distributed.init_process_group("gloo")
dataset = ChannelDataset("lines", transform=lambda sample: sample["data"].decode())
loader = ThreadLoader(dataset, 3, num_workers=int(sys.argv[1]), collate_fn=list)
with Checkpoints("checkpoints") as checkpoints:
    step = checkpoints.load(loader=loader)
    batches = [batch for batch in islice(loader, 4 if step is None else None)]
    if step is None:
        checkpoints.save(1, loader=loader)


class OfShuffledPipe:
    # Rank 0 has ended its shard of the epoch, and the others have not, so all begin it again.
    def state_dict(self):
        rank, count = distributed.get_rank(), distributed.get_world_size()
        state = {"version": VERSION, "epoch": 0, "of": {"restart": True}, "history": [], "count": count}
        at = {str(rank): {"at": [0, 0]} if rank else None}
        return sealed({**state, "at": at, "listing": {}, "turn": {}})

    def load_state_dict(self, state):
        assert list(state["at"].values()) == [{"at": [0, 0]}] * distributed.get_world_size(), state


if distributed.get_world_size() > 1:
    with Checkpoints("others") as checkpoints:
        checkpoints.save(1, loader=OfShuffledPipe())
        checkpoints.load(loader=OfShuffledPipe())
found = [None] * distributed.get_world_size()
distributed.all_gather_object(found, [text for batch in batches for text in batch])
if distributed.get_rank() == 0:
    print(json.dumps(found), flush=True)
distributed.barrier()
os._exit(0)
"""


FAILURES = """
import os, sys
import torch
from torch import distributed, nn
from sagemaker_channels import Checkpoints
from sagemaker_channels.errors import ChannelError

distributed.init_process_group("gloo")
rank = distributed.get_rank()
model = nn.Linear(2, 2)
with Checkpoints("file/of/rank-1" if rank == 1 else "checkpoints") as checkpoints:
    checkpoints.save(1, model=model)
    try:
        checkpoints.wait()
    except ChannelError as error:
        print(error, flush=True)
    checkpoints.save(2, model=model)
    if rank == 1:
        raise ValueError("of the script")
    while True:
        pass
"""


def run(folder: Path, ranks: int, *arguments: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    environ = {"PYTHONPATH": str(REPOSITORY / "entrypoints"), "SAGEMAKER_BASE_DIR": str(folder)}
    return torch_ranks(ranks, "script.py", *arguments, cwd=folder, environ=environ)


def results(done: subprocess.CompletedProcess[str]) -> list[list[Any]]:
    assert done.returncode == 0, done.stderr
    found: list[list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("kind", "others"), [("fsdp2", [(2, "ddp"), (1, "fsdp2")]), ("ddp", [(2, "fsdp2"), (1, "ddp")])]
)
def test_checkpoint_of_four_ranks_loads_on_any_number(tmp_path: Path, kind: str, others: list[tuple[int, str]]) -> None:
    place = str(tmp_path / "checkpoints")
    saved = results(run(tmp_path, 4, "save", kind, place))
    assert Checkpoints(place).latest() == 3
    files = sorted(
        re.sub(r"-2.*T.*/(.*)\.zip", r"/\1", str(file.relative_to(place))) for file in Path(place).rglob("*/*")
    )
    assert files == [f"step-{step:010}/rank-{rank}-of-4" for step in (2, 3) for rank in range(4)]
    assert results(run(tmp_path, 4, "all", kind, place)) == saved
    losses, _, _, rate = saved[0]
    for ranks, other in others:
        found = results(run(tmp_path, ranks, "model", other, place))
        assert [[each[0], each[3]] for each in found] == [[losses, rate]] * ranks, (ranks, other)


@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3)])
def test_data_position_loads_on_any_number_of_ranks(tmp_path: Path, before: int, after: int) -> None:
    """In a Pipe that SageMaker shuffles all ranks begin the epoch again, as many as before, too."""
    lines_channel(tmp_path, "lines", 12, 10)
    first = results(run(tmp_path, before, "2", script=DATA))
    assert [len(part) for part in first] == [12] * before
    rest = results(run(tmp_path, after, "3", script=DATA))
    assert sorted(text for part in [*first, *rest] for text in part) == sorted(
        f"{shard}-{number}" for shard in range(12) for number in range(10)
    )


def test_failure_of_one_rank_is_raised_on_all_and_its_own_error_ends_it(tmp_path: Path) -> None:
    """The end of the `with` block must not wait for ranks that are still training."""
    (tmp_path / "file").touch()
    done = run(tmp_path, 2, script=FAILURES)
    assert done.returncode == 1 and "ValueError: of the script" in done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and len(set(lines)) == 1
    assert re.fullmatch(
        r"the checkpoint of step 1 was not saved: rank 1: .*/rank-1-of-2\.zip cannot be written: Not a directory; .*",
        lines[0],
    )
    assert Checkpoints(str(tmp_path / "checkpoints")).latest() is None


HOSTS = """
import os, sys
from torch import distributed, nn
from sagemaker_channels import Checkpoints

distributed.init_process_group("gloo")
model = nn.Linear(2, 2)
with Checkpoints(f"{sys.argv[1]}{distributed.get_rank()}", keep=1) as checkpoints:
    if sys.argv[1] == "restored":
        assert checkpoints.load(model=model) == 2
    for step in (3, 4) if sys.argv[1] == "restored" else (1, 2):
        checkpoints.save(step, model=model)
distributed.barrier()
os._exit(0)
"""


def test_each_host_removes_what_sagemaker_restored_of_all(tmp_path: Path) -> None:
    """/opt/ml/checkpoints has a host's own files, until a restarted job gets all of them on each host."""
    (tmp_path / "script.py").write_text(HOSTS)
    environs = []
    for rank, port in enumerate([free_port()] * 2):
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(REPOSITORY / "entrypoints")}
        environs.append({**shared, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
    assert torch_processes("script.py", "own", cwd=tmp_path, environs=environs).returncode == 0
    for host in range(2):
        assert len(list(tmp_path.glob(f"own{host}/*/rank-{host}-*"))) == len(list(tmp_path.glob(f"own{host}/*/*"))) == 1
        for other in range(2):
            shutil.copytree(tmp_path / f"own{other}", tmp_path / f"restored{host}", dirs_exist_ok=True)
    assert torch_processes("script.py", "restored", cwd=tmp_path, environs=environs).returncode == 0
    for host in range(2):
        (left,) = tmp_path.glob(f"restored{host}/*/*")
        assert left.parent.name.startswith("step-0000000004-") and left.name.startswith(f"rank-{host}-of-2.")
