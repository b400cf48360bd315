"""boot.py as the container's first program: what it runs, what the script sees, and how it ends."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

import boot
from boot_container import SHOW, Container, shown
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.start.entry_point import StartError, wait_for_hosts


def test_constants_of_boot_equal_the_contracts() -> None:
    names = ("BASE_DIR_VARIABLE", "CODE_ARCHIVE", "CODE_DIR", "BUNDLE_DIR", "LIBRARY", "FAILURE_FILE")
    assert {name: getattr(boot, name) for name in names} == {name: getattr(contract, name) for name in names}
    place = Path(contract.DATA_DIR, contract.CODE_CHANNEL, contract.BOOT_FILE)
    assert len(place.parents) == 4  # boot.py finds the root by its own place


def test_script_gets_hyperparameters_as_arguments(tmp_path: Path) -> None:
    script = (
        "import argparse, helper\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--learning-rate', type=float)\n"
        "parser.add_argument('-b', type=int)\n"
        "print(parser.parse_args(), helper.NAME)\n"
    )
    code = {"sub/train.py": script, "helper.py": "NAME = 'found'"}
    container = Container(tmp_path / "ml", code, hyperparameters={"learning-rate": "1e-3", "b": "64"})
    finished = container.run("sub/train.py")
    assert (finished.returncode, finished.stdout) == (0, "Namespace(learning_rate=0.001, b=64) found\n")
    assert container.failure is None


def test_script_gets_arguments_variables_and_directory(tmp_path: Path) -> None:
    channel = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    channels = {"train": channel, contract.CODE_CHANNEL: channel}
    container = Container(tmp_path / "ml", {"train.py": SHOW}, hyperparameters={"a": "1"}, inputdataconfig=channels)
    finished = container.run("train.py", PYTHONPATH="/else/where", MASTER_PORT="1", SM_HP_A="x", MINE="kept")
    arguments, environ, directory = shown(finished)
    root = container.root
    assert (arguments, directory) == (["train.py", "-a", "1"], str(root / "code"))
    assert environ["SM_CHANNEL_TRAIN"] == str(root / "input/data/train")
    assert environ["SM_USER_ENTRY_POINT"] == "train.py"
    assert Path(environ["SM_MODEL_DIR"]).is_dir() and Path(environ["SM_OUTPUT_DATA_DIR"]).is_dir()
    assert (environ["SM_CHANNELS"], environ["SM_HP_A"], environ["MINE"]) == ('["train"]', "1", "kept")
    assert (environ["MASTER_ADDR"], environ["MASTER_PORT"]) == ("algo-1", "1")  # the job's own Environment wins
    assert environ[contract.BASE_DIR_VARIABLE] == str(root)
    assert environ["PYTHONPATH"].split(":") == [str(root / "code"), str(root / "launcher_bundle"), "/else/where"]


def test_argument_style_json_reaches_the_script(tmp_path: Path) -> None:
    parameters = {"flag": "true", "b": '{"x": [1]}'}
    container = Container(tmp_path / "ml", {"train.py": SHOW}, hyperparameters=parameters)
    arguments, environ, _ = shown(container.run("train.py", "--argument-style", "json"))
    assert arguments[1:] == ["--flag", "true", "--b", '{"x": [1]}']
    assert (environ["SM_HP_B"], environ["SM_HPS"]) == ('{"x": [1]}', '{"flag": true, "b": {"x": [1]}}')


ODD = {
    "quote": 'it\'s "so"',
    "dollar": "$HOME `id` $(id) %s ~ * \\",
    "lines": "one\ntwo\r\n",
    "accent": "Zürich 東京 🙂",
    "empty": "",
    "dash": "--flag",
}


@pytest.mark.parametrize("entry_point", ["train.py", "train.sh"])
def test_odd_characters_in_hyperparameters_are_preserved(entry_point: str, tmp_path: Path) -> None:
    code = {"train.py": SHOW, "train.sh": f'exec "{sys.executable}" train.py "$@"'}
    container = Container(tmp_path / "ml", code, hyperparameters=ODD)
    arguments, environ, _ = shown(container.run(entry_point, LC_ALL="C.UTF-8"))
    assert arguments[1:] == [part for name, value in sorted(ODD.items()) for part in (f"--{name}", value)]
    assert {name: environ[f"SM_HP_{name.upper()}"] for name in ODD} == ODD
    assert json.loads(environ["SM_HPS"]) == ODD


@pytest.mark.parametrize(
    ("name", "content", "arguments"),
    [
        ("executable train", f"#!{sys.executable}\n{SHOW}", ["./executable train", "-n", "a b"]),
        ("own.sh", f"#!{sys.executable}\n{SHOW}", ["./own.sh", "-n", "a b"]),  # by what its first line names
        (
            "plain",
            f'w=(a b)\nexec {sys.executable} -c "{SHOW.strip()}" "${{w[1]}}" "$@"',
            ["-c", "b", "-n", "a b"],
        ),  # by bash
    ],
)
def test_script_of_any_language_can_be_the_entry_point(
    name: str, content: str, arguments: list[str], tmp_path: Path
) -> None:
    container = Container(tmp_path / "ml", {name: content}, hyperparameters={"n": "a b"})  # not executable yet
    passed, environ, directory = shown(container.run(name))
    assert (passed, directory, environ["SM_USER_ENTRY_POINT"]) == (arguments, str(container.root / "code"), name)


def test_options_in_a_shebang_line_are_applied(tmp_path: Path) -> None:
    finished = Container(tmp_path / "ml", {"train.sh": "#!/bin/sh -e\nfalse\necho went on"}).run("train.sh")
    assert (finished.returncode, finished.stdout) == (1, "")


def test_binary_can_be_the_entry_point(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", {"train.py": ""}, hyperparameters={"name": "value"})
    echo = shutil.which("echo")
    assert echo is not None
    with tarfile.open(container.archive, "w:gz") as tar:
        tar.add(echo, "train")
        tar.add(Path(contract.__file__).parent, f"{contract.BUNDLE_DIR}/{contract.LIBRARY}")
    assert container.run("train").stdout == "--name value\n"


def test_variable_that_is_too_long_or_misnamed_is_left_out(tmp_path: Path) -> None:
    parameters = {f"p{number}": "x" * 2500 for number in range(60)} | {"a=b": "1"}
    container = Container(tmp_path / "ml", {"train.py": SHOW}, hyperparameters=parameters)
    finished = container.run("train.py")
    _, environ, _ = shown(finished)
    assert environ["SM_HP_P0"] == "x" * 2500
    assert {"SM_HPS", "SM_TRAINING_ENV", "SM_HP_A=B", "SM_HP_A"} & set(environ) == set()
    assert "'SM_HPS' is left out" in finished.stderr
    assert "xxx" not in finished.stderr  # values may be secrets


def test_bundled_script_runs_with_the_library(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", {"notes.txt": ""})
    bundle = tmp_path / "ml-bundle"  # a bundle with one script more, so that this test depends on no other script
    (bundle / "entrypoints").mkdir(parents=True)
    (bundle / "entrypoints" / "show.py").write_text("import sagemaker_channels.contract\n" + SHOW)
    archive = container.archive
    with tarfile.open(archive) as tar:
        members = [(member, tar.extractfile(member)) for member in tar.getmembers()]
        with tarfile.open(archive.with_suffix(".new"), "w:gz") as new:
            for member, content in members:
                new.addfile(member, content)
            new.add(bundle, contract.BUNDLE_DIR)
    archive.with_suffix(".new").rename(archive)
    arguments, environ, _ = shown(container.run("entrypoints/show.py"))
    assert arguments == [str(container.root / "launcher_bundle/entrypoints/show.py")]
    assert environ["SM_USER_ENTRY_POINT"] == "entrypoints/show.py"


def test_code_folder_holds_only_the_users_files(tmp_path: Path) -> None:
    script = (
        "import os, sagemaker_channels; print(sorted(os.listdir()), sagemaker_channels.load_environment().current_host)"
    )
    container = Container(tmp_path / "ml", {"train.py": script, "sub/data.txt": ""})
    for _ in range(2):  # a container that is started again finds the bundle of its first start
        finished = container.run("train.py")
        assert (finished.returncode, finished.stdout) == (0, "['sub', 'train.py'] algo-1\n"), finished.stderr


def test_user_files_named_like_modules_do_not_break_the_start(tmp_path: Path) -> None:
    broken = "raise RuntimeError('the wrong module')"
    code = {"train.py": "print('ran')"} | dict.fromkeys(("json.py", "sagemaker_channels.py", "signal.py"), broken)
    finished = Container(tmp_path / "ml", code).run("train.py")
    assert (finished.returncode, finished.stdout) == (0, "ran\n"), finished.stderr


@pytest.mark.parametrize(
    ("script", "exit_code", "failure"),
    [
        ("print('fine')", 0, None),
        ("raise ValueError('why')", 1, "ValueError: why\n\nTraceback (most recent call last):\n"),
        ("import sys; sys.exit(3)", 3, "train.py ended with exit code 3"),
        ("import sys; open('../output/failure', 'w').write('own'); sys.exit(4)", 4, "own"),
    ],
)
def test_exit_code_and_failure_file_are_the_scripts(
    script: str, exit_code: int, failure: str | None, tmp_path: Path
) -> None:
    container = Container(tmp_path / "ml", {"train.py": script})
    (container.root / "output").mkdir()
    assert container.run("train.py").returncode == exit_code
    assert container.failure is None if failure is None else str(container.failure).startswith(failure)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing.py"], "entry point 'missing.py' is not in the code"),
        (["entrypoints/missing.py"], "entry point 'entrypoints/missing.py' is not in the code"),
        (["../../input/data/launcher_code/boot.py"], "is not a path inside the code"),
        (["train.py", "--requirements", "missing.txt"], "requirements 'missing.txt' are not in the code"),
        (["crlf"], "crlf has Windows line ends"),
        (["nowhere"], "nowhere is to be run by /no/such/python, which is not here"),
        (["--command", '["no-such-launcher", "train.py"]'], "no-such-launcher cannot be started: No such file"),
        (["--command", "torchrun train.py"], "--command is not JSON"),
        (["train.py", "--launcher", "torchrun"], "unrecognized arguments: --launcher torchrun"),
        ([], "expected an entry point or --command"),
    ],
)
def test_entry_point_that_cannot_start_is_a_one_line_error(arguments: list[str], reason: str, tmp_path: Path) -> None:
    code = {
        "train.py": "print('never')",
        "train.sh": "echo never",
        "crlf": "#!/bin/sh\r\n",
        "nowhere": "#!/no/such/python",
    }
    container = Container(tmp_path / "ml", code)
    finished = container.run(*arguments)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert reason in str(container.failure)
    assert finished.stderr == f"boot: {container.failure}\n" and finished.stderr.count("\n") == 1


def test_damaged_container_file_is_named(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", {"train.py": "print('never')"}, hyperparameters=[1])
    assert container.run("train.py").returncode == 1
    assert "hyperparameters.json: expected a JSON object, got a list" in str(container.failure)
    archive = container.archive
    archive.write_bytes(archive.read_bytes()[:-100])
    assert container.run("train.py").returncode == 1
    assert "code.tar.gz is damaged" in str(container.failure)


WRITE = "import os, sys; os.makedirs(os.path.dirname(sys.argv[2]), exist_ok=True); open(sys.argv[2], 'wb').write(b'12345')\n"


@pytest.mark.parametrize("path", ["./model.pt", "results/checkpoint-5/model.safetensors", "{root}/models/best.pth"])
def test_model_outside_of_the_model_folder_is_named_with_the_remedy(path: str, tmp_path: Path) -> None:
    root = tmp_path / "ml"
    container = Container(
        root, {"train.py": WRITE, "old.pt": "of the code"}, hyperparameters={"p": path.format(root=root)}
    )
    finished = container.run("train.py")
    lost = Path(root / "code", path.format(root=root))
    assert (finished.returncode, lost.read_bytes()) == (0, b"12345")
    assert f"boot: warning: {root}/model is empty, so this host has no model" in finished.stderr
    assert f"is lost: {lost} (5 bytes); save the model below os.environ['SM_MODEL_DIR']" in finished.stderr


@pytest.mark.parametrize("name", ["model/model.pt", "checkpoints/last.ckpt", "output/data/model.pt", "code/notes.txt"])
def test_what_sagemaker_keeps_draws_no_warning(name: str, tmp_path: Path) -> None:
    root = tmp_path / "ml"
    container = Container(root, {"train.py": WRITE, "old.pt": "of the code"}, hyperparameters={"p": str(root / name)})
    (root / "checkpoints").mkdir()  # as SageMaker does for a checkpoint_config
    finished = container.run("train.py")
    assert (finished.returncode, finished.stderr, (root / name).read_bytes()) == (0, "", b"12345")


def test_checkpoints_without_a_checkpoint_config_are_reported_lost(tmp_path: Path) -> None:
    root = tmp_path / "ml"
    container = Container(root, {"train.py": WRITE}, hyperparameters={"p": str(root / "checkpoints/last.pt")})
    finished = container.run("train.py")
    assert finished.stderr == (
        f"boot: warning: {root}/checkpoints did not exist before the script, so this job seems to have no checkpoint_config, and 1"
        " file(s) there are lost; add checkpoint_config: {s3_uri: s3://bucket/prefix} to the spec\n"
    )


def test_unresolved_host_is_named() -> None:
    with pytest.raises(StartError, match=r"^no-such-host\.invalid: the name did not resolve"):
        wait_for_hosts(["localhost", "no-such-host.invalid"], 0)


def test_sigterm_while_waiting_for_hosts_ends_the_start(tmp_path: Path) -> None:
    resources = {"current_host": "algo-1.invalid", "hosts": ["algo-1.invalid", "algo-2.invalid"]}
    container = Container(tmp_path / "ml", {"train.py": "print('never')"}, resourceconfig=resources)
    process = container.start("--command", '"torchrun train.py"')
    assert process.stdout is not None
    assert process.stdout.readline() == "boot: waiting for algo-1.invalid, algo-2.invalid\n"
    process.terminate()
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output, errors) == (128 + 15, "", "")
