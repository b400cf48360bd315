"""The nearest name for a misspelt one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that `name` probably means, ignoring case; None if no name is near.

    This is the only one that begins with it, the only one that ends with it after a dot, or else the most similar one.
    """
    names = list(names)
    begun = [known for known in names if len(name) > 1 and known.casefold().startswith(name.casefold())]
    if len(begun) == 1:
        return begun[0]
    ended = [known for known in names if known.casefold().endswith(f".{name.casefold()}")]
    if len(ended) == 1:
        return ended[0]
    import difflib  # only mistakes need it

    by_folded = {known.casefold().replace("_", ""): known for known in names}
    found = difflib.get_close_matches(name.casefold().replace("_", "").replace("-", ""), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?`, or an empty text if no name is near."""
    found = nearest(name, names)
    return f"; did you mean {found}?" if found else ""


def did_you_mean_path(path: str | Path, fits: Callable[[Path], bool] = Path.exists) -> str:
    """Return `; did you mean X?` for a path that does not exist, or an empty text if no file beside it is near.

    Suffixes are not compared, so `job.yml` finds `job.yaml`. Only files that `fits` accepts are suggested.
    """
    path = Path(path)
    try:
        names = {entry.stem: entry.name for entry in path.parent.iterdir() if fits(entry)}
    except OSError:  # without the folder's list there is no hint
        return ""
    found = nearest(path.stem, names)
    return f"; did you mean {names[found]}?" if found else ""
