"""Energon, the loader of Megatron, over WebDataset shards in a folder."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sagemaker_channels.ways.card import Need, Source, Way, paths
from sagemaker_channels.ways.ours import FOLDERS


def _open(source: Source) -> Any:
    """Index the shards, which Energon does by reading them once, and read them as one epoch without shuffling."""
    from megatron import energon
    from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

    class Encoder(energon.TaskEncoder):  # type: ignore[misc]
        cookers = (energon.Cooker(energon.stateless(lambda sample: sample)),)
        decoder = None

        def batch(self, samples: Sequence[Any]) -> list[Any]:
            return list(samples)

    folder = Path(source.exits.enter_context(tempfile.TemporaryDirectory(prefix="energon-")))
    shards = {f"{number:06d}.tar": path for number, path in enumerate(paths(source))}
    for name, path in shards.items():
        (folder / name).symlink_to(path)
    WebdatasetPreparator.prepare_dataset(
        folder, list(shards), split_parts_ratio=[("val", 1.0)], workers=max(1, source.workers)
    )
    (folder / ".nv-meta/dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=source.workers)
    dataset = energon.get_val_dataset(
        folder, worker_config=config, batch_size=source.batch_size, task_encoder=Encoder()
    )
    return energon.get_loader(dataset)


WAY = Way(
    name="energon",
    title="Energon over a folder of shards",
    row=12,
    arrivals=FOLDERS,
    needs=(Need("megatron", "pip install megatron-energon"),),
    formats=("tar",),
    open=_open,
)
