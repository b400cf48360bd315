"""WebDataset over the shards of the channel `training`."""

import os
import zlib
from pathlib import Path

import webdataset as wds

urls = [str(path) for path in sorted(Path(os.environ["SM_CHANNEL_TRAINING"]).glob("*.tar"))]
dataset = wds.WebDataset(urls, shardshuffle=False).to_tuple("png", "cls").batched(4)
loader = wds.WebLoader(dataset, batch_size=None, num_workers=2)
images = [image for batch, labels in loader for image in batch]
print("webdataset_channel", len(images), sum(map(zlib.crc32, images)))
