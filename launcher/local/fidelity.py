"""What a local run has as in SageMaker, and what it has not: facts about the image, its versions, the machine and the channels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.console import counted
from launcher.errors import dotted
from launcher.local.data.delivery import Store
from launcher.local.runners import HostProcess
from launcher.local.workspace import Fact, LocalRun, hosts_of
from launcher.request.image_support import support_of
from launcher.request.image_uris import versions_of
from launcher.request.instance_types import instance_type
from launcher.request.view import file_system_source

# What SageMaker does beside or after the training, by members of the request.
_LEFT_OUT = (
    *(
        "DebugHookConfig",
        "DebugRuleConfigurations",
        "ProfilerConfig",
        "ProfilerRuleConfigurations",
        "RemoteDebugConfig",
    ),
    *("ExperimentConfig", "InfraCheckConfig", "MlflowConfig", "ModelPackageConfig", "SessionChainingConfig"),
)
_TOOLKIT = "sagemaker-training"
# Prints the versions of this Python and of the packages that its arguments name, as JSON.
_PROBE = """
import json, platform, sys
found = {"Python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        from importlib import metadata
        found[name] = metadata.version(name)
    except ImportError:  # there is no such package, or Python 3.7 has no such module
        pass
print(json.dumps(found))
"""


def note_facts(run: LocalRun, store: Store, host: HostProcess) -> None:
    """Note everything besides the channels; the versions are those that a program finds in the prepared host."""
    request = run.plan.request
    image = request.get("AlgorithmSpecification", {}).get("TrainingImage", "")
    run.note("image", run.runner.image or f"none, but {sys.executable}", image, same=run.runner.image == image)
    _note_versions(run, host, image)
    is_isolated, vpc = request.get("EnableNetworkIsolation"), request.get("VpcConfig")
    there = "isolated" if is_isolated else "that of vpc_config" if vpc else "one of the job's own"
    run.note("network", run.runner.network, there, same=run.runner.own_network and bool(is_isolated or not vpc))
    is_aws = store.remote and "AWS_ENDPOINT_URL" not in store.environ
    run.note("S3", store.objects.where, store.objects.where if is_aws else "AWS", same=is_aws)
    count = len(hosts_of(request))
    run.note("hosts", str(len(run.hosts)), str(count), same=len(run.hosts) == count)
    if run.options.sample is not None:
        run.note("objects", f"{run.options.sample} of each channel", "all", same=False)
    for member in _LEFT_OUT:
        if member in request:
            run.note(dotted(run.plan.origin.place((member,))), "left out", "carried out by SageMaker", same=False)
    _note_machine(run, request.get("ResourceConfig", {}).get("VolumeSizeInGB"))


def note_channel(run: LocalRun, entry: Mapping[str, Any], how: str, same: bool) -> None:
    """Note how a channel has reached a host."""
    there = file_system_source(entry).get("FileSystemType", entry["InputMode"])
    run.note(f"channel {entry['ChannelName']}", how, there, same=same)


def as_data(facts: Mapping[str, Fact]) -> dict[str, Any]:
    """Return the facts for `--json`."""
    return {what: {"Here": here, "InSageMaker": there, "Same": same} for what, (here, there, same) in facts.items()}


def in_rows(facts: Mapping[str, Fact], *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield the facts as (title, text): one for what differs; if `verbose`, one for each, and one for all others of a kind."""
    differing = [what for what, fact in facts.items() if fact.same is False]
    if not verbose:
        if differing:
            yield "differs", f"in {counted(len(differing), 'way')}: {', '.join(differing)} (-v shows how)"
        return
    for title, same in (("faithful", True), ("unknown", None)):
        if found := [f"{what} ({fact.here})" for what, fact in facts.items() if fact.same is same]:
            yield title, ", ".join(found)
    for what in differing:
        yield "differs", f"{what}: {facts[what].here}, not {facts[what].there}"


def _note_versions(run: LocalRun, host: HostProcess, image: str) -> None:
    """Note the versions that the image's tag asks for, and that of the toolkit, which no tag has."""
    support = support_of(image)
    python = (support.python if support else None) or ""  # not every tag names it
    asked = {"Python": python, "torch": "", **versions_of(image), _TOOLKIT: ""}
    try:
        found = json.loads(run.runner.ask(host, ("python3", "-c", _PROBE, *asked)))
    except (OSError, ValueError, subprocess.SubprocessError):  # there is no Python that answers
        found = {}
    for name, version in asked.items():
        here = found.get(name, "not found")
        wanted = version or (here if run.runner.image == image else "")
        run.note(name, here, wanted, same=f"{here.partition('+')[0]}.".startswith(f"{wanted}.") or here == wanted)


def _note_machine(run: LocalRun, volume: int | None) -> None:
    """Note what this machine has of an instance: GPUs, cores, memory, and storage."""
    asked = instance_type(run.hosts[0].instance_type)
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    there = "" if asked.accelerator is None else asked.accelerator or "none"
    run.note("GPU", str(gpus or "none"), there, same=(gpus > 0) is asked.has_gpu)
    cores, alone = os.cpu_count() or 1, len(run.hosts) == 1
    shared = "" if alone else f" for {len(run.hosts)} hosts"
    run.note("cores", f"{cores}{shared}", str(asked.vcpus or ""), same=cores == asked.vcpus and alone)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    there = f"{asked.memory_gib} GiB" if asked.memory_gib else ""
    # An instance, too, shows some percent less than its memory.
    is_alike = alone and 0.9 < memory / (asked.memory_gib or 1) <= 1
    run.note("memory", f"{memory:.0f} GiB{shared}", there, same=is_alike)
    free = shutil.disk_usage(run.folder).free // 10**9
    there = f"{volume} GB" if volume and asked.storage != "NVMe" else ""
    run.note("storage", f"{free} GB free", there, same=free >= (volume or 0))
