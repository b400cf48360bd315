"""What a local run says of itself: before it starts, and how it ended."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

from launcher.console import human_bytes, shown_path
from launcher.local import outputs
from launcher.local.watch import Outcome
from launcher.local.workspace import LocalRun


def announce(run: LocalRun) -> None:
    """The job, its hosts, and each channel: where it lies and how it arrives."""
    spec, count = run.plan.spec, len(run.hosts)
    run.console.say(
        f"{run.plan.request['TrainingJobName']}: {count} host{'s' * (count > 1)} in {shown_path(run.folder)}", "cyan"
    )
    width = max(map(len, spec.all_channels), default=0)
    for name, channel in spec.all_channels.items():
        run.console.say(f"  {name:{width}}  {channel.described(spec.training_input_mode)}")


def report(run: LocalRun, outcome: Outcome) -> int:
    """Keep what the job left behind, drop the rest, and say how it ended; returns the command's exit code."""
    roots = [run.root(host) for host in run.hosts]
    with run.console.progress("packing what the job left (cannot be stopped)", counted=False):
        artifacts = outputs.collect_outputs(run.plan.request, roots, run.s3_folder, failed=outcome.status == "Failed")
    reason = outcome.reason or (outputs.failure_reason(roots, outcome.exit_codes) if outcome.status == "Failed" else "")
    result: dict[str, Any] = {
        "TrainingJobName": run.plan.request["TrainingJobName"],
        "TrainingJobStatus": outcome.status,
        "FailureReason": reason,
        "TrainingTimeInSeconds": round(outcome.seconds, 1),
        # JSON has no NaN, and a training that diverged has nothing else to report.
        "Metrics": {name: value if math.isfinite(value) else None for name, value in outcome.metrics.items()},
        "Artifacts": artifacts,
        "Folder": str(run.folder),
    }
    (run.folder / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for host in run.hosts:
        for leftover in ("scratch", "stage", "home"):
            shutil.rmtree(run.host_folder(host) / leftover, ignore_errors=True)
    if run.options.as_json:
        print(json.dumps(result, indent=2))  # noqa: T201 - the answer that --json asked for
    _summarise(run, result, outcome)
    return outcome.exit_code


def _summarise(run: LocalRun, result: dict[str, Any], outcome: Outcome) -> None:
    say = run.console.say
    colour = {"Completed": "green", "Failed": "red"}.get(result["TrainingJobStatus"], "yellow")
    say()
    say(f"{result['TrainingJobName']}: {result['TrainingJobStatus']} after {result['TrainingTimeInSeconds']} s", colour)
    if result["FailureReason"]:
        say(f"  reason   {result['FailureReason']}")
    for name, value in outcome.metrics.items():
        say(f"  metric   {name} = {value:g}")
    for name, path in result["Artifacts"].items():
        say(f"  {name:8} {shown_path(path)} ({human_bytes(_size(Path(path)))})")
    say(f"  logs     {', '.join(shown_path(run.folder / f'{host.name}.log') for host in run.hosts)}")


def _size(path: Path) -> int:
    return (
        path.stat().st_size
        if path.is_file()
        else sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    )
