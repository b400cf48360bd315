"""Measure ways to read the same samples: a fresh process per way and round, and a digest that proves that all read the same.

    python entrypoints/measure.py --ways file,fast-file [--format tar] [--rounds 3] [--step 20ms]

`launch measure` fills in the channels by which the samples arrive (sagemaker_channels/tools/ways.py). Round 0 compares digests; the
others interleave the ways, so that a slow minute of the machine or the store meets all of them. After each run
`output/data/measure.json` has what was measured so far. A way that is not installed or fails has the reason there. The options can
be hyperparameters.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from sagemaker_channels.contract import WAITS_VARIABLE
from sagemaker_channels.errors import ChannelError, ConfigError
from sagemaker_channels.formats import SHORT_NAMES, format_of
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sources import mounted
from sagemaker_channels.sources.readers import reader_of
from sagemaker_channels.tools.results import FILE, Results, mark_different, table
from sagemaker_channels.tools.ways import ARRIVALS, WAYS, Source, Way, ways_of

_LOOK_SECONDS = 0.2  # between two looks at the memory of a run
_MOST_SECONDS = 7200  # that a run may take: some libraries hang when their workers fork
_END_SECONDS = 10  # that an interrupted run has to unmount what it has mounted


def main(arguments: Sequence[str] | None = None, script: str = __file__) -> None:
    """Run the script. If nothing can be measured, it ends with one line and exit code 1; `script` is run again for each run."""
    options = _options(arguments)
    try:
        ways, environment = ways_of(options.ways), load_environment()
        if options.one:
            print(json.dumps(_run(WAYS[options.one], options, environment)))
            return
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stopped job ends its run, too
        results = _measure(ways, [sys.executable, script, *_forwarded(options)], options, environment)
    except (ChannelError, ConfigError, ImportError, OSError, ValueError) as error:
        sys.exit(f"measure: {error}")
    except KeyboardInterrupt:
        sys.exit(f"measure: stopped; {FILE} has what was measured before")
    if not any(way["runs"] for way in results["ways"]):
        sys.exit("measure: no way could be measured; the reasons are above")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Measure ways to read the same samples.")
    parser.add_argument("--ways", default=",".join(WAYS), help="names, separated by commas")
    parser.add_argument("--format", default="objects", help="what an object holds, such as tar")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--num-workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", help="module:function of a batch, or a time such as 20ms; empty by default")
    parser.add_argument("--one", choices=WAYS, help="print the JSON of one run of this way")
    parser.add_argument("--epoch", type=int, default=0, help="of --one; epoch 0 returns the digest")
    return parser.parse_args(arguments)


def _forwarded(options: argparse.Namespace) -> list[str]:
    """Return the arguments that all runs have in common."""
    values = {name: vars(options)[name] for name in ("format", "batch_size", "num_workers", "step")}
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None]


def _source(way: Way, options: argparse.Namespace, environment: Environment) -> Source:
    """Return what a way reads here. Raises ChannelError if it cannot read that."""
    if (reason := way.why_not(environment.channels, options.format)) is not None:
        raise ChannelError(reason)
    channel = next(environment.channels[name] for name in way.arrivals if name in environment.channels)
    return Source(environment, channel, options.format, options.batch_size, options.num_workers, options.epoch)


def _run(way: Way, options: argparse.Namespace, environment: Environment) -> dict[str, Any]:
    """Do one run in this process."""
    from sagemaker_channels.tools.measuring import digest, measure, step_of

    source, step = _source(way, options, environment), step_of(options.step) if options.step else None
    if options.epoch == 0:
        if options.format == "objects":
            _check_format(environment)
        return digest(way, source)
    return measure(way, source, step)


def _check_format(environment: Environment) -> None:
    """Raise ChannelError if shards would be read as single objects: batches of them would fill the memory.

    All channels have the same objects, so one that shows their names, a folder if there is one, speaks for a Pipe, too.
    """
    named = [each for name, each in environment.channels.items() if name in ARRIVALS]
    readers = [(each, reader) for each in named if (reader := reader_of(each)) is not None]
    if not readers:
        return
    channel, reader = min(readers, key=lambda each: each[1] is not mounted)
    name = next((reader.key_of(channel, each) for each in reader.objects(channel, 0)), "")
    for form in SHORT_NAMES.values():
        if form.ending is not None and form != format_of("objects") and name.endswith(form.ending):
            raise ChannelError(f"the objects have names like {name}", remedy=f"pass --format {form.name}")


def _measure(
    ways: Sequence[Way], command: Sequence[str], options: argparse.Namespace, environment: Environment
) -> Results:
    """Do all runs by a command, and return the results, which are in the file after each of them."""
    file = environment.output_data_dir / FILE
    rows = [{"name": way.name, "title": way.title, "row": way.row, "runs": []} for way in ways]
    for way, row in zip(ways, rows, strict=True):
        row["error"] = way.missing() or way.why_not(environment.channels, options.format)
    settings = {name: getattr(options, name) for name in ("format", "batch_size", "num_workers", "rounds", "step")}
    results: Results = {**settings, "machine": _machine(), "ways": rows}
    try:
        for number in range(options.rounds + 1):
            able = [row for row in results["ways"] if not row["error"]]
            stage = (
                f"round {number} of {options.rounds}" if number else f"comparing digests before {options.rounds} rounds"
            )
            for index, row in enumerate(able, 1):
                print(f"measure: way {index} of {len(able)} ({row['name']}), {stage}", flush=True)
                found = _child([*command, "--one", row["name"], "--epoch", str(number)], with_memory=number == 0)
                _add(row, number, found)
                _write(file, results)
            if number == 0:
                mark_different(results["ways"])
    finally:  # also if it is interrupted
        _write(file, results)
        print("", *table(results), "", f"all figures: {file}", sep="\n", flush=True)
    return results


def _add(row: dict[str, Any], number: int, found: dict[str, Any]) -> None:
    """Add what a run has found to the way's row, and print it."""
    row["error"] = found.pop("error", None)
    if number and found.get("samples", row["samples"]) != row["samples"]:
        row["error"] = f"round {number} yielded {found['samples']:,} samples of {row['samples']:,}"
    elif number and not row["error"]:
        row["runs"].append(found)
    else:
        row.update(found)
    figures = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in found.items()
    ]
    print(f"measure way={row['name']} round={number} {row['error'] or ' '.join(figures)}", flush=True)


