"""The local runs of this folder: what `./.launch` holds of each, in the words of SageMaker's answers.

A run that has ended has a `result.json`. Before that, `run.json` names the process that carries it out.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from launcher.console import counted, human_bytes
from launcher.errors import RefusedError, did_you_mean
from launcher.jobs.lines import Line
from launcher.local.state import LocalRun
from sagemaker_channels.job.process_identity import start_time

RUNS_FOLDER = ".launch"
RESULT = "result.json"
RUN = "run.json"
_LOOK_SECONDS = 0.2  # between two looks at the logs of a run


def note_begin(run: LocalRun) -> None:
    """Write what the run's folder says of it until its end."""
    noted = {
        "CreationTime": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "Process": [os.getpid(), start_time(os.getpid())],
        "InstanceCount": len(run.hosts),
        "Runner": run.options.runner,
        "Request": run.asked,
    }
    (run.folder / RUN).write_text(json.dumps(noted), encoding="utf-8")


def local_runs() -> list[dict[str, Any]]:
    """Return the runs in this folder, the latest first, each as `local_run` does."""
    return sorted(map(_described, _folders().values()), key=lambda run: run["CreationTime"], reverse=True)


def run_names() -> list[str]:
    """Return the names of the runs in this folder, the latest first."""
    return [run["TrainingJobName"] for run in local_runs()]


def local_run(name: str) -> dict[str, Any]:
    """Return a run as DescribeTrainingJob would; `latest` is the latest.

    It has also its `Folder`, its masked `Request`, its `Runner` and `Process`, and if it has ended, its `Result`. Raises
    RefusedError if there is no such run; the message suggests the nearest name.
    """
    folders = _folders()
    if name == "latest" and folders and name not in folders:
        return local_runs()[0]
    if name not in folders:
        what = f"there is no local run {name!r} in ./{RUNS_FOLDER}{did_you_mean(name, list(folders))}"
        raise RefusedError(f"{what}; `launch list --local` shows the existing ones")
    return _described(folders[name])


def how_to_stop(run: Mapping[str, Any]) -> str:
    """Return what stops a described run that has not ended; it may be in the background, without a terminal."""
    return f"press Ctrl-C in its terminal, or `kill {run['Process']}`"


def lines_of(name: str, host: str | None = None, *, follow: bool = False) -> Iterator[Line]:
    """Yield the lines of a run, host by host; with `follow`, as they are written until the run has ended.

    The logs have no times: `timestamp` is the line's number in its host's log.
    """
    files: dict[Path, Any] = {}
    rests: dict[Path, bytes] = {}
    numbers: dict[Path, int] = {}
    is_over = not follow
    with ExitStack() as opened:
        while True:
            is_over = is_over or local_run(name)["TrainingJobStatus"] != "InProgress"
            for path in sorted(Path(RUNS_FOLDER, name).glob(f"{host or 'algo-*'}.log"), key=_number):
                if path not in files:
                    files[path] = opened.enter_context(path.open("rb"))
                for read in files[path]:
                    line = rests.pop(path, b"") + read
                    if not line.endswith(b"\n"):  # The run is writing it.
                        rests[path] = line
                        break
                    numbers[path] = numbers.get(path, 0) + 1
                    yield Line(numbers[path], path.stem, line.decode("utf-8", "replace").rstrip("\n"))
            if is_over:
                return
            time.sleep(_LOOK_SECONDS)


def copy_stored(run: LocalRun, name: str) -> None:
    """Copy what an earlier run has stored in S3, except its outputs and code, into the S3 of a new run; `name` may be `latest`.

    Raises RefusedError if there is no such run, it has not ended, or it has stored no checkpoints.
    """
    request = run.plan.request
    ended = (each["TrainingJobName"] for each in local_runs() if each["TrainingJobStatus"] != "InProgress")
    earlier = next(ended, name) if name == "latest" else name
    described = local_run(earlier)
    if described["TrainingJobStatus"] == "InProgress":
        raise RefusedError(f"--resume {name}: {earlier} has not ended; wait for its end, or stop it")
    # The embedded server's own notes are about files of that run.
    left_out = {run.s3_folder / ".s3", run.stored(request["OutputDataConfig"]["S3OutputPath"]) / earlier}
    left_out |= {run.stored(run.plan.code_uri).parent} if run.plan.code_uri else set()
    source, target = Path(described["Folder"], "s3"), run.s3_folder

    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = target / Path(folder).relative_to(source)
        return {each for each in names if inside / each in left_out}

    shutil.copytree(source, target, ignore=ignored, symlinks=True, dirs_exist_ok=True)
    uri = request.get("CheckpointConfig", {}).get("S3Uri")
    copied = [path for path in (run.stored(uri) if uri else target).rglob("*") if path.is_file()]
    if not copied:
        where = f"at checkpoint_config.s3_uri {uri}" if uri else "in S3, and this spec has no checkpoint_config"
        raise RefusedError(f"--resume {name}: {earlier} has stored no checkpoints {where}; name another run")
    size = human_bytes(sum(path.stat().st_size for path in copied))
    run.console.say(f"  resumes {earlier}: {counted(len(copied), 'file')} ({size})")


def _number(log: Path) -> int:
    return int(log.stem.rpartition("-")[2])


def _folders() -> dict[str, Path]:
    folder = Path(RUNS_FOLDER)
    found = folder.iterdir() if folder.exists() else ()  # iterdir raises PermissionError, which glob hides
    return {path.name: path for path in found if any((path / name).is_file() for name in (RUN, RESULT))}


def _described(folder: Path) -> dict[str, Any]:
    noted, result = _read(folder / RUN), _read(folder / RESULT)
    transitions = result.get("SecondaryStatusTransitions") or [{}]
    created = noted.get("CreationTime") or transitions[0].get("StartTime")
    described = {
        "TrainingJobName": folder.name,
        "TrainingJobStatus": "Stopped",
        "SecondaryStatus": "Killed",
        "CreationTime": _time(created) if created else datetime.fromtimestamp(folder.stat().st_mtime, timezone.utc),
        "AlgorithmSpecification": noted.get("Request", {}).get("AlgorithmSpecification", {}),
        "ResourceConfig": {"InstanceCount": noted.get("InstanceCount", 0)},
        "Folder": str(folder),
        "Request": noted.get("Request", {}),
        "Runner": noted.get("Runner", "process"),
    }
    process, started = noted.get("Process", (0, "none"))
    described["Process"] = process
    if result:
        described |= {name: result[name] for name in ("TrainingJobStatus", "SecondaryStatus")}
        described |= {"TrainingEndTime": _time(transitions[-1]["StartTime"])} if transitions[-1] else {}
        described["Result"] = {**result, "Folder": str(folder)}
    elif start_time(process) == started:
        described |= {"TrainingJobStatus": "InProgress", "SecondaryStatus": "InProgress"}
    return described


def _read(file: Path) -> dict[str, Any]:
    """Return what a file holds; nothing if it is missing, is being written, or its disk was full."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
