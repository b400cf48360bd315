"""Deliveries of a Pipe channel of a local run, and the reader's side of its FIFOs."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher.local.channels.delivery import Delivery
from launcher.local.channels.fifo import provide
from launcher.local.channels.stores import embedded_store
from patience import wait_for

Deliver = Callable[..., Delivery]


def fifo(delivery: Delivery, epoch: int) -> Path:
    """The epoch's FIFO, once it is there, as a training script waits for it."""
    path = delivery.data_dir / f"train_{epoch}"
    wait_for(path.exists)
    assert stat.S_ISFIFO(path.stat().st_mode)
    return path


def epochs(delivery: Delivery, count: int) -> list[bytes]:
    with provide(delivery):
        return [fifo(delivery, epoch).read_bytes() for epoch in range(count)]


@contextmanager
def pipe_deliveries(tmp_path: Path) -> Iterator[Deliver]:
    """Yield a function that makes deliveries of the Pipe channel `train`; `channel` adds to its entry."""
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
