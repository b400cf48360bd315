"""The names that `import sagemaker_channels` offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE

ENTRYPOINTS = Path(__file__).parents[2] / "entrypoints"


def run(code: str) -> str:
    environ = {"PYTHONPATH": str(ENTRYPOINTS)}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_missing_name_raises_and_modules_are_found() -> None:
    assert run("from sagemaker_channels import sample, sources; print(sample.__name__)") == "sagemaker_channels.sample"
    code = "import sagemaker_channels as ours\ntry: ours.get_nothing\nexcept AttributeError as error: print(error)"
    assert run(code) == "module 'sagemaker_channels' has no attribute 'get_nothing'"


def test_importing_the_package_imports_no_module_of_it() -> None:
    code = "import sys, sagemaker_channels; print([name for name in sys.modules if name.startswith('sagemaker_channels.')])"
    assert run(code) == "[]"
    assert run("import sagemaker_channels; print('open_channel' in dir(sagemaker_channels))") == "True"


def test_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from sagemaker_channels import *", names)
    assert {"open_channel", "ChannelDataset", "ThreadLoader", "Checkpoints", "gather_state", "timed"} <= names.keys()


@pytest.mark.parametrize(
    "name",
    [
        "open_channel",
        "load_environment",
        "ChannelError",
        "CorruptError",
    ],
)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert run(f"import sagemaker_channels; print(sagemaker_channels.{name}.__name__)") == name


@pytest.mark.parametrize("name", ["ChannelDataset", "Checkpoints", "ThreadLoader"])
def test_torch_that_is_too_old_is_one_error_with_its_version(name: str) -> None:
    old = "import sys, types; sys.modules['torch'] = torch = types.ModuleType('torch'); torch.__version__ = '2.4.1+cpu'"
    code = f"{old}\ntry: from sagemaker_channels import {name}\nexcept ImportError as error: print(error)"
    assert run(code) == f"torch 2.4.1+cpu is too old: {name} needs torch>=2.5; use a later image"
    assert run(f"{old}\nfrom sagemaker_channels import open_channel; print(open_channel.__name__)") == "open_channel"


def test_missing_torch_is_an_error_that_names_it() -> None:
    code = "try: from sagemaker_channels import ThreadLoader\nexcept ImportError as error: print(error)"
    assert run(code) == "torch is not installed, and ThreadLoader needs it: pip install torch"  # -S hides site-packages
