"""Pipe mode through real FIFOs, from a real endpoint: epochs, early closes, errors, and leaving."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrypoints.job.environment import Channel
from entrypoints.readers.fifo import open_fifo
from entrypoints.records.text.augmented import Augmented
from launcher.errors import RefusedError
from launcher.local.data.delivery import Delivery, Store
from launcher.local.data.object_stores import RemoteObjects
from launcher.local.data.stores import embedded_store, s3_client
from launcher.local.providers.fifo import provide

PATIENCE = 20.0  # seconds after which a test has failed; nothing waits that long
Deliver = Callable[..., Delivery]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data/s3/bucket/train"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def deliver(tmp_path: Path, folder: Path) -> Iterator[Deliver]:
    """Makes deliveries of the Pipe channel `train`, by default from `s3://bucket/train/`; `channel` adds to it."""
    with embedded_store(tmp_path / "data", tmp_path / "overlay") as store:

        def make(
            channel: dict[str, Any] | None = None, source: dict[str, Any] | None = None, **changes: Any
        ) -> Delivery:
            s3 = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/train/", **(source or {})}
            delivery = Delivery(
                channel={
                    "ChannelName": "train",
                    "InputMode": "Pipe",
                    "DataSource": {"S3DataSource": s3},
                    **(channel or {}),
                },
                host="algo-1",
                hosts=("algo-1",),
                data_dir=tmp_path / "data_dir",
                scratch=tmp_path / "scratch",
                store=store,
                file_systems={},
                on_error=errors.append,
            )
            return Delivery(**{**vars(delivery), **changes})

        errors: list[Exception] = []
        yield make
        assert errors == []


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def fifo(delivery: Delivery, epoch: int) -> Path:
    """The epoch's FIFO, once it is there, as a training script waits for it."""
    path = delivery.data_dir / f"train_{epoch}"
    wait_for(path.exists)
    assert stat.S_ISFIFO(path.stat().st_mode)
    return path


def epochs(delivery: Delivery, count: int) -> list[bytes]:
    with provide(delivery):
        return [fifo(delivery, epoch).read_bytes() for epoch in range(count)]


