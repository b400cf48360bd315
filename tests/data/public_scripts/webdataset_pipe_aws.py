"""WebDataset over the AWS CLI, as its documentation has it."""

import zlib

import webdataset as wds

url = "pipe:aws s3 cp s3://bucket/shards/{000000..000001}.tar -"
dataset = wds.WebDataset(url, shardshuffle=False).to_tuple("png", "cls")
images = [image for image, label in dataset]
print("webdataset_pipe_aws", len(images), sum(map(zlib.crc32, images)))
