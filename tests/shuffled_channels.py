"""Channels of four formats, for the tests of order and resuming."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from format_channels import configured
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.formats import recordio, tar
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.torch_data.dataset import ChannelDataset, MixedDataset

SHUFFLED: dict[str, Any] = {"seed": 7, "block": 10}
CHANNELS = {
    "tar": ("application/x-tar", "File"),
    "lines": ("text/plain", "File"),
    "records": ("application/x-recordio", "FastFile"),
    "objects": (None, "File"),
}


def make_environment(root: Path) -> Environment:
    """Make four channels of 7 objects (70 in the last) with 10 samples each; each sample has its own text."""
    config = {}
    for name, (content_type, mode) in CHANNELS.items():
        config[name] = {"TrainingInputMode": mode, "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
        if content_type:
            config[name]["ContentType"] = content_type
    environment = configured(root, **config)
    data = environment.data_dir
    for shard in range(7):
        texts = [f"{shard}-{number}".encode() for number in range(10)]
        with (data / f"tar/{shard}.tar").open("wb") as file:
            tar.write(file, [{"__key__": text.decode(), "txt": text} for text in texts])
        (data / f"lines/{shard}.txt").write_bytes(b"".join(text + b"\n" for text in texts))
        with (data / f"records/{shard}.rec").open("wb") as file:
            recordio.write(file, texts)
        for text in texts:
            (data / "objects" / text.decode()).write_bytes(text)
    return environment


def text_of(sample: dict[str, Any]) -> str:
    return bytes(sample["txt"] if "txt" in sample else sample["data"]).decode()


def as_stored(state: Any) -> Any:
    """Return a state as it is read back from a checkpoint."""
    return json.loads(json.dumps(state))


EVERY = sorted(f"{shard}-{number}" for shard in range(7) for number in range(10))


def texts(environment: Environment, name: str, epoch: int = 0, shard: Shard | None = None, **how: Any) -> list[str]:
    with closing(open_channel(name, epoch, environment=environment, shard=shard, **how)) as samples:
        return list(map(text_of, samples))


def mixture(environment: Environment, **how: Any) -> MixedDataset:
    """Return a mixture of two channels, of which the shuffled one is drawn three times as often."""
    parts = [
        ChannelDataset("tar", transform=text_of, environment=environment, **SHUFFLED),
        ChannelDataset("lines", transform=lambda sample: f"line {text_of(sample)}", environment=environment),
    ]
    return MixedDataset(parts, weights=[3.0, 1.0], **how)
