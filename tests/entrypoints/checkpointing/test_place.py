"""Files come back from a folder and from a bucket, and are never seen half written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from faulty_s3 import Store
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.checkpointing import files
from sagemaker_channels.checkpointing.place import place_of
from sagemaker_channels.errors import ChannelError

FILE = "step-1/rank-0"


def save(place: str, content: bytes) -> None:
    place_of(place).write(FILE, partial(files.write, records=[("0", 0, len(content))], memory=memoryview(content)))


def load(place: str) -> bytes:
    (data,) = files.read(place_of(place), FILE, ["0"])
    return bytes(data)


def test_file_is_replaced_as_a_whole(place: str) -> None:
    def fail(stream: object) -> None:
        files.write(stream, [("0", 0, 3)], memoryview(b"two"))
        raise RuntimeError("cannot be saved")

    for content in (b"one", b"two"):
        save(place, content)
        assert load(place) == content
    with pytest.raises(RuntimeError, match="cannot be saved"):
        place_of(place).write(FILE, fail)
    assert load(place) == b"two"
    assert list(place_of(place).sizes()) == [FILE]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("place", ["s3://bucket/none", "s3://no-bucket/none", "none"])
def test_missing_file_raises_file_not_found(tmp_path: Path, place: str) -> None:
    with pytest.raises(FileNotFoundError, match="none/step-1/rank-0"):
        load(place if place.startswith("s3:") else str(tmp_path / place))


FULL = """
import sys, torch
from sagemaker_channels import ChannelError, Checkpoints
checkpoints = Checkpoints(sys.argv[1] + "/disk")
checkpoints.save(1, model=torch.nn.Linear(1, 1))
for size in (300_000, 3_000_000):
    try:
        checkpoints.save(size, model=torch.nn.Linear(1, size))
        checkpoints.wait()
    except ChannelError as error:
        print(error)
print(checkpoints.latest())
try:
    for number in range(100):
        open(f"{sys.argv[1]}/disk/{number}", "x").close()
except OSError:
    checkpoints.save(number, model=torch.nn.Linear(1, 1))
try:
    checkpoints.wait()
except ChannelError as error:
    print(error)
"""


def test_full_disk_is_reported_with_path_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=1m,nr_inodes=50 none "$1/disk" && exec "$0" -c "$2" "$1"'
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("needs namespaces")
    command = [*inside, "sh", "-c", script, sys.executable, str(tmp_path), FULL]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second, left, third = done.stdout.splitlines()
    for said in (first, second):
        assert re.search(
            rf"{tmp_path}/disk/step-.*/rank-.* cannot be written: the disk is full after [1-9][\d,]+ bytes of it, and [\d,]+ "
            "are free; make room, keep fewer checkpoints, or save to a larger disk or to an s3:// URI$",
            said,
        )
    assert left == "1"
    assert re.search("/step-.*/rank-.* cannot be written: the disk is full; make room, keep fewer", third)


@pytest.mark.parametrize("what", [partial(save, "s3://bucket", b"two"), partial(load, "s3://bucket")])
def test_silent_store_ends_saving_and_loading_by_the_readers_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]
) -> None:
    save("s3://bucket", b"one")
    monkeypatch.setenv(contract.READ_WAIT_VARIABLE, "0.5")
    store.speaking.clear()
    with pytest.raises(ChannelError, match=rf"s3://bucket/{FILE} has sent nothing .* LAUNCHER_READ_WAIT_SECONDS=0.5\)"):
        what()


def test_upload_that_was_given_up_is_not_stored_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved may have changed by then: half of it would be of another step."""
    save("s3://bucket", b"one")
    monkeypatch.setenv(contract.READ_WAIT_VARIABLE, "0.5")
    store.hushed.add(f"/bucket/{FILE}")
    with pytest.raises(ChannelError, match="has sent nothing"):
        save("s3://bucket", bytes(40_000_000))
    monkeypatch.delenv(contract.READ_WAIT_VARIABLE)
    store.hushed.clear()
    for thread in threading.enumerate():
        if thread.name == "s3 request":
            thread.join(PATIENCE)
    assert load("s3://bucket") == b"one"


def test_refusal_states_what_the_role_lacks(store: Store) -> None:
    store.faults[f"/bucket/{FILE}"] = [403] * 20
    with pytest.raises(
        ChannelError, match=rf"s3://bucket/{FILE} cannot be written: access is denied .403.* s3:PutObject"
    ):
        save("s3://bucket", b"one")
    with pytest.raises(ChannelError, match=rf"s3://bucket/{FILE} cannot be read: access is denied .403"):
        load("s3://bucket")


def test_transient_failure_is_retried(store: Store) -> None:
    store.faults[f"/bucket/{FILE}"] = [503] * 6
    save("s3://bucket", b"two")
    store.faults[f"/bucket/{FILE}"] = [500] * 6
    assert load("s3://bucket") == b"two"
