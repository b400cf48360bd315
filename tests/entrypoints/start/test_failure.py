"""The first 1,024 characters of output/failure say why a training failed: the exception first, then what fits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launcher.jobs.causes import headline
from sagemaker_channels import contract
from sagemaker_channels.start.failure import failure_text, fit_to_limit, how_it_ended, own_frame, write_failure


def stderr_of(script: str, folder: Path) -> str:
    """What Python itself writes when a script fails."""
    (folder / "train.py").write_text(script)
    command = [sys.executable, "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(
    ("script", "first"),
    [
        ("raise ValueError('too many\\nchannels')", "ValueError: too many"),
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("import json\njson.loads('{')", "json.decoder.JSONDecodeError: Expecting property name"),
        ("class Own(Exception): pass\nraise Own", "Own"),
        ("def f():\n    class E(Exception): pass\n    raise E(1)\nf()", "__main__.f.<locals>.E: 1"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e", "KeyError: 'k'"),
        ("def f(:\n    pass", "SyntaxError: invalid syntax"),
        ("import sys\nsys.stderr.write('\\r 10%\\r 20%')\nraise ValueError('in a bar')", "ValueError: in a bar"),
        ("import os\nos.write(2, b'Warning: a\\n' * 3000)\nassert 0, 'far down'", "AssertionError: far down"),
    ],
)
def test_failure_begins_with_the_exception_before_its_traceback(script: str, first: str, tmp_path: Path) -> None:
    text = failure_text("train.py", 1, stderr_of(script, tmp_path))
    head, _, rest = text.partition("\n\n")
    assert head.removeprefix("__main__.").startswith(first.removeprefix("__main__."))
    assert rest.startswith(("Traceback (most recent call last):\n", '  File "')) and head in rest


def test_sample_of_a_failed_transform_is_in_the_first_line(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3] / "entrypoints")!r})
from sagemaker_channels.epoch.transformed import add_key_note
try:
    raise OSError("Truncated File Read")
except OSError as error:
    add_key_note(error, "cat/7.jpg", "train", "; the next one is sample 0 of block 1")
    raise
"""
    first = failure_text("train.py", 1, stderr_of(script, tmp_path)).partition("\n")[0]
    note = "in the transform of a sample of channel 'train' with the key 'cat/7.jpg'"
    assert first == f"OSError: Truncated File Read ({note})"


def test_sample_of_an_earlier_failure_is_not_in_the_first_line() -> None:
    note = "in the transform of a sample of channel 'train' with the key 'a'"
    shown = f"""Traceback (most recent call last):
OSError: cut
{note}

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
KeyError: 'x'
"""
    assert failure_text("train.py", 1, shown).partition("\n")[0] == "KeyError: 'x'"


def test_message_of_sys_exit_is_in_the_first_line(tmp_path: Path) -> None:
    text = failure_text(
        "train.py", 1, stderr_of("import sys\nprint('slow', file=sys.stderr)\nsys.exit('no image')", tmp_path)
    )
    assert text == "train.py ended with exit code 1: no image\n\nslow"
    assert failure_text("train.py", 1, "no image\n") == "train.py ended with exit code 1: no image"


def test_exception_before_an_abort_at_exit_is_the_reason(tmp_path: Path) -> None:
    script = "import ctypes\nclass End:\n    def __del__(self): self.abort()\n"
    script += "end = End()\nend.abort = ctypes.CDLL(None).abort\nraise ValueError('too many')"  # as gloo's threads do
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -6
    said = "terminate called without an active exception\n"
    assert failure_text("train.py", 134, done.stderr + said).startswith("ValueError: too many\n\nTraceback (most")
    other = failure_text("train.py", 134, done.stderr + "[rank0] a watchdog saw an operation time out\n" + said)
    assert other.startswith("train.py was ended by SIGABRT (exit code 134)\n\nTraceback")


def test_exception_before_an_abort_under_mpirun_is_that_of_the_rank_that_it_names() -> None:
    stderr = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/ml/code/train.py", line 11, in <module>
