"""A ThreadLoader's threads at the end of the process."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from faulty_s3 import Store
from forked import TORCH, Forked
from patience import PATIENCE
from sagemaker_channels import contract

REPOSITORY = Path(__file__).parents[3]

# Exit handlers run in reverse order: that of the loader, the one below, that of prefetch.
READ = """
import atexit, threading
from sagemaker_channels.sources import prefetch
atexit.register(lambda: print("left:", sum(thread.name == "loader" for thread in threading.enumerate())))
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
for batch in ThreadLoader(ChannelDataset("train"), num_workers=2, collate_fn=list):
    print("read", len(batch[0]["data"]), flush=True)
"""


@pytest.mark.parametrize(("silent", "left"), [("/bucket/b", 0), ("/bucket/", 1)], ids=["object", "listing"])
def test_ctrl_c_with_a_silent_store_ends_the_process(store: Store, tmp_path: Path, silent: str, left: int) -> None:
    """The loader closes the pipelines first, so that its threads do not wait for objects; one that lists is left behind."""
    (store.folder / "a").write_bytes(b"a")
    (store.folder / "b").write_bytes(b"b")
    store.hushed.add(silent)
    asked = threading.Event()
    store.on_silence = asked.set
    entry = {"channel": "train", "s3_uri": "s3://bucket/", "style": "iterable"}
    environ = {
        **os.environ,
        contract.BASE_DIR_VARIABLE: str(tmp_path),
        contract.READ_WAIT_VARIABLE: "60",
        f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry),
    }
    with Forked(TORCH, ["-c", READ], environ=environ, cwd=REPOSITORY) as process:
        assert asked.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in errors
    assert output.splitlines()[-1] == f"left: {left}"
    assert process.returncode == -signal.SIGINT


# The second sample's thread is at work for as long as torch may take to end workers, of which Python disposes in any thread.
HELD = """
import threading, time
from sagemaker_channels.torch_data.dataset import ChannelDataset
from sagemaker_channels.torch_data.loader import ThreadLoader
begun = threading.Event()
def transform(sample):
    if sample["data"] == b"b":
        begun.set()
        time.sleep(4)
        print("done", flush=True)
    return sample["data"]
batches = iter(ThreadLoader(ChannelDataset("./data", transform=transform), num_workers=1, collate_fn=list))
print(next(batches), flush=True)
begun.wait()
"""


def test_exit_waits_for_the_threads_of_a_loop_that_is_held(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in "abcdef":
        (tmp_path / "data" / name).write_text(name)
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY / "entrypoints")}
    with Forked(TORCH, ["-c", HELD], environ=environ, cwd=tmp_path) as process:
        output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output.split(), errors) == (0, ["[b'a']", "done"], "")
