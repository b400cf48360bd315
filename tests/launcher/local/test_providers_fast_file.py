"""FastFile mode: live mounts, copies when no mount is possible, and URIs that are refused."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from deliveries import FILES, Deliver, deliveries, leftovers, read_files, write_files
from faulty_s3 import faulty_s3
from launcher.errors import RefusedError
from launcher.local.channels import mounted
from launcher.local.channels.delivery import provide
from launcher.local.channels.stores import Store
from launcher.local.leftovers import at_the_end, is_mounted
from patience import wait_for
from s3_objects import client_of_job, remote_objects


@pytest.fixture
def deliver(tmp_path: Path) -> Iterator[Deliver]:
    with deliveries(tmp_path) as make:
        yield make


@pytest.mark.usefixtures("fuse")
def test_mount_is_lazy_and_read_only_and_visible_in_a_namespace(deliver: Deliver) -> None:
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    with provide(delivery):
        assert is_mounted(delivery.directory.resolve())
        with pytest.raises(OSError, match="Read-only"):
            (delivery.directory / "new").touch()
        # Written behind its back into a file that was never opened: a copy would show the old content.
        client_of_job(delivery.store.environ).put_object(Bucket="bucket", Key="train/a.txt", Body=b"newer")
        command = ["unshare", "-Urm", "cat", str(delivery.directory / "a.txt")]
        inside = subprocess.run(command, capture_output=True, check=False)
        assert inside.stdout == b"newer" or inside.stderr.startswith(b"unshare: ")  # a machine without namespaces
    assert not is_mounted(delivery.directory.resolve())
    assert warnings == []


@pytest.mark.usefixtures("fuse")
def test_mount_ends_even_while_a_file_in_it_is_open(deliver: Deliver) -> None:
    delivery = deliver("FastFile")
    with provide(delivery):
        opened = os.open(delivery.directory / "a.txt", os.O_RDONLY)
    assert leftovers(delivery) == []
    with pytest.raises(OSError, match="not connected"):
        os.close(opened)


@pytest.mark.usefixtures("fuse")
def test_mount_of_a_dead_program_fails_to_read_and_is_removed(deliver: Deliver) -> None:
    delivery = deliver("FastFile")
    with provide(delivery):
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"rclone") and os.fsencode(delivery.directory.resolve()) in words:
                    os.kill(int(process.name), signal.SIGKILL)
        with pytest.raises(OSError, match=r"not connected|connection abort|Input/output error"):
            while True:  # until the kernel knows it
                list(delivery.directory.iterdir())
    assert leftovers(delivery) == []


@pytest.mark.usefixtures("fuse")
def test_fast_file_without_rclone_is_a_copy_and_warns_what_to_install(
    deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    other = replace(delivery, channel={**delivery.channel, "ChannelName": "other"})
    with provide(delivery, other):
        assert read_files(delivery.directory) == FILES
        assert not is_mounted(delivery.directory.resolve())
    assert warnings[0] == warnings[1]  # a text is printed once
    assert "FastFile channels are copied here" in warnings[0]
    assert "apt-get install fuse3 rclone" in warnings[0]
    assert leftovers(delivery) == []


def test_reason_without_fuse_has_its_own_remedy(
    deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "fuse"
    monkeypatch.setattr(mounted, "FUSE", device)
    warnings: list[str] = []
    with mounted.provide(deliver("FastFile", on_warning=warnings.append)):
        pass
    assert (
        f"cannot open {device}; run as root, or let root run `modprobe fuse` and `chmod a+rw {device}`" in warnings[0]
    )
    assert "apt-get" not in warnings[0]


@pytest.mark.usefixtures("fuse")
def test_failing_rclone_is_replaced_by_a_copy_and_quoted(
    deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin/rclone"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nsleep 600 &\necho $! > $0.helper\necho 'no such luck' >&2\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    with provide(delivery):
        assert read_files(delivery.directory) == FILES
    assert "rclone ended with exit code 7 (no such luck" in warnings[0]
    assert leftovers(delivery) == []
    helper = Path("/proc", Path(f"{broken}.helper").read_text().strip(), "exe")
    assert wait_for(lambda: not helper.exists())  # it could mount later


@pytest.mark.usefixtures("fuse")
def test_name_that_the_tool_changes_causes_a_copy(deliver: Deliver) -> None:
    warnings: list[str] = []
    delivery = deliver("FastFile", on_warning=warnings.append)
    client_of_job(delivery.store.environ).put_object(Bucket="bucket", Key="train/y\n", Body=b"odd")
    with provide(delivery):
        assert read_files(delivery.directory) == {**FILES, "y\n": b"odd"}
    assert warnings[0].endswith("not mounted: rclone does not show 'y\\n'; rename that object")


@pytest.mark.parametrize(
    ("uri", "works"), [("s3://bucket/train", True), ("s3://bucket/tra", False), ("s3://bucket/train/a.txt", False)]
)
@pytest.mark.usefixtures("fuse")
def test_fast_file_accepts_folders_only(deliver: Deliver, uri: str, works: bool) -> None:
    warnings: list[str] = []
    delivery = deliver("FastFile", {"S3Uri": uri}, on_warning=warnings.append)
    if works:
        with provide(delivery):
            assert read_files(delivery.directory) == FILES
        assert "end it with '/'" in warnings[0]
    else:
        with pytest.raises(RefusedError, match="needs a folder"), provide(delivery):
            pytest.fail("entered")


def test_fast_file_refuses_manifests(deliver: Deliver) -> None:
    with (
        pytest.raises(RefusedError, match="S3Prefix only, not ManifestFile"),
        provide(deliver("FastFile", {"S3DataType": "ManifestFile"})),
    ):
        pytest.fail("entered")


@pytest.mark.usefixtures("fuse")
def test_mount_reads_forty_files_at_a_time(deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_s3(tmp_path / "far", monkeypatch) as far:
        write_files(far.folder / "train", {f"{number}": b"content" for number in range(40)})
        client = client_of_job(os.environ)
        environ = {name: os.environ[name] for name in os.environ if name.startswith("AWS_")}
        delivery = deliver("FastFile", store=Store(remote_objects(client), environ, remote=True))
        with provide(delivery), ThreadPoolExecutor(40) as readers:
            files = list(delivery.directory.iterdir())
            waiting: list[bool] = []
            far.on_silence = lambda: waiting.append(True)
            far.speaking.clear()
            try:
                contents = [readers.submit(file.read_bytes) for file in files]
                wait_for(lambda: len(waiting) == len(files))
            finally:
                far.speaking.set()
            assert {each.result() for each in contents} == {b"content"}


def test_shell_that_cleans_up_is_not_missed_when_it_was_killed(tmp_path: Path) -> None:
    """If the kernel kills it, the mount's program would never end, nor the run that waits for that."""
    left = tmp_path / "left"
    left.touch()
    with at_the_end('rm "$1"', left):
        for words in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # a process that has ended
                if os.fsencode(left) in words.read_bytes():
                    os.kill(int(words.parent.name), signal.SIGKILL)
    assert not left.exists()


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_clean_up_finds_its_programs_whatever_the_path_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PATH", path)
    left = tmp_path / "left"
    left.touch()
    with at_the_end('rm "$1"', left):
        pass
    assert not left.exists()
