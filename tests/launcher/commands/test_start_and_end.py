"""How the command starts and ends: `python -m launcher`, Ctrl-C during imports, and closed output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from launcher.rules.examples import BASE
from patience import PATIENCE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(BASE)
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)


def test_python_m_launcher_is_launch(folder: Path) -> None:
    arguments = ("job.yaml", "--dry-run", "--name", "one")
    done = run(folder, "-m", "launcher", *arguments)
    assert (done.stdout, done.returncode) == (run(folder, "-m", "launcher.cli", *arguments).stdout, 0)
    assert run(folder, "-m", "launcher").stderr.startswith("Usage: launch ")


def test_closed_pipe_prints_no_error(folder: Path) -> None:
    command = f"{sys.executable} -m launcher.cli --schema | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""


ENTRY = re.search(
    r'^launch = "([\w.]+):(\w+)"$',
    (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"),
    re.MULTILINE,
)
INTERRUPT = """\
import os, signal, sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == {module!r}:
        os.kill(os.getpid(), signal.{number})

signal.signal(signal.SIGINT, signal.{disposition})
sys.addaudithook(interrupt)
sys.argv = ["launch", "-", "--dry-run"]
from {entry} import {function}
{function}()
"""


@pytest.mark.parametrize("module", ["launcher.cli", "click", "launcher.errors", "launcher.commands.options", "yaml"])
def test_ctrl_c_during_an_import_ends_quietly_with_130(module: str) -> None:
    assert_ends_quietly(module=module, number="SIGINT", disposition="default_int_handler")


def test_sigterm_ends_a_command_that_ignores_sigint() -> None:
    """As one that a script starts by `&`; then `kill` is what is heard."""
    assert_ends_quietly(module="yaml", number="SIGTERM", disposition="SIG_IGN")


def assert_ends_quietly(**parts: str) -> None:
    assert ENTRY is not None
    program = INTERRUPT.format(**parts, entry=ENTRY[1], function=ENTRY[2])
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, text=True, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        code = process.wait(PATIENCE)
        out, err = process.communicate()
    assert (code, out) == (130, "")
    assert err.strip() in ("", "interrupted")
