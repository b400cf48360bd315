"""PyPI's module `entrypoints` 0.4, which altair<5 and older Jupyter need: it works beside our folder of that name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.rules.examples import laid_over_base
from patience import PATIENCE

REPOSITORY = Path(__file__).parents[2]

# The part of the module that other packages use.
STAND_IN = """
__version__ = "0.4"

class NoSuchEntryPoint(Exception):
    pass

class EntryPoint:
    def __init__(self, name):
        self.name = name

def get_single(group, name):
    return EntryPoint(name)
"""

USER = """
import entrypoints, sagemaker_channels
from entrypoints import EntryPoint, NoSuchEntryPoint
assert isinstance(entrypoints.get_single("group", "name"), EntryPoint)
print("hosts", sagemaker_channels.load_environment().hosts, entrypoints.__version__)
"""

ARGUMENTS = {
    "job.yaml --dry-run": "TrainingJobName",
    "job.yaml --local --no-namespaces": "hosts ('algo-1',) 0.4",
}


@pytest.fixture
def path(tmp_path: Path) -> list[Path]:
    """The module path of an editable install, whose folders come after site-packages; a wheel has no folder of that name."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "entrypoints.py").write_text(STAND_IN)
    return [site, REPOSITORY, REPOSITORY / "entrypoints"]


def run(path: list[Path], folder: Path, *arguments: str) -> str:
    environ = {"PYTHONPATH": ":".join(map(str, path)), "PATH": os.environ["PATH"]}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_launch_and_jobs_work_beside_the_module(path: list[Path], tmp_path: Path, arguments: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(USER)
    image = f"environment: {{PYTHONPATH: {path[0]}}}\n"  # the module is in the image, too
    job = f"{image}code: {{directory: src, entry_point: train.py}}\nchannels: null"
    (tmp_path / "job.yaml").write_text(laid_over_base(job))
    assert ARGUMENTS[arguments] in run(path, tmp_path, "-m", "launcher.cli", *arguments.split())


@pytest.mark.parametrize("first", ["entrypoints", "launcher.api", "sagemaker_channels"])
def test_module_is_the_same_whatever_is_imported_first(path: list[Path], first: str) -> None:
    code = f"import {first}, launcher.api, sagemaker_channels, entrypoints as old\nprint(old.__file__, old.__version__)"
    assert run(path, Path("/"), "-c", code) == f"{path[0]}/entrypoints.py 0.4\n"


def test_real_module_works(tmp_path: Path) -> None:
    install = ["pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), "entrypoints==0.4"]
    if subprocess.run([sys.executable, "-m", *install], capture_output=True, timeout=PATIENCE).returncode:
        pytest.skip("the package cannot be downloaded here; the tests above use a stand-in")
    code = """
import sagemaker_channels
from entrypoints import EntryPoint, get_group_all
assert EntryPoint.from_string("json:loads", "name").load()("[1]") == [1]
print(type(get_group_all("console_scripts")).__name__, sagemaker_channels.open_channel.__name__)
"""
    assert run([REPOSITORY / "entrypoints", REPOSITORY, tmp_path], Path("/"), "-c", code) == "list open_channel\n"