def _child(command: Sequence[str], *, with_memory: bool) -> dict[str, Any]:
    """Do one run in a fresh process, and return its figures, perhaps with the peak of its memory, or its `error`."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), WAITS_VARIABLE: "0"}
    files = partial(tempfile.TemporaryFile, "w+", encoding="utf-8", errors="replace")
    with files() as out, files() as log:
        process = subprocess.Popen(command, stdout=out, stderr=log, env=environ, start_new_session=True)
        memory, deadline = 0, time.monotonic() + _MOST_SECONDS
        try:
            while process.poll() is None and time.monotonic() < deadline:
                if with_memory:  # a look takes time from a measured run
                    memory = max(memory, _memory(process.pid))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_SECONDS)
        finally:
            _end(process)
        out.seek(0)
        log.seek(0)
        printed, problems = out.read().strip(), log.read().strip()
    if process.returncode == 0:
        return {**json.loads(printed.splitlines()[-1]), **({"memory": memory} if memory else {})}
    print(problems, file=sys.stderr, flush=True)
    lines = problems.splitlines() or [f"ended with exit code {process.returncode}"]
    return {"error": lines[-1].removeprefix("measure: ")}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run and its workers, if it has not ended by itself."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _memory(pid: int) -> int:
    """Return the bytes of a process and its descendants, shared ones counted once; 0 for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
        children = [
            child for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
        ]
    except OSError:
        return 0
    own = sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return own + sum(_memory(int(child)) for child in children)


def _machine() -> dict[str, Any]:
    """Return when and where this is measured."""
    packages = {"torch", *(need.name for way in WAYS.values() for need in way.needs)}  # whose versions matter
    names = {name for package, found in packages_distributions().items() if package in packages for name in found}
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "load_at_start": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in sorted(names)},
    }


def _write(file: Path, results: Results) -> None:
    """Replace the file, so that it is complete whenever the measurement is interrupted."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{FILE}")
    unfinished.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(file)


if __name__ == "__main__":
    sys.path.insert(0, "")  # the user's modules come before those beside this script, as with `python -m`
    main()
