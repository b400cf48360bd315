"""The local run: a plan carried out on this machine, on the same road as in SageMaker.

    ./.launch/<job name>/
        s3/<bucket>/...     what the job writes to S3: code, checkpoints, model.tar.gz, output.tar.gz
        algo-1/ml/          what the host sees as /opt/ml
        algo-1.log          what it printed
        result.json         how it ended

Nothing outside that folder is written, a file system mounted `rw` excepted. In the end only what the job left behind stays.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from entrypoints import contract
from launcher.console import Console, human_bytes
from launcher.errors import RefusedError
from launcher.local import outputs, sandbox
from launcher.local.cluster import channels_of, hosts_of, sharing
from launcher.local.delivery import BindMount, Delivery, Store
from launcher.local.hosts import prepare_host, restore_checkpoints, write_code
from launcher.local.objects import total_bytes
from launcher.local.providers import provide
from launcher.local.providers.file_system import place_without_mounts
from launcher.local.report import announce, report
from launcher.local.stores import embedded_store, remote_store
from launcher.local.watch import Outcome, watch
from launcher.local.workspace import LocalOptions, LocalRun
from launcher.plan import Plan

RUNS_FOLDER = ".launch"
_ASK_ABOVE = 1_000_000_000  # bytes from a remote store


def run_local(plan: Plan, options: LocalOptions) -> int:
    """Run the plan here and follow it to its end; returns the command's exit code. Raises RefusedError before the start."""
    console = Console(as_json=options.as_json)
    name = plan.request["TrainingJobName"]
    folder = Path(RUNS_FOLDER, name).absolute()
    file_systems = _file_systems(options)
    _refuse_what_cannot_run(plan)
    if folder.exists():
        raise RefusedError(f"{folder} holds an earlier run of this name; delete it, or give another name with --name")
    reason = "switched off" if options.no_namespaces else sandbox.why_no_namespaces()
    run = LocalRun(plan, options, folder, hosts_of(plan.request, options.instance_count), console, reason is None)
    if reason is not None:
        base = contract.BASE_DIR
        console.warn(
            f"no {base} here ({reason}): {contract.BASE_DIR_VARIABLE} and SM_* name the place instead, hosts have no names"
        )
    with _signals():
        try:
            with ExitStack() as stack:
                s3 = embedded_store(options.data, run.s3_folder) if options.data else remote_store(plan.spec)
                store = stack.enter_context(s3)
                _ask_about_size(run, store)
                folder.mkdir(parents=True)
                bucket = outputs.local_bucket(plan.request["OutputDataConfig"]["S3OutputPath"], run.s3_folder)
                bucket.mkdir(parents=True)
                outcome = _carry_out(run, store, file_systems, stack)
                _ignore_signals()  # what follows is short, and must not be cut in half
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # nothing ran, so the name is free again
            raise
        return report(run, outcome)


def _refuse_what_cannot_run(plan: Plan) -> None:
    algorithm = plan.request.get("AlgorithmSpecification", {})
    if plan.code is None and "ContainerEntrypoint" not in algorithm:
        raise RefusedError("only the image knows what to run here: a local run needs code, or container_entrypoint")


def _file_systems(options: LocalOptions) -> dict[str, Path]:
    """The directories that stand for file systems: what lies in the data folder, then what --mount names."""
    found = {}
    if options.data is not None:
        for kind in ("efs", "fsx"):
            folder = options.data / kind
            found.update({each.name: each.absolute() for each in folder.iterdir()} if folder.is_dir() else {})
    for mount in options.mounts:
        identity, separator, path = mount.partition("=")
        if not separator or not Path(path).is_dir():
            raise RefusedError(
                f"--mount {mount}: write <file system id>=<directory>, such as fs-0123456789abcdef0=/data"
            )
        found[identity] = Path(path).absolute()
    return found


def _ask_about_size(run: LocalRun, store: Store) -> None:
    if not store.remote or run.options.yes:
        return
    entries = (entry for entry in run.plan.request.get("InputDataConfig", ()) if _is_read_from_store(entry))
    total = sum(total_bytes(entry, store.client, run.options.sample) for entry in entries)
    if total > _ASK_ABOVE:
        import click

        run.console.say(
            f"{human_bytes(total)} will be read from {store.client.meta.endpoint_url}; --sample N takes less"
        )
        if not click.confirm("Go on?", err=True):
            raise RefusedError("not started")


def _is_read_from_store(entry: dict[str, Any]) -> bool:
    return "S3DataSource" in entry["DataSource"] and entry["ChannelName"] != contract.CODE_CHANNEL


def _carry_out(run: LocalRun, store: Store, file_systems: dict[str, Path], stack: ExitStack) -> Outcome:
    """Bring the channels, start the hosts, and watch them to their end."""
    console, request = run.console, run.plan.request
    announce(run)
    failures: list[Exception] = []
    restore_checkpoints(run, store)
    with console.progress("bringing the channels") as advance:
        processes = []
        for host in run.hosts:
            write_code(run, host)
            binds: list[BindMount] = []
            for entry in channels_of(request, host):
                if entry["ChannelName"] == contract.CODE_CHANNEL:
                    continue
                delivery = Delivery(
                    channel=entry,
                    host=host.name,
                    hosts=sharing(entry, run.hosts),
                    data_dir=run.root(host) / contract.DATA_DIR,
                    scratch=run.host_folder(host) / "scratch" / entry["ChannelName"],
                    store=store,
                    file_systems=file_systems,
                    sample=run.options.sample,
                    on_bytes=advance,
                    on_warning=console.warn,
                    on_error=failures.append,
                )
                delivery.scratch.mkdir(parents=True, exist_ok=True)
                binds += stack.enter_context(provide(delivery))
            processes.append(prepare_host(run, host, store, _placed(run, binds, stack)))
    with console.progress("running"):
        return watch(processes, run, failures)


def _placed(run: LocalRun, binds: list[BindMount], stack: ExitStack) -> tuple[BindMount, ...]:
    """The mounts that the host's namespace is to make; without namespaces they are stood in for here."""
    if run.namespaces:
        return tuple(replace(bind, source=bind.source.absolute(), target=bind.target.absolute()) for bind in binds)
    for bind in binds:
        stack.enter_context(place_without_mounts(bind, run.console.warn))
    return ()


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and a closed terminal end the run as Ctrl-C does, so that they clean up too."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
