"""The local run: a plan carried out on this machine, in the same steps as in SageMaker.

    ./.launch/<job name>/
        s3/<bucket>/...     the job's objects in S3: code, checkpoints, model.tar.gz, output.tar.gz
        algo-1/ml/          the host's /opt/ml
        algo-1.log          the host's output
        run.json            what is known of it before its end
        result.json         the result
    ./.launch/.warm-pool/algo-1/    what the hosts keep for the next job, if the job has keep_alive_period_in_seconds

Except for a file system mounted `rw`, nothing outside ./.launch, which git ignores, is written. Only the job's outputs remain.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.console import Console, human_bytes
from launcher.errors import InputError, RefusedError, StoppedError, dotted, has_folder
from launcher.jobs.outcome import Outcome
from launcher.local.attempts import run_attempts
from launcher.local.channels.delivery import provider_of
from launcher.local.channels.paths import ChannelPaths, with_channel_paths
from launcher.local.channels.stores import Store, embedded_store, remote_store
from launcher.local.hosts import job_arn, local_secrets
from launcher.local.leftovers import at_the_end
from launcher.local.report import report
from launcher.local.runs import RESULT, RUNS_FOLDER
from launcher.local.s3_server.own_job import OwnJob, serve_own_job
from launcher.local.shell import open_shell
from launcher.local.state import LocalRun
from launcher.local.watch import stop_signals
from launcher.local.workspace import LocalOptions, entries_of, hosts_of, refuse_full_disk
from launcher.planning import Plan
from launcher.request.view import file_system_source, s3_source
from launcher.spec.channels import KINDS
from sagemaker_channels import contract

_RUNNERS = {"process": "processes", "docker": "containers", "podman": "containers"}
_ASK_ABOVE = 1_000_000_000  # bytes from a remote store
_FOLDER = "the run's folder"  # a link to it, beside the folders of channels; no channel can have this name
# The temporary files; and FIFOs, at which a search of the run's folder would wait for ever, and sockets, which S3 cannot have.
# The link is made with the folder, since until then another run of this name may have made its own.
_REMOVE = f"""find "$1/{_FOLDER}/" -xdev '(' -type p -o -type s ')' -delete; rm -rf "$1\""""


def run_local(plan: Plan, options: LocalOptions) -> Outcome:
    """Run the plan on this machine, follow it to its end and return the result; of a shell, only name and exit code.

    Raises RefusedError if the plan cannot run here; nothing was started.
    """
    console = Console(as_json=options.as_json)
    folder = Path(RUNS_FOLDER, plan.request["TrainingJobName"]).absolute()
    file_systems = _file_systems(options)
    for entry in entries_of(plan.request):
        provider_of(entry)  # refuses a channel without one
    if folder.exists():
        raise _existing_run(folder)
    hosts = hosts_of(plan.request, options.instance_count)
    _refuse_options(options, [host.name for host in hosts])
    _warn(plan, options, console)
    runner_of = importlib.import_module(f"launcher.local.{_RUNNERS[options.runner]}").opened
    with stop_signals() as stops:
        with ExitStack() as stack:
            runner = stack.enter_context(runner_of(plan, options, console))
            stops.held = True  # A signal in the moment in which a folder is made would leave that folder.
            # The path of macOS's own temporary folder leaves too few of a socket's 103 characters to the job.
            scratch = Path(tempfile.mkdtemp(prefix="launch-", dir="/tmp" if sys.platform == "darwin" else None))
            stack.enter_context(at_the_end(_REMOVE, scratch))
            stops.release()
            run = LocalRun(plan, options, folder, hosts, console, runner, scratch)
            local = with_channel_paths(plan, options.channels, scratch)
            stack.enter_context(local.named_errors())
            run = replace(run, asked=plan.masked_request(), plan=local.plan, named=local.named)
            run = replace(run, secrets=local_secrets(run))
            file_systems |= local.folders
            # Without S3, no AWS account is needed.
            embedded = options.data or (None if _reads_remote(plan, local) else folder)
            folder_of_s3 = embedded and embedded_store(
                embedded, run.s3_folder, console.warn, local.folders, address=runner.address
            )
            store = stack.enter_context(folder_of_s3 or remote_store(plan.spec))
            store = stack.enter_context(_with_own_job(run, store))
            _ask_about_size(run, store)
            stack.enter_context(refuse_full_disk(folder))
            _make_folder(folder)
            (scratch / _FOLDER).symlink_to(folder)
            if options.shell:
                code = open_shell(run, store, file_systems, stops)
                return Outcome({"TrainingJobName": plan.request["TrainingJobName"]}, local_exit_code=code)
            outcome = run_attempts(run, store, file_systems, stops)
        by_sigterm = outcome.exit_code == 130 and signal.SIGTERM in stops.received
        exit_code = StoppedError.exit_code if by_sigterm else outcome.exit_code
        return report(run, replace(outcome, reason=local.named(outcome.reason), exit_code=exit_code))


