"""Channels of four content types, delivered to hosts in each input mode."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.formats import recordio
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sample import Sample
from sagemaker_channels.samples.digest import Tally
from tar_archives import archive

Objects = Mapping[str, bytes]  # key -> content, of one channel


def tar_of(samples: Iterable[Mapping[str, bytes]], first: int) -> bytes:
    numbered = enumerate(samples, start=first)
    return archive((f"{number:03d}.{field}", data) for number, sample in numbered for field, data in sample.items())


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
        with suppress(BrokenPipeError), path.open("wb") as stream:  # A reader may end at damage.
            stream.writelines(pieces)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@contextmanager
def delivered(tmp_path: Path, mode: str, hosts: int, distribution: str) -> Iterator[list[Environment]]:
    """Deliver the channels to each host as SageMaker does, and yield the hosts' environments."""
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


def tally(samples: Iterable[Sample]) -> Tally:
    total = Tally()
    for sample in samples:
        total.add(sample)
    return total


def job(root: Path, **channels: Mapping[str, Any]) -> Environment:
    config(root, 0, 1, channels)
    return load_environment(root, {})
