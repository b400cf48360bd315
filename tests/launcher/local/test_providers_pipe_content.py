"""The content of Pipe channels: order, shards, gzip, records and manifests."""

from __future__ import annotations

import gzip
import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import RefusedError
from launcher.local.channels.fifo import provide
from pipe_deliveries import Deliver, epochs
from sagemaker_channels.formats.augmented import of_attributes


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
def test_joined_lines_of_two_objects_cause_one_warning(
    deliver: Deliver, folder: Path, channel: dict[str, Any], contents: list[bytes], named: list[str]
) -> None:
    for name, content in zip("abc", contents, strict=False):
        (folder / name).write_bytes(content)
    warnings: list[str] = []
    epochs(deliver({"ContentType": "text/csv", **channel}, on_warning=warnings.append), 2)
    assert [text.partition(" does")[0] for text in warnings] == [
        f"channel 'train': s3://bucket/train/{name}" for name in named
    ]


def test_order_is_shuffled_in_every_epoch_by_the_seed(deliver: Deliver, folder: Path) -> None:
    for number in range(30):
        (folder / f"{number:02}").write_bytes(bytes([number]))
    first = epochs(deliver({"ShuffleConfig": {"Seed": 1}}), 3)
    assert [bytes(sorted(epoch)) for epoch in first] == [bytes(range(30))] * 3
    assert len(set(first)) == 3
    assert epochs(deliver({"ShuffleConfig": {"Seed": 1}}), 2) == first[:2]
    assert epochs(deliver({"ShuffleConfig": {"Seed": 2}}), 1) != first[:1]
    assert epochs(deliver(), 1) == [bytes(range(30))]


def test_sharded_hosts_split_every_epoch(deliver: Deliver, folder: Path) -> None:
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


def test_gzip_is_unzipped_and_records_are_wrapped(deliver: Deliver, folder: Path) -> None:
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
    sampled = deliver({"RecordWrapperType": "RecordIO"}, source, sample=2)
    assert epochs(sampled, 1) == [pair(0) + pair(4)]


def test_lines_of_an_augmented_manifest_are_shuffled_before_sharding(deliver: Deliver, folder: Path) -> None:
    lines = []
    for number in range(40):
        (folder / f"{number}.png").write_bytes(b"png%d" % number)
        lines.append(json.dumps({"label": number, "image-ref": f"s3://bucket/train/{number}.png", "box": [number]}))
    (folder / "manifest").write_text("\n".join(lines))
    attributes = ("image-ref", "box", "label")
    form = of_attributes(attributes)
    source = {
        "S3DataType": "AugmentedManifestFile",
        "S3Uri": "s3://bucket/train/manifest",
        "AttributeNames": [*attributes],
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
