"""A job with a channel of objects, and one of lines: their number is unknown, and other on each rank."""

from __future__ import annotations

import json
from pathlib import Path


def make_job(root: Path, objects: int, files: int = 5, lines: int = 13, name: str = "objects") -> Path:
    """Write the numbers from 0 on into an object each (channel `name`), and into lines (channel `lines`)."""
    config = {}
    for channel, count, each in ((name, objects, 1), ("lines", files, lines)):
        folder = root / "input/data" / channel
        folder.mkdir(parents=True)
        for number in range(count):
            text = "".join(f"{line}\n" for line in range(number * each, (number + 1) * each))
            (folder / f"{number:03}").write_text(text)
        config[channel] = {"TrainingInputMode": "File"} | ({"ContentType": "text/plain"} if channel == "lines" else {})
    (root / "input/config").mkdir()
    (root / "input/config/inputdataconfig.json").write_text(json.dumps(config))
    return root
