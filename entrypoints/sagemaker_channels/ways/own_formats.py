"""Libraries that read shards of their own formats from S3: mosaicml-streaming (MDS) and litdata."""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sagemaker_channels.ways.card import Need, Source, Way


def _mds(source: Source) -> Any:
    import streaming

    local = source.exits.enter_context(tempfile.TemporaryDirectory(prefix="mds-"))
    dataset = streaming.StreamingDataset(
        remote=source.channel.s3_uri, local=local, batch_size=source.batch_size, shuffle=False
    )
    return streaming.StreamingDataLoader(
        dataset, batch_size=source.batch_size, num_workers=source.workers, collate_fn=list
    )


def _litdata(source: Source) -> Any:
    import litdata

    _allow_http()
    cache = source.exits.enter_context(tempfile.TemporaryDirectory(prefix="litdata-", ignore_cleanup_errors=True))
    dataset = litdata.StreamingDataset(source.channel.s3_uri, cache_dir=cache, shuffle=False)
    return litdata.StreamingDataLoader(
        dataset,
        batch_size=source.batch_size,
        num_workers=source.workers,
        collate_fn=_fields,
        worker_init_fn=_allow_http,
    )


def _allow_http(worker: int = 0) -> None:
    """Let litdata's client, obstore, use a store without TLS, for which litdata has no setting."""
    if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") and find_spec("obstore"):
        module: Any = import_module("obstore.store")
        store = module.S3Store
        module.S3Store = lambda *args, client_options, **options: store(
            *args, client_options={**client_options, "allow_http": True}, **options
        )


def _fields(samples: list[dict[str, Any]]) -> list[dict[str, bytes]]:
    """Return the samples as bytes that pickle: litdata yields views of its chunks."""
    return [{name: bytes(value) for name, value in sample.items() if name != "__key__"} for sample in samples]


MDS = Way(
    name="mds",
    title="MosaicML Streaming (MDS)",
    row=0,  # none of its own
    arrivals=("s3",),
    needs=(Need("streaming", "pip install mosaicml-streaming"), Need("torchvision", "pip install torchvision")),
    formats=("mds",),
    open=_mds,
)
LITDATA = Way(
    name="litdata",
    title="litdata",
    row=0,  # none of its own
    arrivals=("s3",),
    needs=(Need("litdata", "pip install litdata"),),
    formats=("litdata",),
    open=_litdata,
)
