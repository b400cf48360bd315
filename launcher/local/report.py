"""The messages of a local run before its start, and its result."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from launcher.console import Console, counted, human_bytes, print_line, shown_path
from launcher.errors import RefusedError, TrainingFailedError
from launcher.jobs.causes import SCRIPT_FAILED, Cause, likely_cause
from launcher.jobs.lines import Line
from launcher.jobs.outcome import Outcome, plain_data
from launcher.jobs.submission import mask_settings
from launcher.jobs.waits import as_data
from launcher.local.fidelity import in_rows
from launcher.local.leftovers import remove_tree
from launcher.local.runs import RESULT, RUN
from launcher.local.state import LocalRun
from launcher.local.watch import RunResult
from launcher.local.workspace import Host
from sagemaker_channels import contract
from sagemaker_channels.mask import Mask
from sagemaker_channels.start.failure import shell_code
from sagemaker_channels.start.references import mask_of

_WITHOUT_MODEL = (*contract.TOOLS, f"{contract.SCRIPTS_DIR}/read_channels.py")
_TENSORBOARD = "output/tensorboard"  # SageMaker's default of LocalPath
_LAST_BYTES = 64 * 1024  # at the end of a host's log, which are searched for the cause of a failure


def announce(run: LocalRun) -> None:
    """Print the job, its hosts, and each channel: where it is read from and how."""
    given = dict(text.split("=", 1) for text in run.options.channels)
    spec, name = run.plan.spec, run.plan.request["TrainingJobName"]
    count = counted(len(run.hosts), "host")
    run.console.say(f"{name}: {count} in {shown_path(run.folder)}", "cyan")
    width = max(map(len, spec.all_channels), default=0)
    for name, channel in spec.all_channels.items():
        place = f", from {given[name]}" if name in given else ""
        run.console.say(f"  {name:{width}}  {channel.described(spec.training_input_mode)}{place}")
    if run.plan.code is not None and (code := run.plan.code.described()) is not None:
        run.console.say(f"  code: {code}")


def report(run: LocalRun, outcome: RunResult) -> Outcome:
    """Keep the job's outputs, delete the rest, and print and return the result. Raises RefusedError if its folder is gone."""
    if not (run.folder / RUN).exists():
        raise RefusedError(f"{run.folder} was removed during the run, and with it the job's outputs; run it again")
    run.transitions.begin("Uploading")
    for host in run.hosts:
        code = (contract.BUNDLE_DIR, f"{contract.DATA_DIR}/{contract.CODE_CHANNEL}")  # these are in the folder `s3` too
        for leftover in ("scratch", "stage", "home", *(f"ml/{each}" for each in code)):
            remove_tree(run.host_folder(host) / leftover, run.console.warn)
    mask = mask_of(run.secrets)
    mask_settings(run.plan, mask, likely=True)
    written = [_written_reason(run, host, mask) for host in run.hosts]
    reason, cause, artifacts = mask.apply(outcome.reason), None, {}
    if outcome.status == "Failed" and not reason:
        reason = _failure_reason(outcome.exit_codes, written)
        cause = _likely_cause(run, outcome, reason, mask)
    try:
        with run.console.progress("packing the outputs (cannot be interrupted)", counted=False):
            artifacts = _collect_outputs(run, failed=outcome.status == "Failed")
    except OSError as error:
        what = f"{shown_path(error.filename or run.folder)}: the outputs cannot be packed: {error.strerror}"
        run.console.warn(f"{what}; they are still below {shown_path(run.folder)}")
        if outcome.status != "Failed":
            outcome, reason = replace(outcome, secondary="Failed", exit_code=TrainingFailedError.exit_code), what
    run.transitions.begin(outcome.secondary)
    result: dict[str, Any] = {
        "TrainingJobName": run.plan.request["TrainingJobName"],
        "TrainingJobStatus": outcome.status,
        "SecondaryStatus": outcome.secondary,
        "FailureReason": reason,
        **({"LikelyCause": cause.as_data()} if cause else {}),
        "TrainingTimeInSeconds": round(outcome.seconds, 1),
        "Interruptions": sum(each["Status"] == "Interrupted" for each in run.transitions),
        "SecondaryStatusTransitions": run.transitions,
        "Metrics": plain_data(outcome.metrics),
        **as_data(outcome.waits),
        "Artifacts": artifacts,
        **({"Tags": tags} if (tags := run.asked.get("Tags")) else {}),
        "WritesModel": run.plan.spec.code is None or run.plan.spec.code.entry_point not in _WITHOUT_MODEL,
        "Fidelity": run.facts,
        "Folder": str(run.folder),
    }
    try:
        (run.folder / RESULT).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        run.console.warn(f"{shown_path(run.folder)}/result.json cannot be written: {error.strerror}")
    if run.options.as_json:
        print_line(json.dumps(result, indent=2))
    show(result, run.console, verbose=run.options.verbose)
    model = {"ModelArtifacts": {"S3ModelArtifacts": artifacts["model"]}} if "model" in artifacts else {}
    ended = Outcome({**result, **model}, outcome.metrics, waits=outcome.waits, folder=run.folder)
    return replace(ended, local_exit_code=outcome.exit_code)


