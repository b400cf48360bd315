"""The state in which a host of a local run starts: /opt/ml, environment with the secrets that it names, and command."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from launcher.aws.session import Account
from launcher.errors import RefusedError
from launcher.local.channels.stores import Store
from launcher.local.state import LocalRun
from launcher.local.workspace import WARM_POOLS, BindMount, Host, HostProcess
from launcher.request.build import connector_variables
from launcher.request.view import s3_source
from sagemaker_channels import contract
from sagemaker_channels.start.references import SecretError, parts, read_with, references_in, region_of

_FOLDERS = (contract.CONFIG_DIR, contract.DATA_DIR, contract.MODEL_DIR, contract.OUTPUT_DATA_DIR)


def write_code(run: LocalRun, host: Host) -> None:
    """Write boot.py and the code archive to the code channel's folder; a local run uploads nothing.

    All hosts of all attempts get copies of what is written once outside the folder that stands for S3, where the job can write.
    """
    if run.plan.code is None or run.plan.code_uri is None:
        return
    written = run.scratch / "code"
    if not written.is_dir():
        written.mkdir()
        (written / contract.BOOT_FILE).write_bytes(run.plan.code.boot())
        with (written / contract.CODE_ARCHIVE).open("wb") as file:
            run.plan.code.write_tar_gz(file)
        shutil.copytree(written, run.stored(run.plan.code_uri))
    shutil.copytree(written, run.root(host) / contract.DATA_DIR / contract.CODE_CHANNEL)


def prepare_host(run: LocalRun, host: Host, store: Store, temporary: str) -> HostProcess:
    """Write the host's files and return its settings, without channels. `temporary` is the folder for its temporary files."""
    root = run.root(host)
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, content in _config_files(run, host).items():
        file = root / contract.CONFIG_DIR / name
        file.touch(mode=0o600)  # hyperparameters can contain values of `${NAME}`
        file.write_text(json.dumps(content), encoding="utf-8")
    command, variables = run.runner.settings(run.plan, root, store.environ)
    environ = _environ(run, host, store, variables)
    return HostProcess(host.name, root, command, environ, _warm_pool(run, host), temporary)


def _warm_pool(run: LocalRun, host: Host) -> tuple[BindMount, ...]:
    """Make the folder that is kept for the next job, if the job has one, and return its mount."""
    if not _is_kept_warm(run):
        return ()
    pool = run.folder.parent / WARM_POOLS / host.name
    pool.mkdir(parents=True, exist_ok=True)
    target = run.root(host) / contract.WARM_POOL_DIR
    target.mkdir(parents=True)
    return (BindMount(pool, target, read_only=False),)


def _is_kept_warm(run: LocalRun) -> bool:
    return bool(run.plan.request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds"))


def _config_files(run: LocalRun, host: Host) -> dict[str, Any]:
    """Return the files below input/config, name -> content, as SageMaker writes them."""
    by_name = sorted(run.hosts, key=attrgetter("name"))  # as text, like SageMaker: of 12 hosts, algo-2 is the fourth
    return {
        contract.HYPERPARAMETERS_FILE: dict(run.plan.request.get("HyperParameters", {})),
        contract.INPUT_DATA_CONFIG_FILE: {
            entry["ChannelName"]: {
                "TrainingInputMode": entry["InputMode"],
                "S3DistributionType": s3_source(entry).get("S3DataDistributionType", "FullyReplicated"),
                "RecordWrapperType": entry.get("RecordWrapperType", "None"),
                **({"ContentType": entry["ContentType"]} if "ContentType" in entry else {}),
            }
            for entry in run.channels(host)
        },
        contract.RESOURCE_CONFIG_FILE: {
            "current_group_name": host.group,
            "current_host": host.name,
            "current_instance_type": host.instance_type,
            "hosts": [each.name for each in by_name],
            "instance_groups": [
                {
                    "instance_group_name": group,
                    "instance_type": instance_type,
                    "hosts": [each.name for each in by_name if each.group == group],
                }
                for group, instance_type in {each.group: each.instance_type for each in run.hosts}.items()
            ],
            "network_interface_name": run.runner.interface,
            "topology": None,
        },
    }


def job_arn(run: LocalRun, store: Store) -> str:
    """Return the ARN that the script sees, of an account that does not exist."""
    return f"arn:aws:sagemaker:{store.environ['AWS_REGION']}:000000000000:training-job/{run.plan.request['TrainingJobName']}"


def _environ(run: LocalRun, host: Host, store: Store, of_runner: Mapping[str, str]) -> dict[str, str]:
    """Return SageMaker's variables, and those of the runner."""
    name = run.plan.request["TrainingJobName"]
    environ = {
        # Hosts that each use all cores slow each other down many times.
        **({"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // len(run.hosts)))} if len(run.hosts) > 1 else {}),
        "TRAINING_JOB_NAME": name,
        "TRAINING_JOB_ARN": job_arn(run, store),
        **_sampled(run),
        **({contract.SECRETS_VARIABLE: json.dumps(run.secrets)} if run.secrets else {}),
    }
    if _is_kept_warm(run):
        base = contract.BASE_DIR if run.runner.mounts else run.root(host)
        environ[contract.WARM_POOL_VARIABLE] = f"{base}/{contract.WARM_POOL_DIR}"
    if run.runner.image is None and "PATH" in environ:
        # The spec's is that of an image. The launcher's Python stays the first, and programs of this machine are found, too.
        first, _, others = of_runner["PATH"].partition(os.pathsep)
        environ["PATH"] = os.pathsep.join((first, environ["PATH"], others))
    return {**of_runner, **environ}


def _sampled(run: LocalRun) -> dict[str, str]:
    """Return the request's Environment; with `sample`, connector channels end after that many objects."""
    environment: dict[str, str] = dict(run.plan.request.get("Environment", {}))
    if run.options.sample is None:
        return environment
    for variable in connector_variables(run.plan.spec):
        settings = {**json.loads(environment[variable]), contract.CONNECTOR_MAX_OBJECTS: run.options.sample}
        environment[variable] = json.dumps(settings)
    return {**environment, contract.SAMPLE_VARIABLE: str(run.options.sample)}


def local_secrets(run: LocalRun) -> dict[str, str]:
    """Return the value of each reference, and report where it was read: the variable of the first setting's name, or AWS.

    Raises RefusedError if you cannot read one.
    """
    secrets: dict[str, str] = {}
    for member in ("Environment", "HyperParameters"):
        for name, value in run.plan.request.get(member, {}).items():
            for reference in references_in([value]):
                if reference in secrets:
                    continue
                if value == reference and os.environ.get(name):
                    secrets[reference], origin = os.environ[name], f"the variable {name} of your environment"
                else:
                    spec = run.plan.spec
                    account = Account(region=region_of(parts(reference)[1], spec.region), profile=spec.profile)
                    try:
                        secrets[reference] = read_with(account.call, reference)
                    except (SecretError, RefusedError) as error:
                        remedy = f"set {name} in your environment to run without it"
                        raise RefusedError(f"{member}.{name}: {error}; {remedy}") from None
                    origin = "AWS, read with your credentials"
                run.note(f"secret {name}", origin, "read by the job's role", same=False)
                run.console.say(f"secret    {name}: {origin}, not the job's role")
    return secrets
