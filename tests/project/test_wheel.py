"""The wheel: what it holds, and that it works in an environment of its own, away from this checkout."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest
import yaml

import channel_specs
import launcher
from conftest import need
from patience import PATIENCE

ROOT = Path(launcher.__file__).parents[1]
LOCKED = re.compile(r"^([\w.\[\]-]+==[^\s\\]+(?: ; [^\\\n]+?)?)(?: \\)?$", re.MULTILINE)


def run(*command: str | Path, folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def bin_folder(wheel: Path) -> Path:
    """The programs of an empty environment into which the wheel is installed, with the versions of requirements.lock."""
    environment = wheel.parent / "venv"
    venv.create(environment)
    constraints = wheel.parent / "constraints.txt"
    constraints.write_text("\n".join(LOCKED.findall((ROOT / "requirements.lock").read_text())))
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin/python"]
    install = [*pip, "install", "--quiet", "--no-compile", "--constraint", constraints, wheel]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        need(f"needs a package index: {done.stderr}")
    return environment / "bin"


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_wheel_holds_packages_specs_and_licence_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    about = f"sagemaker_launch-{launcher.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {
        "launcher",
        "sagemaker_channels",
        "entrypoints",
        "channel_specs",
        about,
    }
    assert {f"{about}/licenses/LICENSE", f"{about}/licenses/NOTICE", "launcher/py.typed"} <= set(names)
    assert {f"channel_specs/{name}.yaml" for name in channel_specs.names()} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_wheel_metadata_has_version_licence_and_readme(wheel: Path) -> None:
    about = metadata(wheel)
    assert (about["Version"], about["License-Expression"]) == (launcher.__version__, "Apache-2.0")
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


def test_installed_launch_prints_version(bin_folder: Path, tmp_path: Path) -> None:
    assert run(bin_folder / "launch", "--version", folder=tmp_path) == f"launch, version {launcher.__version__}\n"


def test_installed_launch_plans_bundled_example(bin_folder: Path, tmp_path: Path) -> None:
    """A folder without the checkout; the bundled script comes from the wheel."""
    job = tmp_path / "job.yaml"
    job.write_text(run(bin_folder / "launch", "--example", "s3-file", folder=tmp_path))
    request = yaml.safe_load(run(bin_folder / "launch", "job.yaml", "--dry-run", "--name", "one", folder=tmp_path))
    assert request == launcher.plan(job, name="one").request
