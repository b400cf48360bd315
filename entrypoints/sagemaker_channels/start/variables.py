"""The SM_* variables that a training script expects.

SageMaker itself sets almost none: they come from the sagemaker-training toolkit or from SDK v3's container drivers, and a container
with its own entry point gets none. So this module sets every variable of toolkit 5.1.4, with the same value down to the JSON's
spelling, and those that only SDK v3 sets. If the two differ (null is '' or 'null'; the order of SM_CHANNELS), the toolkit's is set,
which scripts were written for. The channel with our code and connector channels, which have no folder, are left out.

Source: toolkit 5.1.4, `environment.py`, `mapping.py`, `params.py`; SDK v3, `container_drivers/scripts/environment.py`.
The tests compare with values that both of them gave.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.job.hyperparameters import (
    FORMS,
    TOOLKIT_HYPERPARAMETERS,
    TOOLKIT_PREFIX,
    command_line_arguments,
    hyperparameter_variables,
    text,
    user_hyperparameters,
)

# With any of the hyperparameters sagemaker_<name>_enabled this host's instance group is the one of the distributed training.
_DISTRIBUTIONS = (
    *("mpi", "parameter_server", "distributed_dataparallel", "pytorch_ddp", "pytorch_xla_multi_worker"),
    *("multi_worker_mirrored_strategy", "torch_distributed"),
)
_DEFAULT_LOG_LEVEL = 20  # logging.INFO


@dataclass(frozen=True)
class Machine:
    """A host's processors."""

    cpus: int
    gpus: int = 0
    neurons: int = 0  # cores of Trainium and Inferentia


def count_machine(instance_type: str) -> Machine:
    """Count this host's processors with the vendors' tools; 0 if a tool is missing."""
    gpus = [line for line in _output("nvidia-smi", "--list-gpus").splitlines() if line.startswith("GPU ")]
    if "trn2.48xlarge" in instance_type:
        neurons = 64  # the toolkit's own exception
    else:
        try:
            neurons = sum(device.get("nc_count", 0) for device in json.loads(_output("neuron-ls", "-j") or "[]"))
        except (ValueError, TypeError, AttributeError):
            neurons = 0  # neuron-ls prints an error text if the driver is missing.
    return Machine(multiprocessing.cpu_count(), len(gpus), neurons)


def sagemaker_variables(
    environment: Environment,
    environ: Mapping[str, str],
    machine: Machine,
    entry_point: str | None = None,
    argument_style: str = "toolkit",
    arguments: str = FORMS[0],
) -> dict[str, str]:
    """Return every variable that toolkit 5.1.4 or SDK v3 would set in this container, whose own ones are `environ`.

    Without an `entry_point`, it is SAGEMAKER_PROGRAM or the hyperparameter sagemaker_program, as in the toolkit. `argument_style`
    is the form of SM_HPS, SM_HP_* and SM_USER_ARGS, and `arguments` that of SM_USER_ARGS: see job/hyperparameters.py.
    """
    properties = _toolkit_properties(environment, environ, machine, entry_point)
    values: dict[str, Any] = {name: value for name, value in properties.items() if name not in _NO_VARIABLE}
    if not values["topology"]:
        del values["topology"]
    values |= {
        "framework_params": properties["additional_framework_parameters"],
        "channels": sorted(environment.input_data_config),
        "training_env": properties,
        "user_args": command_line_arguments(environment.hyperparameters, argument_style, arguments),
    }
    values |= {f"channel_{name}": path for name, path in properties["channel_input_dirs"].items()}
    variables = {f"SM_{name.upper()}": text(value) for name, value in values.items()}
    variables |= hyperparameter_variables(environment.hyperparameters, argument_style)
    variables["CURRENT_HOST"] = environment.current_host
    variables["SAGEMAKER_JOB_NAME"] = text(environment.hyperparameters.get("sagemaker_job_name"))
    region = environ.get("AWS_DEFAULT_REGION") or environ.get("AWS_REGION")
    variables["SAGEMAKER_REGION"] = text(environment.hyperparameters.get("sagemaker_region", region))
    return {**_sdk_variables(environment, environ, properties["user_entry_point"]), **variables}


# Properties of the toolkit's Environment that only SM_TRAINING_ENV holds, or a variable of another name.
_NO_VARIABLE = {
    *("additional_framework_parameters", "channel_input_dirs", "distribution_hosts", "hyperparameters", "is_master"),
    *("is_modelparallel_enabled", "is_smddpmprun_installed", "is_smddprun_installed", "job_name", "master_hostname"),
}


