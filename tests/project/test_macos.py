"""A Mac, as far as Linux can play one: without /proc, mounts of our own, and what typeshed says that Python has on Linux only.

What a Mac has and Linux has not, such as file names without case and Docker Desktop, is not shown here.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import mypy
import pytest

from conftest import need
from launcher.rules.examples import laid_over_base
from patience import PATIENCE

STUBS = Path(mypy.__file__).parent / "typeshed/stdlib"
MODULES = ("os", "errno", "fcntl", "mmap", "resource", "select", "signal", "socket", "termios", "time")
# In each process: what only Linux has is gone. `_scproxy` is a module of macOS, which urllib imports there.
SITE = """
import importlib, sys, sysconfig
sysconfig.get_config_vars()  # has a file for each platform
sys.platform = "darwin"
for module, names in {missing}.items():
    for each in ("os", "posix") if module == "os" else (module,):
        for name in names:
            vars(importlib.import_module(each)).pop(name, None)
"""
SCPROXY = "_get_proxies = _get_proxy_settings = dict"
COMMANDS = """
import sys
from launcher.cli import main
for command in {commands}:
    print("$", *command, flush=True)
    try:
        main(command)
    except SystemExit as ended:
        assert not ended.code, command
"""
# Of each reader: the numbers with which its samples begin. A second loader of the last one resumes after the first batch.
TRAIN = """
import os, sys
import torch
from torch.utils.data import DataLoader
from sagemaker_channels import ChannelDataset, Checkpoints, ThreadLoader

def numbers(loader):
    return sorted(sample["data"].split()[0].decode() for batch in loader for sample in batch)

if __name__ == "__main__":
    assert (sys.platform, hasattr(os, "memfd_create"), os.path.exists("/proc/self")) == ("darwin", False, False)
    assert torch.multiprocessing.get_start_method() == "spawn"
    sources = {name: name for name in ("file", "fast", "pipe", "s3")}
    sources |= {"folder": os.environ["SM_CHANNEL_FILE"], "bucket": "s3://bucket/train/"}
    for what, channel in sources.items():
        dataset = ChannelDataset(channel, seed=1)
        kind = DataLoader if what == "s3" else ThreadLoader
        print(what, *numbers(kind(dataset, 2, num_workers=1, collate_fn=list)))
    loader = ThreadLoader(ChannelDataset("file", seed=1), 2, collate_fn=list)
    before = numbers([next(iter(loader))])
    with Checkpoints(os.environ["SM_MODEL_DIR"]) as checkpoints:
        checkpoints.save(1, model=torch.nn.Linear(1, 1), loader=loader)
    loader = ThreadLoader(ChannelDataset("file", seed=1), 2, collate_fn=list)
    with Checkpoints(os.environ["SM_MODEL_DIR"]) as checkpoints:
        assert checkpoints.load(model=torch.nn.Linear(1, 1), loader=loader) == 1
    print("resumed", *sorted(before + numbers(loader)))
"""


def names_of(statements: list[ast.stmt], platform: str) -> Iterator[str]:
    """Yield the names that a stub's statements define on a platform."""
    for each in statements:
        if isinstance(each, ast.If):
            known = {"sys": SimpleNamespace(platform=platform, version_info=sys.version_info)}
            holds = eval(compile(ast.Expression(each.test), "stub", "eval"), known)
            yield from names_of(each.body if holds else each.orelse, platform)
        elif isinstance(each, ast.FunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.AnnAssign | ast.Assign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(each, ast.ImportFrom):
            yield from (name.asname or name.name for name in each.names)


def only_on_linux(module: str) -> list[str]:
    """Return the names of a module that typeshed has for Linux and not for macOS."""
    stub = next(path for path in (STUBS / f"{module}.pyi", STUBS / module / "__init__.pyi") if path.exists())
    tree = ast.parse(stub.read_text(encoding="utf-8")).body
    return sorted({*names_of(tree, "linux")} - {*names_of(tree, "darwin")})


@pytest.fixture
def mac(tmp_path: Path) -> list[str]:
    """The words before a command that begin a process on the Mac, whose temporary folder and home are behind links."""
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none /proc && exec "$@"',
        "sh",
    ]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        need(f"needs namespaces: {tried.stderr}")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE.format(missing={module: only_on_linux(module) for module in MODULES}))
    (site / "_scproxy.py").write_text(SCPROXY)
    spec = find_spec("torch")
    assert spec and spec.origin
    # Linux finds the libraries of torch's own program by /proc.
    return [*words, "env", f"LD_LIBRARY_PATH={Path(spec.origin).parent / 'lib'}", f"PYTHONPATH={site}"]


def test_typeshed_knows_what_only_linux_has() -> None:
    found = {module: only_on_linux(module) for module in MODULES}
    assert {"memfd_create", "sched_getaffinity", "posix_fadvise", "O_DIRECT"} <= {*found["os"]}
    assert "EREMOTEIO" in found["errno"] and "F_SETPIPE_SZ" in found["fcntl"]
    assert "mkfifo" not in found["os"] and "flock" not in found["fcntl"]


def test_spec_is_planned_and_run_locally_on_a_mac(mac: list[str], tmp_path: Path) -> None:
    """Commands without AWS; then a local run, which reads all sources, has spawned workers, and resumes from a checkpoint."""
    (tmp_path / "private").mkdir()
    here = tmp_path / "link"
    here.symlink_to("private")
    folder = here / "data/s3/bucket/train"
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"{number}.txt").write_text(f"{number} {'x' * 20_000}\n")
    (here / "src").mkdir()
    (here / "src/train.py").write_text(TRAIN)
    place = {"s3_uri": "s3://bucket/train/"}
    channels = {
        "file": place,
        "fast": {**place, "input_mode": "FastFile"},
        "pipe": {**place, "input_mode": "Pipe", "content_type": "text/plain"},
        "s3": {**place, "source": "S3Connector"},
    }
    overlay = {"code": {"directory": "src", "entry_point": "train.py"}, "channels": channels}
    overlay["environment"] = {"PYTHONPATH": mac[-1].partition("=")[2]}
    (here / "job.yaml").write_text(
        laid_over_base("\n".join(f"{key}: {json.dumps(value)}" for key, value in overlay.items()))
    )
    commands = [
        ["job.yaml", "--dry-run"],
        ["advise", "data/s3/bucket/train"],
        ["peek", "data/s3/bucket/train"],
        ["lst", "make", "data/s3/bucket", "--ending", ".txt", "-o", "all.lst"],
        ["job.yaml", "--local", "--data", "data", "--name", "job"],
        ["list", "--local"],
        ["clean", "job", "--yes"],
    ]
    (tmp_path / "commands.py").write_text(COMMANDS.format(commands=commands))
    done = subprocess.run(
        [*mac, sys.executable, tmp_path / "commands.py"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    for what in ("file", "fast", "pipe", "s3", "folder", "bucket", "resumed"):
        assert f"algo-1 | {what} 0 1 2 3 4 5\n" in output, output