def _collect_outputs(run: LocalRun, *, failed: bool) -> dict[str, str]:
    """Write model and output artifacts of all hosts as SageMaker does; return those written, name -> path.

    A failed job has no model; its output data is kept, as it may show the reason.
    """
    config = run.plan.request["OutputDataConfig"]
    place = run.stored(config["S3OutputPath"]) / run.plan.request["TrainingJobName"] / "output"
    artifacts = {}
    for name, folder, plain in (("model", contract.MODEL_DIR, "model"), ("output", contract.OUTPUT_DATA_DIR, "data")):
        paths = [path for host in run.hosts if (path := _of_job(run, host, folder))]
        folders = [path for path in paths if path.is_dir() and any(path.iterdir())]
        if not folders or (failed and name == "model"):
            continue
        place.mkdir(parents=True, exist_ok=True)
        is_plain = config.get("CompressionType") == "NONE"
        target = place / (plain if is_plain else f"{name}.tar.gz")
        with TemporaryDirectory(prefix=".", dir=place) as unfinished:
            (_copy if is_plain else _archive)(folders, Path(unfinished, "all"))
            Path(unfinished, "all").rename(target)
        artifacts[name] = str(target)
    if board := run.plan.request.get("TensorBoardOutputConfig"):
        path = board.get("LocalPath", f"{contract.BASE_DIR}/{_TENSORBOARD}").removeprefix(f"{contract.BASE_DIR}/")
        folders = [found for host in run.hosts if (found := _of_job(run, host, path)) and found.is_dir()]
        if folders:
            target = run.stored(board["S3OutputPath"]) / run.folder.name / "tensorboard-output"
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(folders, target)
            artifacts["tensorboard"] = str(target)
    return artifacts


def _of_job(run: LocalRun, host: Host, name: str) -> Path | None:
    """Return a path below the host's /opt/ml; None if the job has put a link there that leads to this machine's other files."""
    path = run.root(host) / name
    return path if Path(os.path.realpath(path)).is_relative_to(run.root(host).resolve()) else None


def _merged(folders: Sequence[Path]) -> dict[Path, Path]:
    """Return what all hosts wrote, by relative path; of the same path, the last host's stays, as in SageMaker."""
    return {file.relative_to(folder): file for folder in folders for file in sorted(folder.rglob("*"))}


