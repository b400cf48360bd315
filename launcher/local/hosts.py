"""The state in which a host of a local run starts: /opt/ml, environment and command."""

from __future__ import annotations

import json
import os
import shutil
import site
import socket
import sys
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from entrypoints import contract
from launcher.local.data.delivery import Store
from launcher.local.sandbox import HostProcess
from launcher.local.workspace import Host, LocalRun
from launcher.planning import boot_arguments
from launcher.request.build import connector_variables
from launcher.request.view import s3_source

_WARM_POOLS = ".warm-pool"  # beside the runs' folders, whose names cannot begin so
_FOLDERS = (contract.CONFIG_DIR, contract.DATA_DIR, contract.MODEL_DIR, contract.OUTPUT_DATA_DIR)
# The variables that programs need on this machine; a job does not inherit any others.
_PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "all_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
)


def write_code(run: LocalRun, host: Host) -> None:
    """Write boot.py and the code archive to the code channel's folder; a local run uploads nothing."""
    if run.plan.code is None or run.plan.code_uri is None:
        return
    uploaded = run.stored(run.plan.code_uri)
    if not uploaded.is_dir():
        uploaded.mkdir(parents=True)
        (uploaded / contract.BOOT_FILE).write_bytes(run.plan.code.boot())
        with (uploaded / contract.CODE_ARCHIVE).open("wb") as file:
            run.plan.code.write_tar_gz(file)
    shutil.copytree(uploaded, run.root(host) / contract.DATA_DIR / contract.CODE_CHANNEL)


def prepare_host(run: LocalRun, host: Host, store: Store, temporary: str) -> HostProcess:
    """Write the host's files and return its settings, without mounts. `temporary` is the folder for its temporary files."""
    root, folder = run.root(host), run.host_folder(host)
    for name in (*_FOLDERS, "../home", "../stage"):
        (root / name).resolve().mkdir(parents=True, exist_ok=True)
    for name, content in _config_files(run, host).items():
        file = root / contract.CONFIG_DIR / name
        file.touch(mode=0o600)  # hyperparameters can contain values of `${NAME}`
        file.write_text(json.dumps(content), encoding="utf-8")
    if _is_kept_warm(run):
        pool = run.folder.parent / _WARM_POOLS / host.name
        pool.mkdir(parents=True, exist_ok=True)
        (root / contract.WARM_POOL_DIR).parent.mkdir()
        (root / contract.WARM_POOL_DIR).symlink_to(pool)
    etc_hosts = folder / "hosts"
    here = Path("/etc/hosts")
    known = here.read_text(encoding="utf-8") if here.exists() else "127.0.0.1 localhost"
    added = "".join(f"\n127.0.1.{index} {each.name}" for index, each in enumerate(run.hosts, 1))
    etc_hosts.write_text(f"{known.rstrip()}{added}\n", encoding="utf-8")
    return HostProcess(
        name=host.name,
        root=root,
        stage=folder / "stage",
        command=_command(run, root),
        environ={"TMPDIR": temporary, **_environ(run, host, store)},
        binds=(),
        etc_hosts=etc_hosts,
    )


def _is_kept_warm(run: LocalRun) -> bool:
    return bool(run.plan.request.get("ResourceConfig", {}).get("KeepAlivePeriodInSeconds"))


def _config_files(run: LocalRun, host: Host) -> dict[str, Any]:
    """Return the files below input/config, name -> content, as SageMaker writes them."""
    by_name = sorted(run.hosts, key=attrgetter("name"))  # as text, like SageMaker: of 12 hosts, algo-2 is the fourth
    interfaces = [name for _, name in socket.if_nameindex()]
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
            "network_interface_name": "lo0" if "lo0" in interfaces else "lo",  # macOS or Linux
            "topology": None,
        },
    }


def _command(run: LocalRun, root: Path) -> tuple[str, ...]:
    """Return the command of PID 1: the request's ContainerEntrypoint; without namespaces, with the real path of /opt/ml."""
    algorithm = run.plan.request.get("AlgorithmSpecification", {})
    if "ContainerEntrypoint" in algorithm:
        command = [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", ())]
    else:
        run.console.warn("in SageMaker the image's sagemaker-training toolkit starts this code, here boot.py does")
        assert run.plan.spec.code is not None, "run_local refuses plans with neither code nor entrypoint"
        boot = f"{contract.BASE_DIR}/{contract.DATA_DIR}/{contract.CODE_CHANNEL}/{contract.BOOT_FILE}"
        command = ["python3", boot, *boot_arguments(run.plan.spec.code)]
    if not run.namespaces:
        prefix = f"{contract.BASE_DIR}/"
        command = [f"{root}/{word.removeprefix(prefix)}" if word.startswith(prefix) else word for word in command]
    return tuple(command)


def _environ(run: LocalRun, host: Host, store: Store) -> dict[str, str]:
    """Return SageMaker's variables, those of the store, and those that programs need on this machine."""
    name = run.plan.request["TrainingJobName"]
    region = store.environ["AWS_REGION"]
    environ = {
        **{key: value for key, value in os.environ.items() if key in _PASSED_ON or key.startswith("PIP_")},
        # The entrypoint's `python3` is the Python of the launcher, with its packages.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(run.host_folder(host) / "home"),
        "PYTHONUSERBASE": site.getuserbase(),
        # Hosts that each use all cores slow each other down many times.
        **({"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // len(run.hosts)))} if len(run.hosts) > 1 else {}),
        **store.environ,
        "TRAINING_JOB_NAME": name,
        "TRAINING_JOB_ARN": f"arn:aws:sagemaker:{region}:000000000000:training-job/{name}",
        contract.MASTER_PORT_VARIABLE: str(_free_port(str(run.folder))),
        **_sampled(run),
    }
    if _is_kept_warm(run):
        base = contract.BASE_DIR if run.namespaces else run.root(host)
        environ[contract.WARM_POOL_VARIABLE] = f"{base}/{contract.WARM_POOL_DIR}"
    if not run.namespaces:
        environ[contract.BASE_DIR_VARIABLE] = str(run.root(host))
        environ[contract.MASTER_ADDR_VARIABLE] = "127.0.0.1"
    return environ


def _sampled(run: LocalRun) -> dict[str, str]:
    """Return the request's Environment; with `sample`, connector channels end after that many objects."""
    environment: dict[str, str] = dict(run.plan.request.get("Environment", {}))
    if run.options.sample is None:
        return environment
    for variable in connector_variables(run.plan.spec):
        settings = {**json.loads(environment[variable]), contract.CONNECTOR_MAX_OBJECTS: run.options.sample}
        environment[variable] = json.dumps(settings)
    return {**environment, contract.SAMPLE_VARIABLE: str(run.options.sample)}


@cache
def _free_port(run_folder: str) -> int:
    """Return one free port per run, the same for all its hosts, since other runs may use this machine as well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
