"""Whatever request or file operation of a save is the last one before the process is killed, the last complete checkpoint loads."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from launcher.bundled import SCRIPTS
from launcher.local.s3_server.http_server import Answer, Request, Response
from patience import wait_for
from s3_objects import client_of
from sagemaker_channels import Checkpoints
from sagemaker_channels.errors import ChannelError
from served_bucket import served_bucket
from torch_ranks import torch_processes
from training_parts import parts

BIG = 250_000  # of a layer's width: more than one part of the client's uploads


def save(checkpoints: Checkpoints, step: int, *, width: int = 8) -> bool:
    """Save a step, and return whether it was stored; if not, the writer was killed."""
    of = parts(width, seed=step)
    of["loader"].position = step
    checkpoints.save(step, **of)
    try:
        checkpoints.wait()
    except ChannelError as error:
        assert "the process that writes checkpoints has ended with exit code -9" in str(error)
        return False
    return True


def loaded(place: str, *, width: int = 8) -> int | None:
    """The step of the checkpoint that loads, once everything in it is known to be of that step."""
    of = parts(width, seed=99)
    step = Checkpoints(place).load(**of)
    if step is not None:
        assert of["loader"].position == step
        expected = parts(width, seed=step)["model"].state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in of["model"].state_dict().items())
    return step


def writers() -> list[int]:
    """The processes that write this process's checkpoints."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, parent = (
                (folder / "cmdline").read_bytes(),
                int((folder / "stat").read_text().rpartition(")")[2].split()[1]),
            )
        except OSError:
            continue
        if parent == os.getpid() and b"sagemaker_channels.checkpointing.writer" in words:
            found.append(int(folder.name))
    return found


class Killer:
    """Kills the writer before one of its requests is served, which the store sees as a kill after the one before."""

    def __init__(self) -> None:
        self.left: int | None = None

    def around(self, answer: Answer) -> Answer:
        def watched(request: Request) -> Response:
            if self.left is None:
                return answer(request)
            self.left -= 1
            if self.left > 0:
                return answer(request)
            for process in writers():
                os.kill(process, signal.SIGKILL)
            raise ConnectionResetError

        return watched


def test_writer_killed_at_any_request_leaves_the_last_complete_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer = Killer()
    with served_bucket(tmp_path, monkeypatch, killer.around):
        with Checkpoints("s3://bucket/0") as checkpoints:
            assert save(checkpoints, 1, width=BIG)
        client, ends = client_of(os.environ["AWS_ENDPOINT_URL"]), list[int | None]()
        [stored] = [each["Key"] for each in client.list_objects_v2(Bucket="bucket", Prefix="0/")["Contents"]]
        for number in itertools.count(1):
            place = f"s3://bucket/{number}"
            client.copy_object(Bucket="bucket", Key=f"{number}{stored[1:]}", CopySource=f"bucket/{stored}")
            with Checkpoints(place, keep=1) as checkpoints:
                assert save(checkpoints, 2, width=BIG)
                killer.left = number
                save(checkpoints, 3, width=BIG)
                killed, killer.left = killer.left <= 0, None
            ends.append(loaded(place, width=BIG))
            if not killed:
                break
        client.close()
    assert len(ends) > 6 and set(ends) == {2, 3} and ends == sorted(ends, key=(2, 3).index)


KILLER = """
import os, signal, sys

FOLDER, LEFT = os.environ["KILLED_FOLDER"], [int(os.environ["KILLED_AT"])]


def count():
    LEFT[0] -= 1
    if not LEFT[0]:
        os.kill(os.getpid(), signal.SIGKILL)


def watch(event, arguments):
    makes = event == "open" and FOLDER in str(arguments[0]) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if makes or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir"):
        count()


def fsync(descriptor, original=os.fsync):
    count()
    original(descriptor)
    count()


if "sagemaker_channels.checkpointing.writer" in " ".join(sys.orig_argv):
    os.fsync = fsync
    sys.addaudithook(watch)
"""


def test_writer_killed_at_any_file_operation_leaves_the_last_complete_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python ends itself at the operation: of files and folders that it makes and removes, and around each fsync."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook/sitecustomize.py").write_text(KILLER)
    monkeypatch.setenv("KILLED_FOLDER", str(tmp_path / "places"))
    ends = []
    with Checkpoints(tmp_path / "places/0") as checkpoints:
        assert save(checkpoints, 1)
    for number in itertools.count(1):
        place = str(tmp_path / f"places/{number}")
        shutil.copytree(tmp_path / "places/0", place)
        with Checkpoints(place, keep=1) as checkpoints:
            assert save(checkpoints, 2)
            with monkeypatch.context() as patch:
                patch.setenv("PYTHONPATH", str(tmp_path / "hook"))
                patch.setenv("KILLED_AT", str(number))
                stored = save(checkpoints, 3)
            ends.append(loaded(place))
            assert save(checkpoints, 4)  # what the killed one left is no obstacle
        assert loaded(place) == 4
        assert len(list(Path(place).glob("*/*"))) == 1
        if stored:
            break
    assert len(ends) > 8 and set(ends) == {2, 3} and ends == sorted(ends, key=(2, 3).index)


def test_signal_to_the_process_group_of_the_training_does_not_reach_the_writer(tmp_path: Path) -> None:
    """Ctrl-C and torchrun send it to the group. The writer ignores it, but not while its Python starts."""
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, **parts())
        [writer] = writers()
        assert os.getpgid(writer) == os.getsid(writer) == writer


SCRIPT = """
import os, signal, sys
from training_parts import parts
from sagemaker_channels import Checkpoints
Checkpoints(sys.argv[1]).save(7, **parts())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_checkpoint_of_a_process_that_was_killed_is_stored(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environ = {"PYTHONPATH": os.pathsep.join(map(str, (SCRIPTS, Path(__file__).parents[2])))}
    assert torch_processes("script.py", "checkpoints", cwd=tmp_path, environs=[environ]).returncode == -signal.SIGKILL
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert wait_for(checkpoints.latest) == 7


def test_any_files_that_sagemaker_restores_load_a_complete_checkpoint_or_none(tmp_path: Path) -> None:
    """SageMaker copies files while they are written, in any order, and restores what it has."""
    source = tmp_path / "source"
    for step in (1, 2, 3):
        of = parts(seed=step)
        of["loader"].position = step
        with Checkpoints(source) as checkpoints:
            checkpoints.save(step, **of)
    files = sorted(path for path in source.rglob("*") if path.is_file())
    steps = [int(path.parent.name.split("-")[1]) for path in files]
    assert steps == [1, 2, 3]
    chance = random.Random(7)
    kinds: list[Callable[[bytes], bytes | None]] = [
        lambda content: content,
        lambda content: None,
        lambda content: content[: chance.randrange(len(content))],
        lambda content: content[: (cut := chance.randrange(len(content)))] + bytes(len(content) - cut),
    ]
    found = set()
    for number in range(60):
        restored = tmp_path / f"restored-{number}"
        whole = dict.fromkeys(steps, True)
        for file, step in zip(files, steps, strict=True):
            original = file.read_bytes()
            content = chance.choices(kinds, (5, 1, 1, 1))[0](original)
            whole[step] &= content == original
            if content is not None:
                target = restored / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        expected = max((step for step, complete in whole.items() if complete), default=None)
        assert loaded(str(restored)) == expected, number
        found.add(expected)
        shutil.rmtree(restored, ignore_errors=True)
    assert found == {None, 1, 2, 3}
