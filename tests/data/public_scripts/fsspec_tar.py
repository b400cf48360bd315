"""fsspec's openers feeding a tar loader, which is what TorchData's FSSpecFileOpener was."""

import tarfile
import zlib

import fsspec

images = []
for file in fsspec.open_files("s3://bucket/shards/*.tar", mode="rb"):
    with file as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        images += [tar.extractfile(member).read() for member in tar if member.name.endswith(".png")]
print("fsspec_tar", len(images), sum(map(zlib.crc32, images)))
