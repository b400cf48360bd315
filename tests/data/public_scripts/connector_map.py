"""The S3 connector's map-style dataset, with a transform."""

import zlib

from s3torchconnector import S3MapDataset
from torch.utils.data import DataLoader

DATASET_URI = "s3://bucket/images/"
REGION = "us-east-1"


def transform(object):
    return object.key, object.read()


dataset = S3MapDataset.from_prefix(DATASET_URI, region=REGION, transform=transform)
loader = DataLoader(dataset, batch_size=4, num_workers=2, shuffle=True)
images = [image for keys, batch in loader for image in batch]
print("connector_map", len(images), sum(map(zlib.crc32, images)))
