"""A ThreadLoader's threads at the end of the process."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import termios
import threading
from pathlib import Path

import pytest

from faulty_s3 import Store
from forked import TORCH, Forked
from patience import PATIENCE, wait_for
from pipe_feeder import make_root
from sagemaker_channels import contract
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader

REPOSITORY = Path(__file__).parents[3]

# Exit handlers run in reverse order: first the loader's.
READ = """
import atexit, sys, threading
atexit.register(lambda: print("left:", sum(thread.name == "loader" and thread.is_alive() for thread in threading.enumerate())))
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
channel, readers = [*sys.argv[1:], "train", "1"][:2]
for batch in ThreadLoader(ChannelDataset(channel), num_workers=2, readers=int(readers), collate_fn=list):
    print("read", len(batch[0]["data"]), flush=True)
"""


@pytest.mark.parametrize("silent", ["/bucket/b", "/bucket/"], ids=["object", "listing"])
def test_ctrl_c_with_a_silent_store_ends_the_process(store: Store, tmp_path: Path, silent: str) -> None:
    (store.folder / "a").write_bytes(b"a")
    (store.folder / "b").write_bytes(b"b")
    store.hushed.add(silent)
    asked = threading.Event()
    store.on_silence = asked.set
    entry = {"channel": "train", "s3_uri": "s3://bucket/", "style": "iterable"}
    variables = {contract.READ_WAIT_VARIABLE: "60", f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)}
    with _reading(tmp_path, variables) as process:
        assert asked.wait(PATIENCE)
        _interrupt(process)


@pytest.mark.parametrize(("readers", "written"), [(1, b""), (2, b""), (2, b"a\nb\n")])
def test_ctrl_c_with_a_silent_pipe_ends_the_process(tmp_path: Path, readers: int, written: bytes) -> None:
    make_root(tmp_path)
    os.mkfifo(fifo := tmp_path / contract.DATA_DIR / "lines_0")
    with _reading(tmp_path, {}, "lines", str(readers)) as process, fifo.open("wb", buffering=0) as feeder:
        feeder.write(written)
        wait_for(lambda: fcntl.ioctl(feeder, termios.FIONREAD, bytes(4)) == bytes(4))
        _interrupt(process)


def _reading(root: Path, variables: dict[str, str], *words: str) -> Forked:
    environ = {**os.environ, contract.BASE_DIR_VARIABLE: str(root), **variables}
    return Forked(TORCH, ["-c", READ, *words], environ=environ, cwd=REPOSITORY)


def _interrupt(process: Forked) -> None:
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in errors
    assert errors.count("Traceback") == 1
    assert output.splitlines()[-1] == "left: 0"
    assert process.returncode == -signal.SIGINT


def test_ctrl_c_while_threads_are_started_ends_those_that_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"a")
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_two(thread: threading.Thread) -> None:
        if thread.name == "loader":
            if len(started) == 2:
                raise KeyboardInterrupt
            started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    loader = ThreadLoader(ChannelDataset(str(tmp_path)), num_workers=4, collate_fn=list)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    for thread in started:
        thread.join(PATIENCE)
        assert not thread.is_alive()


# The second sample's thread is at work when Python exits. The clock runs so fast that no limited wait would be long enough.
HELD = """
import threading, time
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
begun = threading.Event()
def transform(sample):
    if sample["data"] == b"b":
        begun.set()
        time.sleep(0.5)
        print("done", flush=True)
    return sample["data"]
batches = iter(ThreadLoader(ChannelDataset("./data", transform=transform), num_workers=1, collate_fn=list))
print(next(batches), flush=True)
begun.wait()
time.monotonic = lambda: 1e6 * time.perf_counter()
"""


def test_exit_waits_however_long_a_thread_makes_a_batch(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in "abcdef":
        (tmp_path / "data" / name).write_text(name)
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY / "entrypoints")}
    with Forked(TORCH, ["-c", HELD], environ=environ, cwd=tmp_path) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output.split(), errors) == (0, ["[b'a']", "done"], "")