@contextmanager
def _with_own_job(run: LocalRun, store: Store) -> Iterator[Store]:
    """Yield the store with the variables by which a script's calls to SageMaker are answered here, about its own job."""
    environ = store.environ
    keys = {environ["AWS_ACCESS_KEY_ID"]: environ["AWS_SECRET_ACCESS_KEY"]}
    job = OwnJob(run.plan.request, job_arn(run, store), run.transitions)

    def note(operation: str) -> None:
        run.note(f"sagemaker:{operation}", "answered from the plan", "answered by SageMaker", same=False)

    with serve_own_job(job, keys, note, run.runner.address) as endpoint:
        own = dict.fromkeys(("AWS_ENDPOINT_URL_SAGEMAKER", "AWS_ENDPOINT_URL_SAGEMAKER_METRICS"), endpoint)
        direct = dict.fromkeys(("no_proxy", "NO_PROXY"), f"{run.runner.address},127.0.0.1,localhost")
        yield replace(store, environ={**direct, **environ, **own})


def _refuse_options(options: LocalOptions, hosts: list[str]) -> None:
    """Raise InputError for options that do not go together."""
    if options.shell not in (None, *hosts):
        known = ", ".join(hosts)
        raise InputError(
            f"--host {options.shell}: the job runs on {known}; name one of them, or raise --instance-count"
        )
    if options.shell and (options.stop_after, options.interrupt_after, options.interrupt_at) != (None, None, None):
        raise InputError("--stop-after, --interrupt-after, --interrupt-at end a job; leave them out: you end the shell")
    if options.interrupt_at == "":
        raise InputError("--interrupt-at: the text is empty, which each line contains; give one such as 'epoch 2'")


def _warn(plan: Plan, options: LocalOptions, console: Console) -> None:
    """Warn of what the job would not have in SageMaker, what other users can see, and what has no effect."""
    is_interrupted = (options.interrupt_after, options.interrupt_at) != (None, None)
    if is_interrupted and not plan.request.get("EnableManagedSpotTraining"):
        console.warn("SageMaker interrupts and restarts a job only with enable_managed_spot_training: true")
    for path, text in plan.masked.items():
        is_parameter = path[0] == "HyperParameters" and plan.spec.code and plan.spec.code.arguments != "none"
        if is_parameter or path[1:2] in (("ContainerArguments",), ("ContainerEntrypoint",)):
            what = "is an argument of a program, so other users of this machine see it in the process list"
            console.warn(f"{dotted(plan.origin.place(path))}: the value of {text} {what}; pass it in environment")
    named = {file_system_source(entry).get("FileSystemId") for entry in entries_of(plan.request)}
    for identity in sorted({mount.partition("=")[0] for mount in options.mounts} - named):
        console.warn(f"--mount {identity}: no channel of this job is on this file system")


