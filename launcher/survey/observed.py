"""What was observed of the data by `launch measure`, in its measure.json."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

from launcher.advice.facts import Observed
from launcher.advice.ways import WAYS
from launcher.errors import InputError
from sagemaker_channels.tools.results import FILE, Results, summary, table
from sagemaker_channels.tools.ways import FILE_SYSTEMS

_LARGE = 1 << 20  # bytes; a request for less takes longer than its bytes
_NOT_S3 = ("file", "plain-file", *FILE_SYSTEMS)  # ways that read a disk or a file system


def read_results(file: Path) -> Results:
    """Return the results in a file, which `table` can show. Raises InputError if it cannot be read or has none."""
    with _refused(str(file)):
        results: Results = json.loads(file.read_text(encoding="utf-8"))
        table(results)
    return results


@contextmanager
def _refused(place: str) -> Iterator[None]:
    """Raise InputError for a file that cannot be read, or without what is read from it."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror}; correct the path") from None
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise InputError(
            f"{place}: was not written by this version of `launch measure`; {FILE} is among the outputs of its job"
        ) from None


def read_measured(file: Path) -> Observed:
    """Return what was measured: time per object or bytes per second, and with a step how fast the model is.

    Raises InputError if the file cannot be read, or is no measure.json with a measured way.
    """
    with _refused(f"--measured {file}"):
        return _observed(json.loads(file.read_text(encoding="utf-8")), file)


def _observed(results: Results, file: Path) -> Observed:
    rows = {row["name"]: row for row in summary(results) if "rounds" in row and row["name"] not in _NOT_S3}
    steps = [run["cached_step"] for way in results["ways"] for run in way["runs"] if run.get("cached_step")]
    sizes = [way["bytes"] / way["samples"] for way in results["ways"] if way.get("samples")]
    workers, is_empty = max(results["num_workers"], 1), not results["step"]
    if not rows and not steps:
        raise InputError(
            f"--measured {file}: no way that reads S3 was measured; measure fast-file or connector-iterable"
        )
    seen: dict[str, float] = {"samples_per_s": results["batch_size"] / statistics.median(steps)} if steps else {}
    streams = 0
    if is_empty and results["format"] == "objects" and statistics.median(sizes) < _LARGE:
        if "fast-file" in rows:  # each worker reads one object at a time
            seen["latency_s"] = workers / rows["fast-file"]["samples_per_second"]
    elif is_empty:
        name, rate = max(((name, row["megabytes_per_second"] * 1e6) for name, row in rows.items()), key=itemgetter(1))
        seen["bytes_per_s"] = rate
        streams = workers if name == "fast-file" else int(WAYS["S3Connector"].streams or 0)
    return Observed(source=f"{file}, measured on {results['machine']['date']}", streams=streams, **seen)
