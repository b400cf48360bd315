"""Commands in place of an entry point: what bash reads, the arguments, bundled scripts, the toolkit that starts boot.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from boot_container import SHOW, Container, shown
from sagemaker_channels import contract

HYPERPARAMETERS = {"lr": "-0.1", "n": "2", "text": '"a b"'}


def boot(container: Container, command: object, *options: str) -> subprocess.CompletedProcess[str]:
    return container.run(*options, "--command", json.dumps(command))


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("python train.py", "--lr -0.1 -n 2 --text|a b"),
        ("cd . && exec python train.py --first", "--first --lr -0.1 -n 2 --text|a b"),
        ('python train.py "$@" last | cat', "--lr -0.1 -n 2 --text|a b last"),
        (["python", "train.py", "$HOME && x", ""], "$HOME && x||--lr -0.1 -n 2 --text|a b"),
    ],
)
def test_command_gets_the_hyperparameters(command: object, arguments: str, tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", {"train.py": SHOW}, hyperparameters=HYPERPARAMETERS)
    argv, environ, directory = shown(boot(container, command))
    assert "|".join(argv[1:]).replace(" ", "|") == arguments.replace(" ", "|")
    assert directory == str(container.root / "code") and environ["NODE_RANK"] == "0"
    assert Path(environ[contract.HOSTFILE_VARIABLE]).read_text() == "algo-1 slots=1\n"


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        ("--name=value", ["--lr=-0.1", "-n=2", "--text=a b"]),
        ("name=value", ["lr=-0.1", "n=2", "text=a b"]),
        ("none", []),
    ],
)
def test_arguments_have_the_form(form: str, arguments: list[str], tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", {"train.py": SHOW}, hyperparameters=HYPERPARAMETERS)
    argv, environ, _ = shown(container.run("train.py", f"--arguments={form}"))
    assert argv[1:] == arguments == json.loads(environ["SM_USER_ARGS"])
    assert json.loads(environ["SM_HPS"]) == {"lr": -0.1, "n": 2, "text": "a b"}


def test_failure_in_a_pipe_fails_the_job_with_the_scripts_reason(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", {"train.py": "raise ValueError('too small')"})
    assert boot(container, "python train.py | cat").returncode == 1
    assert str(container.failure).startswith("ValueError: too small\n\nTraceback")
    container = Container(tmp_path / "other", {"train.py": "import sys; sys.exit(3)"})
    assert boot(container, "python train.py && echo never").returncode == 3
    assert container.failure == "python train.py && echo never ended with exit code 3"


def test_command_runs_a_bundled_script(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", {"other.py": ""}, hyperparameters={"help": "1"})
    finished = boot(container, "python entrypoints/read_channels.py --help", "--arguments=none")
    assert (finished.returncode, "usage: read_channels.py" in finished.stdout) == (0, True), finished.stderr


def test_toolkit_starts_boot_with_the_code_unpacked(tmp_path: Path) -> None:
    """The toolkit unpacks the code and passes the hyperparameters; what to run is in a variable."""
    container = Container(
        tmp_path / "ml", {"train.py": SHOW}, hyperparameters={**HYPERPARAMETERS, "sagemaker_program": "x"}
    )
    subprocess.run(["tar", "-xzf", container.archive, "--one-top-level=" + str(container.root / "code")], check=True)
    container.archive.unlink()
    program = container.root / "code" / contract.BUNDLE_DIR / contract.SCRIPTS_DIR / contract.BOOT_FILE
    variables = {
        contract.BOOT_ARGUMENTS_VARIABLE: json.dumps(["--command", json.dumps("python train.py")]),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(container.root / "code" / contract.BUNDLE_DIR),
    }
    finished = subprocess.run(
        [sys.executable, program, "--lr", "x"], env=variables, capture_output=True, text=True, check=False
    )
    assert shown(finished)[0][1:] == ["--lr", "-0.1", "-n", "2", "--text", "a b"]
