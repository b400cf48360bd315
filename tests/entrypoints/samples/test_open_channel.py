"""The contract: the same samples, each once, whichever way a channel arrives, and one clear error where it cannot be read."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from entrypoints import contract
from entrypoints.errors import ChannelError, CorruptError
from entrypoints.job.environment import Environment, load_environment
from entrypoints.order.sharding import Placement, Shard
from entrypoints.records.recordio import recordio
from entrypoints.sample import Sample
from entrypoints.samples.channel import default_shard, find_channel, open_channel
from entrypoints.samples.digest import Tally
from entrypoints.torch_data.dataset import ChannelDataset
from launcher.local.s3_server import serve

pytestmark = [
    # How many workers torch thinks this machine can bear is not what is tested,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # and workers by fork beside the threads of servers and feeders are what jobs have (Python 3.12 and later warn).
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded"),
]

Objects = Mapping[str, bytes]  # key -> content, of one channel


def tar_of(samples: Iterable[Mapping[str, bytes]], first: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as output:
        for number, sample in enumerate(samples, start=first):
            for field, data in sample.items():
                info = tarfile.TarInfo(f"{number:03d}.{field}")
                info.size = len(data)
                output.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def recordio_of(payloads: Iterable[bytes]) -> bytes:
    stream = io.BytesIO()
    recordio.write(stream, payloads)
    return stream.getvalue()


BLOBS = [bytes([number]) * (number * 37 % 1000) for number in range(23)]
PAIRS = [{"jpg": blob, "cls": b"%d" % number} for number, blob in enumerate(BLOBS)]
# For each content type seven objects, and the samples that are in them.
CHANNELS: dict[str, tuple[str | None, Objects, list[Sample]]] = {
    "whole": (None, {f"{n % 3}/{n}.bin": blob for n, blob in enumerate(BLOBS)}, [{"data": blob} for blob in BLOBS]),
    "tar": (
        "application/x-tar",
        {f"{n}.tar": tar_of(PAIRS[n::7], 100 * n) for n in range(7)},
        [dict(p) for p in PAIRS],
    ),
    "recordio": (
        "application/x-recordio",
        {f"{n}.rec": recordio_of(BLOBS[n::7]) for n in range(7)},
        [{"data": b} for b in BLOBS],
    ),
    "lines": (
        "text/csv; label_size=1",
        {f"{n}.csv": b"".join(b"%d,1\n" % line for line in range(n, 23, 7)) for n in range(7)},
        [{"data": b"%d,1" % line} for line in range(23)],
    ),
}
EXPECTED = {name: samples for name, (_, _, samples) in CHANNELS.items()}


def config(root: Path, host: int, hosts: int, channels: Mapping[str, Mapping[str, Any]]) -> None:
    """What SageMaker writes below input/config."""
    names = [f"algo-{number + 1}" for number in range(hosts)]
    files = {
        "resourceconfig": {"current_host": names[host], "hosts": names, "network_interface_name": "lo"},
        "inputdataconfig": channels,
        "hyperparameters": {},
    }
    directory = root / contract.CONFIG_DIR
    directory.mkdir(parents=True)
    (root / contract.DATA_DIR).mkdir(parents=True)
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))


def feed(path: Path, pieces: Iterable[bytes]) -> threading.Thread:
    os.mkfifo(path)

    def run() -> None:
        with path.open("wb") as stream:
            stream.writelines(pieces)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@contextmanager
def delivered(tmp_path: Path, mode: str, hosts: int, distribution: str) -> Iterator[list[Environment]]:
    """The four channels, brought to each host as SageMaker brings them; the hosts' environments."""
    environments = []
    threads = []
    for host in range(hosts):
        root = tmp_path / f"host{host}"
        entries = {
            name: {
                "TrainingInputMode": mode,
                "S3DistributionType": distribution,
                "RecordWrapperType": "RecordIO" if mode == "Pipe" and content_type is None else "None",
                **({"ContentType": content_type} if content_type else {}),
            }
            for name, (content_type, _, _) in CHANNELS.items()
        }
        config(root, host, hosts, {} if mode == "S3Connector" else entries)
        for name, (content_type, objects, _) in CHANNELS.items():
            keys = sorted(objects)[host::hosts] if distribution == "ShardedByS3Key" else sorted(objects)
            directory = root / contract.DATA_DIR / name
            if mode in ("File", "FastFile"):
                directory.mkdir()
                for key in keys:
                    (directory / key).parent.mkdir(exist_ok=True)
                    (directory / key).write_bytes(objects[key])
            elif mode == "Pipe":
                content = [objects[key] for key in keys]
                fifo = directory.with_name(f"{name}_0")
                threads.append(feed(fifo, [recordio_of(content)] if content_type is None else content))
        environments.append(load_environment(root, connector_variables() if mode == "S3Connector" else {}))
    yield environments
    for thread in threads:
        thread.join()


