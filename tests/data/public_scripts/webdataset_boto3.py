"""WebDataset whose `url_opener` is replaced: boto3 downloads each shard into memory."""

import io
import zlib

import boto3
import webdataset as wds
from torch.utils.data import DataLoader


def url_opener(data, handler=wds.reraise_exception, **kwargs):
    s3 = boto3.client("s3")
    for sample in data:
        bucket, key = sample["url"].removeprefix("s3://").split("/", 1)
        stream = io.BytesIO()
        s3.download_fileobj(bucket, key, stream)
        stream.seek(0)
        sample.update(stream=stream)
        yield sample


wds.tariterators.url_opener = url_opener
dataset = wds.DataPipeline(
    wds.SimpleShardList("s3://bucket/shards/{000000..000001}.tar"),
    wds.split_by_worker,
    wds.tarfile_to_samples(),
    wds.to_tuple("png", "cls"),
)
images = [image for image, label in DataLoader(dataset, batch_size=None, num_workers=2)]
print("webdataset_boto3", len(images), sum(map(zlib.crc32, images)))
