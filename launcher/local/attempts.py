"""The attempts of a local run: after a spot interruption the job starts again, with its checkpoints and without anything else."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from launcher.errors import RefusedError, TrainingFailedError
from launcher.local.channels.delivery import Delivery, provide
from launcher.local.channels.stores import Store
from launcher.local.checkpoints import Checkpoints
from launcher.local.fidelity import note_channel, note_facts
from launcher.local.hosts import prepare_host, write_code
from launcher.local.leftovers import remove_tree
from launcher.local.report import announce
from launcher.local.runs import note_begin
from launcher.local.state import LocalRun
from launcher.local.watch import INTERRUPTED, PlannedEnd, RunResult, Stops, watch
from launcher.local.workspace import HostProcess, LocalOptions, refuse_full_disk
from sagemaker_channels import contract


def run_attempts(run: LocalRun, store: Store, file_systems: Mapping[str, Path], stops: Stops) -> RunResult:
    """Run the job to its end and return its result.

    If the first attempt cannot start, RefusedError is raised and the run's folder removed, so that its name is free.
    """
    request, options = run.plan.request, run.options
    begun, started, interruptions = time.monotonic(), False, 0
    total = outcome = RunResult(INTERRUPTED)
    with ExitStack() as undone:
        undone.callback(shutil.rmtree, run.folder, ignore_errors=True)
        run.stored(request["OutputDataConfig"]["S3OutputPath"]).mkdir(parents=True)
        note_begin(run)
        announce(run)
        checkpoints = Checkpoints(run, store)
        while outcome.secondary == INTERRUPTED:
            outcome = RunResult("Failed")
            try:
                stops.release()
                with refuse_full_disk(run.folder), ExitStack() as stack:
                    run.transitions.begin("Downloading")
                    failures: list[Exception] = []
                    hosts = delivered(run, store, file_systems, checkpoints, failures.append, stack)
                    if not started:
                        note_facts(run, store, hosts[0])
                    undone.pop_all()
                    started = True
                    run.transitions.begin("Training")
                    end = planned_end(request, options, total.seconds, time.monotonic() - begun, interruptions)
                    with checkpoints.stored_meanwhile():
                        outcome = watch(hosts, run, failures, end, stops)
                    checkpoints.store()
            except KeyboardInterrupt:
                if not started:
                    raise
                outcome = RunResult("Stopped", exit_code=130)
            except RefusedError as error:
                if not started:
                    raise
                if outcome.exit_code == TrainingFailedError.exit_code:  # the job's own failure came first
                    run.console.warn(str(error))
                else:
                    code = TrainingFailedError.exit_code
                    outcome = replace(outcome, secondary="Failed", exit_code=code, reason=str(error))
            stops.held = True
            checkpoints.forget()
            seconds, metrics = total.seconds + outcome.seconds, {**total.metrics, **outcome.metrics}
            total = replace(outcome, seconds=seconds, metrics=metrics, waits=outcome.waits or total.waits)
            if outcome.secondary == INTERRUPTED:
                interruptions += 1
                run.transitions.begin(INTERRUPTED)
                for host in run.hosts:
                    remove_tree(run.host_folder(host), run.console.warn)
                has_state = "CheckpointConfig" in request
                state = "its checkpoints" if has_state else "no state, since it has no checkpoint_config"
                run.console.say(f"interrupted: the job starts again, with {state}", "yellow")
    if options.interrupt_at is not None and not interruptions and total.secondary == "Completed":
        run.console.warn(
            f"--interrupt-at: the job ended before a line with {options.interrupt_at!r} could interrupt it"
        )
    return total


def planned_end(
    request: Mapping[str, Any], options: LocalOptions, trained: float, waited: float, interruptions: int
) -> PlannedEnd:
    """Return what ends an attempt if the job does not: a limit of the request, or an end that the user has asked for.

    `trained` are the seconds of the attempts before, whose number is `interruptions`, and `waited` those since the run's start.
    """
    stopping = request.get("StoppingCondition", {})
    ends = [PlannedEnd()]
    # As in SageMaker, both limits are those of all attempts together.
    for limit, status, passed in (
        ("MaxRuntimeInSeconds", "MaxRuntimeExceeded", trained),
        ("MaxWaitTimeInSeconds", "MaxWaitTimeExceeded", waited),
    ):
        if limit in stopping:
            ends.append(PlannedEnd(stopping[limit] - passed, status, f"{limit} ({stopping[limit]}) is over"))
    if options.stop_after is not None:
        ends.append(PlannedEnd(options.stop_after - trained, "Stopped", f"--stop-after {options.stop_after:g}s"))
    if options.interrupt_after is not None and not interruptions:
        ends.append(PlannedEnd(options.interrupt_after, INTERRUPTED))
    return replace(min(ends, key=attrgetter("seconds")), interrupt_at=None if interruptions else options.interrupt_at)


def delivered(
    run: LocalRun,
    store: Store,
    file_systems: Mapping[str, Path],
    checkpoints: Checkpoints,
    on_error: Callable[[Exception], None],
    stack: ExitStack,
) -> list[HostProcess]:
    """Make all hosts, with their channels and checkpoints, until the stack is closed."""
    for host in run.hosts:
        write_code(run, host)
    deliveries = _deliveries(run, store, file_systems, on_error)
    with run.console.progress("reading the channels") as advance:
        binds = stack.enter_context(provide(*(replace(each, on_bytes=advance) for each in deliveries)))
    processes = []
    for host in run.hosts:
        # Not below the run's folder: sockets in it, such as multiprocessing's, need short paths.
        temporary = stack.enter_context(TemporaryDirectory(dir=run.scratch, ignore_cleanup_errors=True))
        own = [bind for bind in binds if run.root(host) in bind.target.parents]
        process = prepare_host(run, host, store, temporary)  # first: it makes all folders except those for checkpoints
        processes.append(replace(process, binds=(*own, *process.binds, *checkpoints.place(host))))
    run.runner.prepare(processes)
    return processes


def _deliveries(
    run: LocalRun, store: Store, file_systems: Mapping[str, Path], on_error: Callable[[Exception], None]
) -> Iterator[Delivery]:
    """Yield the deliveries to all hosts: all their channels except the code."""
    for host in run.hosts:
        for entry in run.channels(host):
            if entry["ChannelName"] != contract.CODE_CHANNEL or run.plan.code is None:
                yield Delivery(
                    channel=entry,
                    host=host.name,
                    hosts=run.sharing(entry),
                    data_dir=run.root(host) / contract.DATA_DIR,
                    scratch=run.host_folder(host) / "scratch" / entry["ChannelName"],
                    store=store,
                    file_systems=file_systems,
                    namespaces=run.runner.mounts,
                    overlays=run.runner.mounts and run.runner.image is None,
                    other_users=run.runner.other_users,
                    sample=run.options.sample,
                    on_delivered=partial(note_channel, run, entry),
                    on_warning=lambda text: run.console.warn(run.named(text)),
                    on_error=on_error,
                )
