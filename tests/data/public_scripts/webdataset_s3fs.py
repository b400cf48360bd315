"""WebDataset over s3fs's file objects, in workers that are spawned, since s3fs does not survive a fork."""

import zlib

import s3fs
import webdataset as wds
from torch.utils.data import DataLoader
from webdataset.gopen import gopen_schemes


def open_s3(url, mode="rb", bufsize=8192, **kwargs):
    return s3fs.S3FileSystem().open(url, mode)


gopen_schemes["s3"] = open_s3

if __name__ == "__main__":
    urls = ["s3://" + path for path in s3fs.S3FileSystem().glob("bucket/shards/*.tar")]
    dataset = wds.WebDataset(urls, shardshuffle=False).to_tuple("png", "cls")
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    images = [image for image, label in loader]
    print("webdataset_s3fs", len(images), sum(map(zlib.crc32, images)))
