"""Objects that cannot be read, that change while they are read, and that have odd keys and sizes, against our S3."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from faulty_s3 import RESET, Store, channel_of
from object_channels import streams_of
from patience import PATIENCE
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources import s3, s3_client, silence
from sagemaker_channels.sources.s3_errors import cause_of

MIB = 1 << 20
REPOSITORY = Path(__file__).parents[3]


def read_all(root: Path, uri: str = "s3://bucket/") -> dict[str | None, bytes]:
    found = {}
    for key, stream in streams_of(channel_of(root, uri)):
        found[key] = stream.read()
        stream.close()
    return found


def test_permanent_error_is_raised_immediately(store: Store, tmp_path: Path) -> None:
    (store.folder / "a").write_bytes(b"a")
    store.faults["/bucket/a"] = [403] * 9
    with pytest.raises(
        ChannelError, match=r"s3://bucket/a cannot be read: access is denied \(403: no\); .*s3:GetObject"
    ):
        read_all(tmp_path)
    assert len(store.faults["/bucket/a"]) == 8
    store.faults["/bucket/"] = [403] * 9
    with pytest.raises(
        ChannelError, match=r"'train': s3://bucket/b cannot be listed: access is denied .*s3:ListBucket"
    ):
        read_all(tmp_path, "s3://bucket/b")
    with pytest.raises(
        ChannelError, match=r"s3://nobody/ cannot be listed: there is no such bucket \(404 NoSuchBucket\)"
    ):
        read_all(tmp_path, "s3://nobody/")


def test_object_deleted_after_the_listing_raises(store: Store, tmp_path: Path) -> None:
    for name in "ab":
        (store.folder / name).write_bytes(b"a")
    channel = channel_of(tmp_path)
    assert len(s3.objects(channel)) == 2
    (store.folder / "b").unlink()
    with pytest.raises(ChannelError, match=r"s3://bucket/b cannot be read: it no longer exists \(404 NoSuchKey\)"):
        read_all(tmp_path)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, r"S3 had an internal error \(500\)"),
        (503, r"\(503\)"),
        (504, r"\(504\)"),
        (RESET, r"no connection to http://127\.0\.0\.1:\d+ \(socket is closed\)"),
    ],
)
def test_transient_error_that_lasts_is_raised(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, message: str
) -> None:
    monkeypatch.setattr(s3_client, "PATIENCE_SECONDS", 0.5)
    (store.folder / "a").write_bytes(b"a")
    store.faults["/bucket/a"] = [status] * 1000
    with pytest.raises(ChannelError, match=rf"s3://bucket/a cannot be read: .*{message}, tried for \d+ s; "):
        read_all(tmp_path)
    assert len(store.faults["/bucket/a"]) < 999


@pytest.mark.parametrize(
    ("message", "passes", "expected"),
    [
        ("Client error: Request throttled", True, "503"),
        ("Client error: Unknown response error: MetaRequestResult { response_status: 429, crt", True, "429"),
        ("Client error: Unknown response error: MetaRequestResult { response_status: 400, crt", False, "400"),
        (
            "Client error: Unknown response error: MetaRequestResult { response_status: 301, crt",
            False,
            "another region",
        ),
        ("Client error: No signing credentials available, see CRT debug logs", False, "no credentials"),
        (
            "Client error: AWS_IO_TLS_..., Default TLS trust store not found on this system. Trusted",
            False,
            "certificates",
        ),
        ("something new", True, "something new"),
    ],
)
def test_client_messages_are_assigned_their_cause(message: str, passes: bool, expected: str) -> None:
    cause = cause_of(message)
    assert (cause.passes, expected in cause.what) == (passes, True)


@pytest.mark.parametrize("change", ["content", "shorter", "longer"])
@pytest.mark.parametrize("size", [1000, 20 * s3.RANGE_BYTES])
def test_overwritten_object_raises(store: Store, tmp_path: Path, size: int, change: str) -> None:
    file = store.folder / "a"
    file.write_bytes(b"1" * size)
    new = size + {"content": 0, "shorter": -1, "longer": 1}[change]
    channel = channel_of(tmp_path)
    [(_, stream)] = streams_of(channel)
    if size > s3.RANGE_BYTES:
        assert stream.read(1) == b"1"
    else:
        assert len(s3.objects(channel)) == 1
    (store.folder / "new").write_bytes(b"2" * new)
    (store.folder / "new").replace(file)
    with pytest.raises(
        ChannelError, match=r"s3://bucket/a (changed after it was listed|cannot be read: it is shorter)"
    ):
        stream.read()


def test_data_set_that_is_rewritten_while_it_is_read_raises(store: Store, tmp_path: Path) -> None:
    """The first sixteen objects and then one in sixteen are compared with the listing."""
    files = [store.folder / f"{number:03d}" for number in range(400)]
    for file in files:
        file.write_bytes(b"1" * 1000)
    assert len(s3.objects(channel_of(tmp_path))) == 400
    for file in files[100:]:
        (tmp_path / "new").write_bytes(b"2" * 1000)
        (tmp_path / "new").replace(file)
    with pytest.raises(ChannelError, match="changed after it was listed: its ETag is"):
        read_all(tmp_path)


def heads(store: Store) -> int:
    return sum(request.method == "HEAD" for request in store.requests)


@pytest.mark.parametrize("which", ["some", "all"])
def test_etags_are_requested_for_some_objects_unless_all_are_compared(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Here the ETags of objects that were put are MD5s, and those of files are not."""
    import boto3

    monkeypatch.setenv("LAUNCHER_COMPARE_OBJECTS", which)
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    (store.folder / "p").mkdir()
    for number in range(64):
        (store.folder / f"p/{number:03d}").write_bytes(b"1" * 1000)
    for number in range(64, 128):
        client.put_object(Bucket="bucket", Key=f"p/{number:03d}", Body=b"1" * 1000)
    assert len(read_all(tmp_path, "s3://bucket/p/")) == 128
    least = 64 if which == "all" else 16 + 112 // 16
    assert least <= heads(store) <= least + 4  # A slow request is repeated, so an object may count twice.
    if which == "all":
        client.put_object(Bucket="bucket", Key="p/127", Body=b"2" * 1000)
        with pytest.raises(ChannelError, match=r"s3://bucket/p/127 changed after it was listed: its ETag is"):
            read_all(tmp_path, "s3://bucket/p/")