def _toolkit_properties(
    environment: Environment, environ: Mapping[str, str], machine: Machine, entry_point: str | None
) -> dict[str, Any]:
    """Return the toolkit's public Environment properties by name, as in SM_TRAINING_ENV; hosts in the file's order."""
    resources = environment.resource_config
    parameters = environment.hyperparameters
    framework_parameters = {
        name: value
        for name, value in parameters.items()
        if name.startswith(TOOLKIT_PREFIX) and name not in TOOLKIT_HYPERPARAMETERS
    }
    hosts = resources.get("hosts") or list(environment.hosts)
    group = resources.get("current_group_name", contract.HOMOGENEOUS_GROUP)
    listed = resources.get("instance_groups") or []
    groups = {each.get("instance_group_name"): each for each in listed}
    trains = any(framework_parameters.get(f"sagemaker_{name}_enabled", False) for name in _DISTRIBUTIONS)
    distribution_groups = framework_parameters.get("sagemaker_distribution_instance_groups", [group] if trains else [])
    training = [each for each in listed if each.get("instance_group_name") in distribution_groups]
    distribution_hosts = [host for each in training for host in each.get("hosts") or []] if listed else list(hosts)
    master = (distribution_hosts or hosts)[0]
    program = entry_point or environ.get("SAGEMAKER_PROGRAM")
    # Without any, the toolkit's module is called "None", and there is no entry point.
    module = program or str(parameters.get("sagemaker_program"))
    model_parallel = environ.get("SM_HP_MP_PARAMETERS")
    return {
        "additional_framework_parameters": framework_parameters,
        "channel_input_dirs": {name: str(environment.data_dir / name) for name in environment.input_data_config},
        "current_host": environment.current_host,
        "current_instance_group": group,
        "current_instance_group_hosts": groups.get(group, {}).get("hosts") or [],
        "current_instance_type": resources.get("current_instance_type", "local"),
        "distribution_hosts": distribution_hosts,
        "distribution_instance_groups": distribution_groups,
        "framework_module": environ.get("SAGEMAKER_TRAINING_MODULE"),
        "hosts": hosts,
        "hyperparameters": user_hyperparameters(parameters),
        "input_config_dir": str(environment.config_dir),
        "input_data_config": environment.input_data_config,
        "input_dir": str(environment.input_dir),
        "instance_groups": [each.get("instance_group_name") for each in listed],
        "instance_groups_dict": groups,
        "is_hetero": len(listed) > 1,
        "is_master": environment.current_host == master,
        "is_modelparallel_enabled": model_parallel and model_parallel != "{}",
        "is_smddpmprun_installed": shutil.which("smddpmprun") is not None,
        "is_smddprun_installed": shutil.which("smddprun") is not None,
        "job_name": environment.job_name,
        "log_level": parameters.get("sagemaker_container_log_level", _DEFAULT_LOG_LEVEL),
        "master_hostname": master,
        "model_dir": str(environment.model_dir),
        "module_dir": str(parameters.get("sagemaker_submit_directory", environment.code_dir)),
        "module_name": module.removesuffix(".py"),
        "network_interface_name": resources.get("network_interface_name", "eth0"),
        "num_cpus": machine.cpus,
        "num_gpus": machine.gpus,
        "num_neurons": machine.neurons,
        "output_data_dir": str(environment.output_data_dir),
        "output_dir": str(environment.output_dir),
        "output_intermediate_dir": str(environment.intermediate_dir),
        "resource_config": resources,
        "topology": resources.get("topology", []),
        "user_entry_point": program or parameters.get("sagemaker_program"),
    }


def _sdk_variables(environment: Environment, environ: Mapping[str, str], entry_point: str | None) -> dict[str, str]:
    """Return the variables that only SDK v3's drivers set."""
    # Ranks count in lexicographic order, as in SDK v3 (algo-10 follows algo-1), also torchrun's; the first host is the master.
    hosts = sorted(environment.hosts)
    return {
        "SM_INPUT_DATA_DIR": str(environment.data_dir),
        "SM_OUTPUT_FAILURE": str(environment.failure_file),
        "SM_MASTER_ADDR": environ.get(contract.MASTER_ADDR_VARIABLE) or hosts[0],
        "SM_MASTER_PORT": environ.get(contract.MASTER_PORT_VARIABLE) or str(contract.DEFAULT_MASTER_PORT),
        "SM_HOST_COUNT": str(len(hosts)),
        "SM_CURRENT_HOST_RANK": str(hosts.index(environment.current_host)),
        "SM_SOURCE_DIR": str(environment.code_dir),
        "SM_ENTRY_SCRIPT": text(entry_point),
    }


def _output(*command: str) -> str:
    """Return a program's output; empty if it is missing or fails."""
    try:
        finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return finished.stdout.decode("utf-8", "replace")