def _copy(folders: Sequence[Path], target: Path) -> None:
    """Copy the files of all hosts, as S3 stores them: without links and empty folders; a link to one of the files is a copy."""
    target.mkdir()
    own = [folder.resolve() for folder in folders]
    for name, file in _merged(folders).items():
        source = Path(os.path.realpath(file))  # unlike `resolve`, also for a link to itself
        if source.is_file() and any(source.is_relative_to(folder) for folder in own):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def _archive(folders: Sequence[Path], target: Path) -> None:
    """Write one archive of what all hosts wrote."""
    with tarfile.open(target, "w:gz", compresslevel=3) as tar:
        for name, file in _merged(folders).items():
            tar.add(file, arcname=name.as_posix(), recursive=False)


def _failure_reason(exit_codes: Sequence[int], written: Sequence[str]) -> str:
    """Return FailureReason: what the first failed host has written, else its exit code."""
    for code, text in zip(exit_codes, written, strict=True):
        if code:
            shown = f"signal {-code}" if code < 0 else f"exit code {code}"
            return text or f"the entrypoint ended with {shown} and wrote no failure file"
    return ""


def _written_reason(run: LocalRun, host: Host, mask: Mask) -> str:
    """Return what a host's `failure` file has, masked; the file stays so, too."""
    file = _of_job(run, host, contract.FAILURE_FILE)
    if not file or not file.is_file():
        return ""
    with file.open(encoding="utf-8", errors="replace") as opened:
        written = opened.read(4 * contract.FAILURE_LIMIT)  # not all of a file that may be huge
    if (text := mask.apply(written)) != written:
        file.unlink()  # it may be read-only
        file.write_text(text, encoding="utf-8")
    return text.strip()[: contract.FAILURE_LIMIT]


def _likely_cause(run: LocalRun, outcome: RunResult, reason: str, mask: Mask) -> Cause | None:
    """Return the likely cause of a failure, as for a job in AWS; None if only the script's own error is known."""
    failed = [host for host, code in zip(run.hosts, outcome.exit_codes, strict=True) if code]
    code = next((code for code in outcome.exit_codes if code), 0)
    text, lines = f"AlgorithmError: {reason}, exit code: {shell_code(code)}", []
    for host in failed:
        with (run.folder / f"{host.name}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            written = log.read().decode("utf-8", "replace")
        # Without namespaces, the script's paths differ from those that the causes match.
        text, written = (each.replace(str(run.root(host)), contract.BASE_DIR) for each in (text, written))
        lines += [Line(0, host.name, line) for line in mask.apply(written).splitlines()]
    machine = {"InstanceType": "this machine", "InstanceCount": len(run.hosts)}
    job = {**run.plan.request, "TrainingJobStatus": "Failed", "FailureReason": text, "ResourceConfig": machine}
    if run.runner.image is None:
        job["Python"] = sys.executable
    cause = likely_cause(job, lines)
    return cause if cause and cause.code != SCRIPT_FAILED else None


def show(result: Mapping[str, Any], console: Console, *, verbose: bool = True) -> None:
    """Print the result of a run, as `result.json` has it; if `verbose`, with each fact about its fidelity."""
    metrics = {name: math.nan if value is None else value for name, value in result["Metrics"].items()}
    Outcome(result, metrics).show(console, _rows(result, verbose=verbose))


def _rows(result: Mapping[str, Any], *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield what the report of a local run has besides that of a job in AWS, as (title, text)."""
    folder = Path(result["Folder"])
    if result["TrainingJobStatus"] == "Completed" and "model" not in result["Artifacts"] and result["WritesModel"]:
        yield "model", f"none, since {contract.BASE_DIR}/{contract.MODEL_DIR} is empty"
    for name, path in result["Artifacts"].items():
        yield name, f"{shown_path(path)} ({human_bytes(_size(Path(path)))})"
    yield from in_rows(result["Fidelity"], verbose=verbose)
    yield "folder", shown_path(folder)
    yield "logs", ", ".join(shown_path(log) for log in sorted(folder.glob("algo-*.log")))
    for waits in result.get("Waits", {}).values():
        yield "waits", waits["Report"]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
