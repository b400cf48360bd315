"""One reader in a process of its own, which says how its memory grew: `python streams.py WAY ROOT [THREADS]`.

It prints megabytes above what the imports took: the most in the first tenth of the samples, and the most of all. The
kernel counts them (VmHWM), for this process alone; so a reader of several processes is to be asked in another way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

STATUS = Path("/proc/self/status")


def main() -> None:
    way, root, expected = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    import os

    from sagemaker_channels import load_environment, open_channel

    environment = load_environment(root, dict(os.environ))
    reading: dict[str, Any] = {"seed": 7} if way == "shuffled" else {}
    if way == "threads":
        from sagemaker_channels.torch_data.dataset import ChannelDataset
        from sagemaker_channels.torch_data.loader import ThreadLoader

        samples: Any = ThreadLoader(
            ChannelDataset("train", environment=environment), 64, num_workers=4, collate_fn=list
        )
        step = 64
    else:
        # What the readers and formats import when they are first used belongs to the imports.
        import crc32c  # noqa: F401
        import numpy  # noqa: F401
        import pyarrow.parquet  # noqa: F401

        if environment.channels["train"].mode == "S3Connector":
            import s3torchconnector  # noqa: F401
        samples = open_channel("train", environment=environment, **reading)
        step = 1
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak (VmHWM)
    before = kilobytes("VmHWM:")
    count = 0
    first = 0
    for _ in samples:
        count += step
        if not first and count >= expected // 10:
            first = kilobytes("VmHWM:")
    print(count, (first - before) / 1e3, (kilobytes("VmHWM:") - before) / 1e3, flush=True)


def kilobytes(name: str) -> int:
    """A line of the kernel's account of this process."""
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(name))


if __name__ == "__main__":
    main()