[rank1]: ValueError: too many
terminate called without an active exception
[rank0]: Traceback (most recent call last):
[rank0]: RuntimeError: Connection closed by peer
--------------------------------------------------------------------------
prterun noticed that process rank 1 with PID 28601 on node algo-1 exited on
signal 6 (Aborted).
--------------------------------------------------------------------------
"""
    assert failure_text("mpirun", 134, stderr).startswith("ValueError: too many\n\nTraceback (most recent")
    killed = failure_text("mpirun", 137, stderr.replace("signal 6 (Aborted)", "signal 9 (Killed)"))
    assert killed.startswith("rank 1 of mpirun was ended by SIGKILL (exit code 137); the machine may")


def test_long_traceback_is_cut_at_its_beginning(tmp_path: Path) -> None:
    script = "def deep(n):\n    raise ValueError('x' * 300) if n == 0 else deep(n - 1) or None\ndef a(n):\n    b(n)\n"
    script += "def b(n):\n    a(n - 1) if n else deep(0)\na(20)\n"
    text = failure_text("train.py", 1, stderr_of(script, tmp_path))
    head, _, rest = text.partition("\n\n")
    assert head == "ValueError: " + "x" * 300
    assert rest.startswith("...\n  ") and rest.endswith(head)
    assert 800 < len(text) <= contract.FAILURE_LIMIT


def test_cut_traceback_begins_with_the_last_frame_of_the_script() -> None:
    library = "".join(
        f'  File "/opt/conda/lib/python3.12/site-packages/torch/nn/module.py", line {n}, in call\n    return forward()\n'
        for n in range(40)
    )
    own = '  File "/opt/ml/code/nets/train.py", line 88, in main\n    loss = net(images)\n'
    stderr = f"Traceback (most recent call last):\n{own}{library}ValueError: too many channels\n"
    text = failure_text("train.py", 1, stderr)
    assert text.startswith(f"ValueError: too many channels\n\n{own}...\n  ")
    assert text.endswith("\nValueError: too many channels") and 800 < len(text) <= contract.FAILURE_LIMIT
    assert own_frame(text) == own_frame(stderr) == "nets/train.py:88, in main: loss = net(images)"
    assert headline(f"AlgorithmError: {text}") == "AlgorithmError: ValueError: too many channels"


@pytest.mark.parametrize(
    "reason", ["", "ClientError: no such bucket", 'ValueError: x\n\n  File "<frozen runpy>", line 1, in run']
)
def test_reason_without_a_frame_of_the_script_has_none(reason: str) -> None:
    assert own_frame(reason) is None


def test_message_longer_than_the_limit_keeps_its_beginning() -> None:
    stderr = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: ' + "".join(map(str, range(2000)))
    text = failure_text("train.py", 1, stderr)
    assert text.startswith("ValueError: 0123") and len(text) == contract.FAILURE_LIMIT


@pytest.mark.parametrize(
    ("exit_code", "first"),
    [
        (2, "train.py ended with exit code 2"),
        (137, "train.py was ended by SIGKILL (exit code 137); the machine may have run out of memory"),
        (139, "train.py was ended by SIGSEGV (exit code 139)"),
        (255, "train.py ended with exit code 255"),
    ],
)
def test_failure_without_an_exception_shows_the_end_of_stderr(exit_code: int, first: str) -> None:
    # A traceback that the script caught and logged is not the reason: Python would have ended with 1.
    caught = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nOSError: caught\n'
    text = failure_text("train.py", exit_code, caught + "usage: train.py\ntrain.py: error: unrecognized arguments: --x")
    assert text.startswith(f"{first}\n\n") and text.endswith("error: unrecognized arguments: --x")
    assert failure_text("train.py", exit_code, "") == first


# As torch 2.13 writes it; `{code}` is the worker's exit code.
TORCHRUN = """\
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/opt/ml/code/train.py", line 9, in <module>
[rank0]:   File "/opt/ml/code/train.py", line 12, in <module>
[rank1]:     raise ValueError("the reason")
[rank1]: ValueError: the reason
[rank0]:     dist.barrier()
[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:1234
E1121 04:00:00.000000 77 torch/distributed/elastic/multiprocessing/api.py:1082] failed (exitcode: 1) local_rank: 1 (pid: 80)
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/lib/torch/distributed/run.py", line 1010, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-11-21_04:00:00
  host      : algo-1
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 80)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def test_failure_of_torchrun_is_that_of_the_first_failed_rank() -> None:
    text = failure_text("train.py", 1, TORCHRUN.format(code=1))
    assert text == (
        "ValueError: the reason\n\nTraceback (most recent call last):\n"
        '  File "/opt/ml/code/train.py", line 9, in <module>\n'
        '    raise ValueError("the reason")\nValueError: the reason'
    )


def test_failure_of_torchrun_without_a_process_group_is_the_workers() -> None:
    unmarked = "\n".join(line for line in TORCHRUN.format(code=1).split("\n") if "rank0" not in line)
    text = failure_text("train.py", 1, unmarked.replace("[rank1]: ", ""))
    assert text.startswith("ValueError: the reason\n\nTraceback") and "elastic" not in text


def test_killed_worker_of_torchrun_is_named() -> None:
    text = failure_text("train.py", 1, "loading\n" + TORCHRUN[TORCHRUN.index("E1121") :].format(code=-9))
    assert text == (
        "rank 1 of train.py was ended by SIGKILL (exit code 137); the machine may have run out of memory\n\nloading"
    )


def test_fitted_text_keeps_the_headline_within_the_limit() -> None:
    for length in (0, 10, 1019, 1020, 1021, 1022, 1023, 1024, 2000):
        text = fit_to_limit("h" * length, "\n".join(["detail" * 10] * 100))
        assert len(text) <= contract.FAILURE_LIMIT
        assert text.startswith("h" * min(length, contract.FAILURE_LIMIT))


def test_every_exit_code_has_a_description() -> None:
    for exit_code in range(1, 256):
        assert str(exit_code) in how_it_ended(exit_code)


def test_failure_file_of_the_script_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "output" / "failure"
    write_failure(path, "ours \udcff")
    assert path.read_text(encoding="utf-8") == "ours ?"
    path.write_text("the script's")
    write_failure(path, "ours")
    assert path.read_text() == "the script's"


def test_failure_that_cannot_be_written_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As on a full disk, which may be why the script has failed."""
    (tmp_path / "output").touch()
    write_failure(tmp_path / "output/failure", "No space left\n\nTraceback")
    reason = "File exists; the reason is: No space left\n"
    assert capsys.readouterr().err == f"boot: {tmp_path}/output/failure cannot be written: {reason}"