def test_every_epoch_sends_everything_again_and_tells_its_bytes(deliver: Deliver, folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(name.encode() * 100_000)
    counts: list[int] = []
    delivery = deliver(on_bytes=counts.append)
    assert epochs(delivery, 3) == [b"a" * 100_000 + b"b" * 100_000 + b"c" * 100_000] * 3
    assert sum(counts) >= 900_000
    assert list(delivery.data_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("channel", "contents", "named"),
    [
        ({}, [b"1\n2", b"3\n", b"4"], ["a"]),
        ({"CompressionType": "Gzip"}, [gzip.compress(b"1\n"), gzip.compress(b"2")], ["b"]),
        ({}, [b"1\n", b"", b"2\n"], []),
        ({}, [gzip.compress(b"1"), gzip.compress(b"2")], []),  # the reader unzips them: what is inside is not seen here
        ({}, [b"1"], []),
        ({"RecordWrapperType": "RecordIO"}, [b"1", b"2"], []),
        ({"ContentType": "application/x-recordio"}, [b"1", b"2"], []),
    ],
)
def test_lines_of_two_objects_that_become_one_are_warned_of_once(
    deliver: Deliver, folder: Path, channel: dict[str, Any], contents: list[bytes], named: list[str]
) -> None:
    for name, content in zip("abc", contents, strict=False):
        (folder / name).write_bytes(content)
    warnings: list[str] = []
    epochs(deliver({"ContentType": "text/csv", **channel}, on_warning=warnings.append), 2)
    assert [text.partition(" does")[0] for text in warnings] == [
        f"channel 'train': s3://bucket/train/{name}" for name in named
    ]


def test_a_job_that_goes_on_begins_with_fifo_0(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    delivery = deliver()
    channel = Channel("train", "Pipe", "text/plain", "FullyReplicated", "None", delivery.data_dir / "train")
    for begin in (0, 3, 1):  # runs that take each other's place, as a job does after a spot interruption
        with provide(delivery):
            for epoch in range(begin, begin + 3):
                with closing(open_fifo(channel, epoch, PATIENCE)) as stream:
                    assert stream.read() == b"a"
                assert not (delivery.data_dir / f"train_{epoch - begin + 2}").exists()
        assert list(delivery.data_dir.iterdir()) == []


def test_next_fifo_is_there_at_the_end_of_the_present_one_and_replaces_it(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"x" * 5_000_000)  # more than a pipe holds
    delivery = deliver()
    with provide(delivery):
        with fifo(delivery, 0).open("rb", buffering=0) as reader:
            assert reader.read(2) == b"xx"
            assert not (delivery.data_dir / "train_1").exists()
            assert len(reader.readall()) == 4_999_998
            assert (delivery.data_dir / "train_1").is_fifo()
        wait_for(lambda: [path.name for path in delivery.data_dir.iterdir()] == ["train_1"])


@pytest.mark.parametrize("size", [10, 30_000_000])
def test_early_close_goes_on_to_the_next_epoch(deliver: Deliver, folder: Path, size: int) -> None:
    (folder / "a").write_bytes(b"x" * size)
    delivery = deliver()
    with provide(delivery):
        for epoch in range(3):
            with fifo(delivery, epoch).open("rb", buffering=0) as reader:
                assert reader.read(5) == b"xxxxx"
        assert len(fifo(delivery, 3).read_bytes()) == size


def test_order_is_shuffled_anew_in_every_epoch_by_the_seed(deliver: Deliver, folder: Path) -> None:
    for number in range(30):
        (folder / f"{number:02}").write_bytes(bytes([number]))
    first = epochs(deliver({"ShuffleConfig": {"Seed": 1}}), 3)
    assert [bytes(sorted(epoch)) for epoch in first] == [bytes(range(30))] * 3
    assert len(set(first)) == 3
    assert epochs(deliver({"ShuffleConfig": {"Seed": 1}}), 2) == first[:2]
    assert epochs(deliver({"ShuffleConfig": {"Seed": 2}}), 1) != first[:1]
    assert epochs(deliver(), 1) == [bytes(range(30))]


def test_sharded_hosts_share_every_epoch_between_them(deliver: Deliver, folder: Path) -> None:
    for number in range(9):
        (folder / f"{number}").write_bytes(bytes([number]))
    shared = {"S3DataDistributionType": "ShardedByS3Key"}
    hosts = ("algo-1", "algo-2")
    one, two = (epochs(deliver({"ShuffleConfig": {"Seed": 1}}, shared, host=host, hosts=hosts), 4) for host in hosts)
    assert [sorted(first + second) for first, second in zip(one, two, strict=True)] == [list(range(9))] * 4
    assert {len(epoch) for epoch in one} == {5}
    assert len(set(one)) > 1


def test_host_without_objects_reads_an_empty_pipe(deliver: Deliver, folder: Path) -> None:
    (folder / "only").write_bytes(b"x")
    shared = {"S3DataDistributionType": "ShardedByS3Key"}
    assert epochs(deliver(source=shared, host="algo-2", hosts=("algo-1", "algo-2")), 2) == [b"", b""]


def test_gzip_is_undone_and_records_are_wrapped(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(gzip.compress(b"one") + gzip.compress(b"two"))
    (folder / "b").write_bytes(gzip.compress(b"seven"))
    assert epochs(deliver({"CompressionType": "Gzip"}), 1) == [b"onetwoseven"]
    records = b"".join(
        struct.pack("<II", 0xCED7230A, len(text)) + text + bytes(-len(text) % 4) for text in (b"onetwo", b"seven")
    )
    assert epochs(deliver({"CompressionType": "Gzip", "RecordWrapperType": "RecordIO"}), 1) == [records]


def test_manifest_sends_its_keys_in_its_order(deliver: Deliver, folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_bytes(name.encode())
    (folder / "manifest").write_text('[{"prefix": "s3://bucket/train/"}, "c", "a", "c"]')
    source = {"S3DataType": "ManifestFile", "S3Uri": "s3://bucket/train/manifest"}
    assert epochs(deliver(source=source), 1) == [b"cac"]
    assert epochs(deliver(source=source, sample=2), 1) == [b"ca"]


def test_augmented_manifest_sends_one_record_per_attribute(deliver: Deliver, folder: Path) -> None:
    lines = []
    for number in range(8):
        (folder / f"{number}.png").write_bytes(b"png%d" % number)
        lines.append(f'{{"label": {number}, "image-ref": "s3://bucket/train/{number}.png"}}\n')
    (folder / "manifest").write_text("".join(lines))
    source = {
        "S3DataType": "AugmentedManifestFile",
        "S3Uri": "s3://bucket/train/manifest",
        "AttributeNames": ["image-ref", "label"],
    }
    channel = {"RecordWrapperType": "RecordIO", "ShuffleConfig": {"Seed": 5}}
    magic = struct.pack("<I", 0xCED7230A)

    def pair(number: int) -> bytes:
        size = struct.pack("<I", 4), struct.pack("<I", 1)
        return magic + size[0] + b"png%d" % number + magic + size[1] + b"%d\0\0\0" % number

    first, second = epochs(deliver(channel, source), 2)
    assert len(first) == 8 * 24
    assert {first[start : start + 24] for start in range(0, len(first), 24)} == {pair(number) for number in range(8)}
    assert first != second
    assert epochs(deliver(channel | {"ShuffleConfig": {"Seed": 0}}, source, sample=1), 1) == [pair(0)]


def test_the_lines_of_an_augmented_manifest_are_shuffled_before_hosts_share_them(
    deliver: Deliver, folder: Path
) -> None:
    lines = []
    for number in range(40):
        (folder / f"{number}.png").write_bytes(b"png%d" % number)
        lines.append(json.dumps({"label": number, "image-ref": f"s3://bucket/train/{number}.png", "box": [number]}))
    (folder / "manifest").write_text("\n".join(lines))
    form = Augmented(("image-ref", "box", "label"))
    source = {
        "S3DataType": "AugmentedManifestFile",
        "S3Uri": "s3://bucket/train/manifest",
        "AttributeNames": [*form.attributes],
    }

    def orders(seed: int, host: str | None = None) -> list[list[int]]:
        """The lines' numbers in three epochs, to a host alone or to one of two."""
        channel = {"RecordWrapperType": "RecordIO", "ShuffleConfig": {"Seed": seed}}
        shared = {} if host is None else {"S3DataDistributionType": "ShardedByS3Key"}
        hosts = {} if host is None else {"host": host, "hosts": ("algo-1", "algo-2")}
        found = []
        for content in epochs(deliver(channel, source | shared, **hosts), 3):
            samples = list(form.split(io.BytesIO(content)))
            for sample in samples:  # a line's values stay together
                label = sample["label"]
                assert sample == {"image-ref": b"png" + label, "box": b"[" + label + b"]", "label": label}
            found.append([int(sample["label"]) for sample in samples])
        return found

    alone = orders(5)
    assert all(sorted(order) == list(range(40)) for order in alone)
    assert len({tuple(order) for order in [*alone, range(40), *orders(6)]}) == 7
    assert orders(5) == alone
    first, second = orders(5, "algo-1"), orders(5, "algo-2")
    for mine, others, whole in zip(first, second, alone, strict=True):
        assert [number for pair in zip(mine, others, strict=True) for number in pair] == whole
    assert len({frozenset(mine) for mine in first}) == 3  # a host gets other lines in each epoch


def test_object_too_long_for_a_record_is_refused_before_the_start(deliver: Deliver, folder: Path) -> None:
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 29)  # takes no space on disk
    delivery = deliver({"RecordWrapperType": "RecordIO"})
    with pytest.raises(RefusedError, match="train/huge: 536870912 bytes or more do not fit"), provide(delivery):
        pytest.fail("entered")
    assert list(delivery.data_dir.iterdir()) == []


def test_next_object_is_fetched_while_the_first_is_being_read(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(bytes(20_000_000))
    (folder / "b").write_bytes(b"b")
    delivery = deliver()
    client = s3_client(delivery.store.environ)
    asked: list[str] = []
    events = client.meta.events
    delivery = replace(delivery, store=Store(RemoteObjects(client), delivery.store.environ, remote=True))
    events.register("before-send.s3.GetObject", lambda request, **rest: asked.append(request.url.rpartition("/")[2]))
    with provide(delivery), fifo(delivery, 0).open("rb", buffering=0) as reader:
        reader.read(1)
        wait_for(lambda: "b" in asked)
        assert len(reader.read(1)) == 1  # and 20 MB are still to come


def test_error_in_the_middle_is_reported_and_is_no_end_for_the_reader(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(gzip.compress(b"good"))
    (folder / "b").write_bytes(b"no gzip")
    errors: list[Exception] = []
    got = bytearray()
    ended = threading.Event()

    def read(path: Path) -> None:
        with path.open("rb", buffering=0) as reader:
            while chunk := reader.read(100):
                got.extend(chunk)
        ended.set()

    delivery = deliver({"CompressionType": "Gzip"}, on_error=errors.append)
    with provide(delivery):
        reading = threading.Thread(target=read, args=(fifo(delivery, 0),))
        reading.start()
        wait_for(lambda: errors)
        assert not ended.wait(0.3)
        assert got == b"good"
        assert "s3://bucket/train/b: not readable as gzip" in str(errors[0])
        assert not (delivery.data_dir / "train_1").exists()
    reading.join(PATIENCE)
    assert ended.is_set()  # only now, when the runner has given the channel up


def test_object_that_vanished_before_the_next_epoch_is_reported(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"ab")
    errors: list[Exception] = []
    delivery = deliver(on_error=errors.append)
    with provide(delivery):
        with fifo(delivery, 0).open("rb", buffering=0) as reader:
            assert reader.read(1) == b"a"
            (folder / "a").unlink()
            assert reader.read() == b"b"
        with fifo(delivery, 1).open("rb"):
            wait_for(lambda: errors)
    assert "s3://bucket/train/a: there is no " in str(errors[0])


@pytest.mark.parametrize("reader", ["none", "opened", "stuck"])
def test_leaving_is_prompt_whatever_the_reader_does(deliver: Deliver, folder: Path, reader: str) -> None:
    (folder / "a").write_bytes(bytes(30_000_000))
    delivery = deliver()
    opened = -1
    with provide(delivery):
        if reader != "none":
            opened = os.open(fifo(delivery, 0), os.O_RDONLY)
        if reader == "stuck":
            assert os.read(opened, 10)
        started = time.monotonic()
    assert time.monotonic() - started < 60, "it waits for the reader"
    assert list(delivery.data_dir.iterdir()) == []
    assert not [each for each in threading.enumerate() if each.name == "pipe-train"]
    if opened >= 0:
        os.close(opened)


def test_job_may_remove_its_fifo(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    delivery = deliver()
    with provide(delivery):
        fifo(delivery, 0).unlink()


def test_name_that_is_taken_is_refused(deliver: Deliver, folder: Path) -> None:
    (folder / "a").write_bytes(b"a")
    delivery = deliver()
    (delivery.data_dir / "train_0").mkdir(parents=True)
    with pytest.raises(RefusedError, match=r"cannot make the FIFO of epoch 0, .*another channel"), provide(delivery):
        pytest.fail("entered")
    assert (delivery.data_dir / "train_0").is_dir()
