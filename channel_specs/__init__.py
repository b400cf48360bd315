"""The bundled specs: complete, runnable jobs, one per storage kind and mode, as examples, templates and test cases.

    launch channel_specs/s3-pipe-tar.yaml --dry-run

All read the demo data (`python -m launcher.demo DIR`), so each runs locally with `--local --data DIR`. For AWS, replace
my-bucket, the role, the file systems and the network by your own. The first line of each is its summary.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
_ENDING = ".yaml"
_TEMPLATES = ("measure", "reshard")  # of the commands of these names


def names() -> tuple[str, ...]:
    """Return the specs' names, sorted."""
    return tuple(sorted(file.stem for file in _FOLDER.glob(f"*{_ENDING}")))


def path(name: str) -> Path:
    """Return the file of a bundled spec. Raises KeyError, with all names, for an unknown one."""
    if name not in names():
        raise KeyError(f"there is no bundled spec {name!r}; choose one of {', '.join(names())}")
    return _FOLDER / f"{name}{_ENDING}"


def is_template(file: str) -> bool:
    """Return whether a file is the bundled spec of a command, whose role, image and machine only stand for the user's."""
    return Path(file).parent == _FOLDER and Path(file).stem in _TEMPLATES


def summary(name: str) -> str:
    """Return a bundled spec's first line, a sentence on what it shows."""
    return path(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