def test_objects_of_a_ranges_size_are_compared_each_time(store: Store, tmp_path: Path) -> None:
    """A request more costs them nothing that shows, and a channel may have few of them."""
    for name, count, size in (("small", 20, 1000), ("big", 5, s3.RANGE_BYTES)):
        (store.folder / name).mkdir()
        for number in range(count):
            (store.folder / f"{name}/{number:03d}").write_bytes(bytes(size))
    assert len(read_all(tmp_path, "s3://bucket/small/")) == 20  # The next object that is compared is number 32.
    before = heads(store)
    assert len(read_all(tmp_path, "s3://bucket/big/")) == 5
    assert heads(store) - before >= 5


def test_changed_object_raises_if_its_parts_are_read_out_of_order(store: Store, tmp_path: Path) -> None:
    size = 4 * s3.RANGE_BYTES
    (store.folder / "a").write_bytes(b"1" * size)
    [(_, stream)] = streams_of(channel_of(tmp_path))
    seekable: Any = stream
    seekable.seek(size - 10)
    assert stream.read() == b"1" * 10
    (store.folder / "new").write_bytes(b"2" * size)
    (store.folder / "new").replace(store.folder / "a")
    seekable.seek(0)
    with pytest.raises(ChannelError, match="changed after it was listed: its ETag is"):
        stream.read()


ODD = ["a b", "a+b", "a%2Fb", "%", "ü/ß", "日本", "?x=1&y", "#", "//", "a//b", "~!*'()", '"<>&', ".hidden", "new\nline"]


def test_odd_keys_are_read(store: Store, tmp_path: Path) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    keys = [f"p/{name}" for name in ODD] + ["p//leading", "p/marker/", "p/marker/in", "p/", "q/", "q/marker/"]
    for key in keys:
        client.put_object(Bucket="bucket", Key=key, Body=b"" if key.endswith("/") else key.encode())
    found = read_all(tmp_path, "s3://bucket/p/")
    wanted = sorted((key for key in keys if not key.endswith("/")), key=str.encode)
    assert list(found) == [key.removeprefix("p/") for key in wanted]
    assert list(found.values()) == [key.encode() for key in wanted]
    for prefix in ("p/none/", "q/"):
        with pytest.raises(ChannelError, match=f"no object under s3://bucket/{prefix}; correct the S3 URI"):
            read_all(tmp_path, f"s3://bucket/{prefix}")


