"""The bundled specs: complete, runnable jobs, one per storage kind and mode; each is example, template and test case at once.

    launch channel_specs/s3-pipe-tar.yaml --dry-run

All read the demo data (`python -m launcher.demo DIR`), so each runs here with `--local --data DIR`; for AWS, put your own
names in place of my-bucket, the role, the file systems and the network. The first line of each says what it shows.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
_ENDING = ".yaml"


def names() -> tuple[str, ...]:
    """The specs' names, sorted."""
    return tuple(sorted(file.stem for file in _FOLDER.glob(f"*{_ENDING}")))


def path(name: str) -> Path:
    """The file of a bundled spec. Raises KeyError, with the names there are, where there is none of this name."""
    if name not in names():
        raise KeyError(f"there is no bundled spec {name!r}; there are {', '.join(names())}")
    return _FOLDER / f"{name}{_ENDING}"


def summary(name: str) -> str:
    """What a bundled spec shows, in one sentence: its first line."""
    return path(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
