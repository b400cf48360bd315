"""What a local run has as in SageMaker, and what it has not: facts about the image, its versions, the machine and the channels."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from launcher.console import counted, human_bytes
from launcher.errors import dotted
from launcher.local.channels.stores import Store
from launcher.local.state import LocalRun
from launcher.local.workspace import HostProcess, entries_of, hosts_of
from launcher.request.image_support import support_of
from launcher.request.image_uris import versions_of
from launcher.request.instance_types import instance_type
from launcher.request.view import file_system_source, s3_source
from sagemaker_channels import contract

# The members of a request that a local run carries out, or that only say where and as whom a job runs. A member that AWS adds is
# left out.
_CARRIED_OUT = (
    *("TrainingJobName", "AlgorithmSpecification", "HyperParameters", "Environment", "InputDataConfig"),
    *("OutputDataConfig", "CheckpointConfig", "TensorBoardOutputConfig", "ResourceConfig", "StoppingCondition"),
    *("RetryStrategy", "VpcConfig", "EnableNetworkIsolation", "EnableInterContainerTrafficEncryption"),
    *("EnableManagedSpotTraining", "RoleArn", "Tags"),
)
_TOOLKIT = "sagemaker-training"


def note_facts(run: LocalRun, store: Store, host: HostProcess) -> None:
    """Note everything besides the channels; the versions are those that a program finds in the prepared host."""
    request = run.plan.request
    algorithm = request.get("AlgorithmSpecification", {})
    image = algorithm.get("TrainingImage", "")
    run.note("image", run.runner.image or f"none, but {sys.executable}", image, same=run.runner.image == image)
    if run.plan.spec.code is not None and "ContainerEntrypoint" not in algorithm and run.runner.image is None:
        run.note("start of the code", contract.BOOT_FILE, "the image's toolkit", same=False)
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
    for member in request:
        if member not in _CARRIED_OUT:
            run.note(dotted(run.plan.origin.place((member,))), "left out", "carried out by SageMaker", same=False)
    asked = instance_type(run.hosts[0].instance_type)
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    there = "" if asked.accelerator is None else asked.accelerator or "none"
    run.note("GPU", str(gpus or "none"), there, same=(gpus > 0) is asked.has_gpu)
    files = [entry for entry in entries_of(request) if entry["InputMode"] == "File" and s3_source(entry)]
    size = sum(found.size for entry in files for found in store.listed(entry, run.options.sample))
    if asked.storage == "EBS" and (volume := request["ResourceConfig"].get("VolumeSizeInGB", 0)) * 2**30 < size:
        what = f"File channels copy {human_bytes(size)} to each host, and the job's volume has {volume} GB"
        run.console.warn(f"{what}; raise resource_config.volume_size_in_gb, or use FastFile")


def note_channel(run: LocalRun, entry: Mapping[str, Any], how: str, same: bool) -> None:
    there = file_system_source(entry).get("FileSystemType", entry["InputMode"])
    run.note(f"channel {entry['ChannelName']}", how, there, same=same)


def in_rows(facts: Mapping[str, Mapping[str, Any]], *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Yield the facts as (title, text): one for what differs; if `verbose`, one for each, and one for all others of a kind."""
    differing = [what for what, fact in facts.items() if fact["Same"] is False]
    if not verbose:
        if differing:
            yield "differs", f"in {counted(len(differing), 'way')}: {', '.join(differing)} (-v shows how)"
        return
    for title, same in (("faithful", True), ("unknown", None)):
        if found := [f"{what} ({fact['Here']})" for what, fact in facts.items() if fact["Same"] is same]:
            yield title, ", ".join(found)
    for what in differing:
        yield "differs", f"{what}: {facts[what]['Here']}, not {facts[what]['InSageMaker']}"


def _note_versions(run: LocalRun, host: HostProcess, image: str) -> None:
    """Note the versions that the image's tag asks for, and that of the toolkit, which no tag has."""
    support = support_of(image)
    python = (support.python if support else None) or ""  # not every tag names it
    asked = {"Python": python, "torch": "", **versions_of(image), _TOOLKIT: ""}
    found = run.runner.versions(host, tuple(asked))
    for name, version in asked.items():
        here = found.get(name, "not found")
        wanted = version or (here if run.runner.image == image else "")
        run.note(name, here, wanted, same=f"{here.partition('+')[0]}.".startswith(f"{wanted}.") or here == wanted)
