"""The old public module `entrypoints` and this package have one name: scripts that use either work."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from launcher.checks.examples import laid_over_base
from patience import PATIENCE

REPOSITORY = Path(__file__).parents[2]

# The part of the old module that other packages use.
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


def run(code: str, *path: Path) -> str:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={"PYTHONPATH": ":".join(map(str, path))},
        cwd="/",  # which comes first on the path
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    (tmp_path / "entrypoints.py").write_text(STAND_IN)
    return tmp_path


def test_old_modules_names_are_found(old: Path) -> None:
    code = """
        import entrypoints
        from entrypoints import EntryPoint, NoSuchEntryPoint, get_single, open_channel
        assert isinstance(entrypoints.get_single("group", "name"), EntryPoint)
        assert entrypoints.get_single is get_single
        print(open_channel.__module__)
    """
    assert run(code, REPOSITORY, old) == "entrypoints.samples.channel"


def test_our_names_come_first_and_a_missing_one_raises(old: Path) -> None:
    assert (
        run("from entrypoints import readers, sample; print(sample.__name__)", REPOSITORY, old) == "entrypoints.sample"
    )
    for path in ((REPOSITORY,), (REPOSITORY, old)):
        code = "import entrypoints\ntry: entrypoints.get_nothing\nexcept AttributeError as error: print(error)"
        assert run(code, *path) == "module 'entrypoints' has no attribute 'get_nothing'"


def test_importing_the_package_imports_no_module_of_it() -> None:
    code = "import sys, entrypoints; print([name for name in sys.modules if name.startswith('entrypoints.')])"
    assert run(code, REPOSITORY) == "[]"
    assert run("import entrypoints; print('open_channel' in dir(entrypoints))", REPOSITORY) == "True"


@pytest.mark.parametrize(
    "name",
    [
        "open_channel",
        "load_environment",
        "ChannelError",
        "CorruptError",
        "read_lst",
        "save_checkpoint",
        "load_checkpoint",
    ],
)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert run(f"import entrypoints; print(entrypoints.{name}.__name__)", REPOSITORY) == name


@pytest.mark.parametrize("installed", ["editable", "wheel"])
def test_launch_works_with_the_old_module_installed(tmp_path: Path, installed: str) -> None:
    """An editable install's folder comes after site-packages; a wheel puts module and package side by side."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "entrypoints.py").write_text(STAND_IN)
    if installed == "wheel":
        for package in ("launcher", "entrypoints", "channel_specs"):
            (site / package).symlink_to(REPOSITORY / package)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("import entrypoints; print('hosts', entrypoints.load_environment().hosts)\n")
    code = "code: {directory: src, entry_point: train.py}\nchannels: null"
    (tmp_path / "job.yaml").write_text(laid_over_base(code))
    for arguments, expected in (
        (["--version"], "launch, version"),
        (["job.yaml", "--dry-run"], "TrainingJobName"),
        (["job.yaml", "--local", "--no-namespaces"], "hosts ('algo-1',)"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "launcher.cli", *arguments],
            env={"PYTHONPATH": f"{site}:{REPOSITORY}", "PATH": os.environ["PATH"]},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_importing_the_launcher_keeps_the_old_module_that_was_imported(old: Path) -> None:
    code = """
        import entrypoints
        first = entrypoints.EntryPoint
        import launcher.api, entrypoints
        print(entrypoints.EntryPoint is first, entrypoints.open_channel.__module__)
    """
    assert run(code, old, REPOSITORY) == "True entrypoints.samples.channel"


def test_real_old_module_works(tmp_path: Path) -> None:
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path),
        "entrypoints==0.4",
    ]
    if subprocess.run(install, capture_output=True, timeout=PATIENCE).returncode:
        pytest.skip("the old package cannot be downloaded here; the tests above use a stand-in")
    code = """
        import entrypoints
        from entrypoints import EntryPoint, get_group_all
        point = EntryPoint.from_string("json:loads", "name")
        assert point.load()("[1]") == [1]
        print(type(get_group_all("console_scripts")).__name__, entrypoints.open_channel.__name__)
    """
    assert run(code, REPOSITORY, tmp_path) == "list open_channel"