def _make_folder(folder: Path) -> None:
    """Make the run's folder, which only this user may enter: its settings, logs and outputs can have secrets."""
    runs = folder.parent
    try:
        with suppress(FileExistsError):
            runs.mkdir(0o700)
        # In a folder of all users, such as /tmp, another one may have made it, who could replace what the run executes.
        if not {runs.lstat().st_uid, runs.stat().st_uid} <= {os.geteuid(), 0, runs.parent.stat().st_uid}:
            raise RefusedError(
                f"{runs} belongs to another user, who could change this run; run in a folder of your own"
            )
        (runs / ".gitignore").write_text("*\n")
        folder.mkdir(0o700)
    except FileExistsError:
        raise _existing_run(folder) from None
    except OSError as error:
        what = f"{folder}: cannot be created: {error.strerror}"
        raise RefusedError(f"{what}; run in a folder that you can write to") from None


def _existing_run(folder: Path) -> RefusedError:
    is_over = (folder / RESULT).exists()
    clean = f"`launch clean {folder.name}` removes it"
    remedy = clean if is_over else f"unless it is still running, {clean}"
    other = "use another name (--name; in Python call launcher.plan again, or pass it name=)"
    return RefusedError(f"{folder} holds an earlier run of this name; {remedy}, or {other}")


def _reads_remote(plan: Plan, local: ChannelPaths) -> bool:
    """Return whether the job reads S3 without --data. Raises InputError if --channel covers only some of its channels."""
    request = plan.request
    read = {name for name, channel in plan.spec.all_channels.items() if channel.connector(name)}
    read |= {entry["ChannelName"] for entry in request.get("InputDataConfig", ()) if _is_read_from_store(entry)}
    if not local.paths:
        return bool(read) or "CheckpointConfig" in request
    if missing := sorted(read - local.paths.keys()):
        remedy = f"give --channel {missing[0]}=PATH too, or --data DIR"
        raise InputError(f"--channel: {', '.join(missing)} would still be read from S3; {remedy}")
    return False


def _file_systems(options: LocalOptions) -> dict[str, Path]:
    """Return the directory of each file system, by its id: those in the data folder, then those of --mount."""
    if options.data is not None and not has_folder(options.data):
        raise InputError(f"--data {options.data}: there is no directory {options.data}; create it, or correct the path")
    kinds = [kind for kind in KINDS.values() if kind.MEMBER == "FileSystemDataSource"]
    folders = [options.data / kind.data_folder() for kind in kinds] if options.data else []
    found = {each.name: each.absolute() for folder in folders for each in folder.glob("*")}
    mounted: dict[str, str] = {}
    for mount in options.mounts:
        identity, separator, path = mount.partition("=")
        if not separator:
            raise InputError(f"--mount {mount}: write <file system id>=<directory>, such as fs-0123456789abcdef0=/data")
        if not has_folder(path):
            raise InputError(f"--mount {mount}: there is no directory {path}; create it, or correct the path")
        if identity in mounted:
            both = f"{mounted[identity]} and {path}"
            raise InputError(f"--mount {mount}: {identity} is given twice, as {both}; keep one of them")
        mounted[identity] = path
        found[identity] = Path(path).absolute()
    return found


def _ask_about_size(run: LocalRun, store: Store) -> None:
    """Print how much will be read from a remote store if it is much, and ask for confirmation without --yes."""
    if not store.remote:
        return
    entries = [entry for entry in run.plan.request.get("InputDataConfig", ()) if _is_read_from_store(entry)]
    # An augmented manifest lists no objects.
    entries = [entry for entry in entries if s3_source(entry)["S3DataType"] != "AugmentedManifestFile"]
    with run.console.progress(f"listing the channels at {store.objects.where}", counted=False):
        total = sum(found.size for entry in entries for found in store.listed(entry, run.options.sample))
    if total <= _ASK_ABOVE:
        return
    size = f"{human_bytes(total)} will be read from {store.objects.where}"
    run.console.say(f"{size}; --sample N reads less")
    if run.options.yes:
        return
    if not sys.stdin.isatty():
        raise RefusedError(f"{size}, and there is no terminal to ask on; give --yes, or --sample N to read less")
    import click

    if not click.confirm("Continue?", err=True):
        raise StoppedError("not started")


def _is_read_from_store(entry: dict[str, Any]) -> bool:
    return bool(s3_source(entry)) and entry["ChannelName"] != contract.CODE_CHANNEL
