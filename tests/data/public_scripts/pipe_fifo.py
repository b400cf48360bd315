"""The Pipe channel `train`, read from its FIFOs as SageMaker's examples do: one per epoch."""

import io
import tarfile
import zlib

for epoch in range(2):
    data = io.BytesIO()
    with open(f"/opt/ml/input/data/train_{epoch}", "rb", buffering=0) as fifo:  # noqa: PTH123
        while chunk := fifo.read(65536):
            data.write(chunk)
    data.seek(0)
    with tarfile.open(fileobj=data, ignore_zeros=True) as shards:
        images = [shards.extractfile(member).read() for member in shards if member.name.endswith(".png")]
print("pipe_fifo", len(images), sum(map(zlib.crc32, images)))