def connector_variables() -> dict[str, str]:
    return {
        f"{contract.CONNECTOR_VARIABLE}{number}": json.dumps(
            {
                "channel": name,
                "s3_uri": f"s3://bucket/{name}/",
                "style": "map" if number % 2 else "iterable",
                **({"content_type": content_type} if content_type else {}),
            }
        )
        for number, (name, (content_type, _, _)) in enumerate(CHANNELS.items())
    }


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The four channels as s3://bucket/<channel>/."""
    for name, (_, objects, _) in CHANNELS.items():
        for key, data in objects.items():
            file = tmp_path / "s3" / "bucket" / name / key
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    with serve(tmp_path / "s3", tmp_path / "overlay") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        yield


@pytest.fixture(autouse=True)
def one_process_per_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def read(environment: Environment, name: str, workers: int) -> Iterable[Sample]:
    if workers == 0:
        return open_channel(name, environment=environment)
    loader: DataLoader[Sample] = DataLoader(
        ChannelDataset(name, environment=environment), batch_size=4, num_workers=workers, collate_fn=list
    )
    return chain.from_iterable(loader)


def tally(samples: Iterable[Sample]) -> Tally:
    total = Tally()
    for sample in samples:
        total.add(sample)
    return total


WAYS = [
    (mode, hosts, distribution, workers)
    for mode in ("File", "FastFile", "Pipe", "S3Connector")
    for hosts in (1, 2)
    for distribution in ("FullyReplicated", "ShardedByS3Key")
    for workers in (0, 2)
    if not (mode == "Pipe" and workers) and not (mode == "S3Connector" and distribution == "ShardedByS3Key")
]


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(("mode", "hosts", "distribution", "workers"), WAYS)
def test_the_same_samples_by_every_way(tmp_path: Path, mode: str, hosts: int, distribution: str, workers: int) -> None:
    with delivered(tmp_path, mode, hosts, distribution) as environments:
        for name, expected in EXPECTED.items():
            parts = [tally(read(environment, name, workers)) for environment in environments]
            assert sum(parts, Tally()) == tally(expected), name
            if hosts == 2:  # both take part
                assert all(part.count for part in parts)


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_the_same_samples_over_torchruns_ranks(
    tmp_path: Path, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delivered(tmp_path, "File", 2, distribution) as environments:
        for name, expected in EXPECTED.items():
            total = Tally()
            for rank in range(4):
                for variable, value in (
                    ("RANK", rank),
                    ("WORLD_SIZE", 4),
                    ("LOCAL_RANK", rank % 2),
                    ("LOCAL_WORLD_SIZE", 2),
                ):
                    monkeypatch.setenv(variable, str(value))
                total += tally(open_channel(name, environment=environments[rank // 2]))
            assert total == tally(expected)


def job(root: Path, **channels: Mapping[str, Any]) -> Environment:
    config(root, 0, 1, channels)
    return load_environment(root, {})


def test_keys(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        assert next(open_channel("whole", environment=environment))["__key__"] == "0/0.bin"
        assert next(open_channel("lines", environment=environment))["__key__"] == "0.csv"
        assert next(open_channel("tar", environment=environment))["__key__"] == "000"


def test_the_environment_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated"):
        monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "host0"))
        assert tally(open_channel("tar")) == tally(EXPECTED["tar"])


def test_format_replaces_the_content_type(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        for form in ("objects", "application/octet-stream"):
            assert tally(open_channel("tar", format=form, environment=environment)).count == 7


def test_the_share_can_be_given(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        assert tally(open_channel("whole", environment=environment, shard=Shard(1, 10))).count == 3


def test_an_unknown_channel(tmp_path: Path) -> None:
    environment = job(tmp_path, train={}, validation={})
    with pytest.raises(ChannelError, match=r"no channel 'trian'; it has train, validation; did you mean 'train'"):
        open_channel("trian", environment=environment)


def test_whole_objects_through_a_pipe(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "Pipe", "ContentType": "image/png"})
    with pytest.raises(
        ChannelError, match=r"'train': whole objects lose their boundaries in a Pipe; set record_wrapper_type"
    ):
        open_channel("train", environment=environment)


def test_a_pipes_readers_know_how_many_they_are(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "Pipe", "ContentType": "text/csv"})
    channel = find_channel(environment, "train")
    assert default_shard(channel, Placement(), worker=0, workers=1).readers == 1
    shard = default_shard(
        channel, Placement(rank=3, world_size=4, local_rank=1, local_world_size=2), worker=2, workers=3
    )
    assert (shard.index, shard.count, shard.readers) == (2 * 4 + 3, 12, 6)


def test_damage_names_channel_object_and_offset(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        shard = environment.channels["tar"].path / "3.tar"
        shard.write_bytes(shard.read_bytes()[:700])
        with pytest.raises(CorruptError, match=r"channel 'tar': object '3.tar', byte 0: the stream ends at byte 700"):
            tally(open_channel("tar", environment=environment))


def test_what_the_file_system_refuses(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        samples = open_channel("lines", environment=environment)
        next(samples)
        (environment.channels["lines"].path / "5.csv").unlink()
        with pytest.raises(ChannelError, match=r"channel 'lines' cannot be read at '5.csv': .*No such file"):
            list(samples)


def open_files(directory: Path) -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # the listing's own
            continue
        if target.startswith(str(directory)):
            found.append(target)
    return found


def test_closing_early_closes_the_stream(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        samples = open_channel("tar", environment=environment)
        next(samples)
        assert [Path(name).name for name in open_files(tmp_path)] == ["0.tar"]
        samples.close()
        assert open_files(tmp_path) == []
        assert list(samples) == []


def test_closing_a_pipe_early_and_going_on_with_the_next_epoch(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "Pipe", "ContentType": "text/plain"})
    broken = threading.Event()

    def endless(path: Path) -> None:
        try:
            with path.open("wb", buffering=0) as stream:
                while True:
                    stream.write(b"line\n" * 1000)
        except BrokenPipeError:
            broken.set()

    first = environment.data_dir / "train_0"
    os.mkfifo(first)
    thread = threading.Thread(target=endless, args=(first,), daemon=True)
    thread.start()
    samples = open_channel("train", environment=environment)
    assert next(samples) == {"data": b"line"}
    samples.close()
    thread.join(timeout=10)
    assert broken.is_set()
    feeder = feed(environment.data_dir / "train_1", [b"next\n"])
    assert list(open_channel("train", 1, environment=environment)) == [{"data": b"next"}]
    feeder.join()


def test_records_of_a_wrapped_pipe_have_their_own_format(tmp_path: Path) -> None:
    environment = job(
        tmp_path,
        train={"TrainingInputMode": "Pipe", "ContentType": "text/csv", "RecordWrapperType": "RecordIO"},
    )
    # Without the wrapper the first object's last line would run into the second's first.
    feeder = feed(environment.data_dir / "train_0", [recordio_of([b"a\nb", b"c\nd"])])
    assert [sample["data"] for sample in open_channel("train", environment=environment)] == [b"a", b"b", b"c", b"d"]
    feeder.join()