def test_key_with_a_control_character_raises_immediately(store: Store, tmp_path: Path) -> None:
    """S3 puts it into its listing as it is, and no XML may hold it: asking again does not help."""
    (store.folder / "a\x01b").write_bytes(b"x")
    with pytest.raises(ChannelError, match=r"s3://bucket/ cannot be listed: .*; rename keys with control characters"):
        read_all(tmp_path)
    assert store.listings() == 1


@pytest.mark.parametrize("around", [s3.RANGE_BYTES, 8 * MIB])
def test_objects_about_as_large_as_a_part_are_read_whole(store: Store, tmp_path: Path, around: int) -> None:
    wanted = {}
    for number, size in enumerate((0, 1, around - 1, around, around + 1, 2 * around - 1, 2 * around, 2 * around + 1)):
        wanted[str(number)] = os.urandom(size)
        (store.folder / str(number)).write_bytes(wanted[str(number)])
    assert read_all(tmp_path) == wanted


@pytest.mark.parametrize("what", ["listing", "object"])
def test_ctrl_c_works_while_s3_is_silent(store: Store, tmp_path: Path, what: str) -> None:
    (store.folder / "a").write_bytes(b"a")
    channel = channel_of(tmp_path)
    if what == "object":
        assert len(s3.objects(channel)) == 1
    store.speaking.clear()
    main = threading.get_ident()
    store.on_silence = lambda: signal.pthread_kill(main, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        for _, stream in stack.enter_context(closing(streams_of(channel))):  # type: ignore[type-var]
            stream.read()
    store.speaking.set()


def test_store_that_answers_again_is_read_to_the_end(store: Store, tmp_path: Path) -> None:
    names = [f"{number:03d}" for number in range(300)]
    for name in names:
        (store.folder / name).write_bytes(name.encode())
    found = []
    for key, stream in streams_of(channel_of(tmp_path)):
        found.append((key, stream.read()))
        stream.close()
        if len(found) == 20:
            store.gone.set()  # No request is answered any more, and every connection is cut.
            threading.Timer(1.5, store.gone.clear).start()
    assert found == [(name, name.encode()) for name in names]


class Clock:
    """A clock that goes ahead by `jump` seconds at each look."""

    def __init__(self) -> None:
        self.ahead = self.jump = 0.0

    def monotonic(self) -> float:
        self.ahead += self.jump
        return time.monotonic() + self.ahead


# A silent listing is noticed by the thread that lists, or by the reader that waits for it.
@pytest.mark.parametrize("what", ["the (next object's name|list of its objects)", "object 'b'"])
def test_silent_store_is_reported_and_raises(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(silence, "time", clock)
    store.on_silence = lambda: setattr(clock, "jump", 100.0)
    for name in "ab":
        (store.folder / name).write_bytes(name.encode())
    channel = channel_of(tmp_path)
    store.hushed.add("/bucket/b" if "'b'" in what else "/bucket/")
    warning = rf"s3://bucket/ has sent nothing for \d+ s, after [01] bytes, and the reader waits for {what}"
    with pytest.raises(ChannelError, match=warning + r"; .* \(or wait longer: LAUNCHER_READ_WAIT_SECONDS=300\)"):
        for _, stream in streams_of(channel):
            assert stream.read() == b"a"
            stream.close()
    assert re.search(warning, capfd.readouterr().err)


SILENT = """
from pathlib import Path
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources import s3
channel = Channel("train", "S3Connector", None, "FullyReplicated", "None", Path("/none"), "s3://bucket/")
for _, stream in s3.open_objects(channel, s3.objects(channel)):
    print("read", len(stream.read()), flush=True)
"""


@pytest.mark.parametrize("end", ["limit", "Ctrl-C"])
def test_silent_store_does_not_keep_the_process_from_ending(store: Store, end: str) -> None:
    (store.folder / "a").write_bytes(b"a")
    (store.folder / "b").write_bytes(bytes(30 * MIB))  # so that many threads are stuck
    store.hushed.add("/bucket/b")
    environ = {**os.environ, contract.READ_WAIT_VARIABLE: "4" if end == "limit" else "240"}
    asked = threading.Event()
    store.on_silence = asked.set
    command = [sys.executable, "-c", SILENT]
    with subprocess.Popen(command, env=environ, cwd=REPOSITORY, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "read 1\n"
        assert asked.wait(PATIENCE)
        if end == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert ("the reader waits for object 'b'" if end == "limit" else "KeyboardInterrupt") in errors
    assert process.returncode == (1 if end == "limit" else -signal.SIGINT)
