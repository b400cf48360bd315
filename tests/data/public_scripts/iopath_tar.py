"""iopath's openers feeding a tar loader, which is what TorchData's IoPathFileOpener was."""

import tarfile
import zlib

from iopath.common.file_io import PathManager
from iopath.common.s3 import S3PathHandler

path_manager = PathManager()
path_manager.register_handler(S3PathHandler(profile=None))

images = []
for key in path_manager.ls("s3://bucket/shards/"):
    with path_manager.open(f"s3://bucket/{key}", "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        images += [tar.extractfile(member).read() for member in tar if member.name.endswith(".png")]
print("iopath_tar", len(images), sum(map(zlib.crc32, images)))
