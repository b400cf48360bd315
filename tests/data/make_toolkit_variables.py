"""Makes toolkit_variables.json: what AWS's own launchers set for a table of container files.

Run by hand when a new toolkit or SDK appears, with the source of sagemaker-training (5.1.4) and of sagemaker-train
(SDK v3, 1.27.0) unpacked, and boto3 and six installed:

    python tests/data/make_toolkit_variables.py <sagemaker-training>/src <sagemaker-train>/sagemaker/train

Each case runs in a process of its own, because the toolkit reads its files and variables at import. GPUs and Neuron
cores come from small programs that answer like nvidia-smi and neuron-ls. The root's path is written `{root}` in the
result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).with_name("toolkit_variables.json")

ASK_TOOLKIT = """
import json, logging, os, sys
logging.disable(logging.CRITICAL)
from sagemaker_training import environment
toolkit = environment.Environment()
variables = toolkit.to_env_vars()
variables |= {name: os.environ[name] for name in ("CURRENT_HOST", "SAGEMAKER_JOB_NAME", "SAGEMAKER_REGION")}
print(json.dumps({"toolkit": variables, "arguments": toolkit.to_cmd_args()}))
"""

ASK_SDK = """
import json, logging, os, sys
drivers = os.path.join(sys.argv[1], "container_drivers")
sys.path[:0] = [os.path.join(drivers, "scripts"), os.path.join(drivers, "distributed_drivers")]
import basic_script_driver, environment
logging.disable(logging.CRITICAL)
logged = {}
environment.log_env_variables = lambda env_vars_dict: logged.update(env_vars_dict)
files = json.load(open(sys.argv[2]))
environment.set_env(files["resourceconfig"], files["inputdataconfig"], files["hyperparameters"], os.devnull)
variables = {name: environment.safe_serialize(value) for name, value in logged.items()}
os.environ |= {"SM_ENTRY_SCRIPT": "train.py", "SM_HPS": variables["SM_HPS"]}
print(json.dumps({"sdk": variables, "sdk_arguments": basic_script_driver.create_commands()[2:]}))
"""


def resources(hosts: list[str], current: str, **members: Any) -> dict[str, Any]:
    """A resourceconfig.json as SageMaker writes it today."""
    group = {"instance_group_name": "homogeneousCluster", "instance_type": "ml.c5.xlarge", "hosts": hosts}
    return {
        "current_group_name": "homogeneousCluster",
        "current_host": current,
        "current_instance_type": "ml.c5.xlarge",
        "hosts": hosts,
        "instance_groups": [group],
        "network_interface_name": "eth0",
        "topology": None,
    } | members


def channel(mode: str = "File", **members: Any) -> dict[str, Any]:
    """One entry of inputdataconfig.json."""
    return {"TrainingInputMode": mode, "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"} | members


ONE = resources(["algo-1"], "algo-1")
TWELVE = sorted(f"algo-{number}" for number in range(1, 13))
HETEROGENEOUS: dict[str, Any] = {
    "instance_groups": [
        {"instance_group_name": "data", "instance_type": "ml.c5.9xlarge", "hosts": ["algo-3", "algo-1"]},
        {"instance_group_name": "dnn", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-2"]},
    ],
}


def case(name: str, resource: Any = ONE, **members: Any) -> dict[str, Any]:
    """A container: its three files, the variables it is started with, its GPUs and Neuron cores."""
    files = {"resourceconfig": resource, "inputdataconfig": {}, "hyperparameters": {}}
    files |= {file: members.pop(file) for file in list(members) if file in files}
    return {"name": name, "files": files, "environ": {}, "gpus": 0, "neurons": []} | members


CASES = [
    case("nothing asked"),
    case(
        "an ordinary job",
        resources(["algo-1", "algo-2"], "algo-2"),
        inputdataconfig={"train": channel(ContentType="image/png"), "validation": channel("FastFile")},
        hyperparameters={"epochs": "5", "learning-rate": "1e-3", "model": "resnet18", "b": "64"},
        environ={"TRAINING_JOB_NAME": "digits-1", "AWS_DEFAULT_REGION": "eu-west-1"},
    ),
    case(
        "odd characters",
        hyperparameters={
            "quote": 'it\'s "so"',
            "dollar": "$HOME `id` $(id)",
            "lines": "one\ntwo\r\n",
            "backslash": "a\\nb",
            "accent": "Zürich, 東京, 🙂",
            "empty": "",
            "blank": " ",
            "dots.and-dashes_x": "v",
            "with space": "v",
            "--dashed": "v",
            "ümlaut": "ß",
        },
    ),
    case(
        "every kind of JSON",
        hyperparameters={
            "i": "7",
            "negative": "-3",
            "float": "0.10",
            "small": "1e-3",
            "large": "1E400",
            "leading": "012",
            "spaces": " 5 ",
            "true": "true",
            "python-true": "True",
            "no": "false",
            "null_": "null",
            "nan": "NaN",
            "infinity": "-Infinity",
            "quoted": '"text"',
            "quoted-number": '"5"',
            "escape": '"\\u00e9\\n"',
            "list": '[1, "a", null, true, 0.5]',
            "list-empty": "[]",
            "map": '{"b": 1, "a": "x y", "c": null}',
            "deep": '{"z": {"y": [1, {"x": false}]}, "a": [1]}',
            "map_empty": "{}",
            "broken": '{"a": 1',
            "version": "1.2.3",
            "digits": "9" * 40,
            "quoted-true": '"true"',
            "quoted-map": '"{\\"b\\":1,\\"a\\":[null]}"',
            "compact": '{"é":[1,2]}',
        },
    ),
    case(
        "values that are no strings",
        hyperparameters={"epochs": 5, "flag": True, "none": None, "list": [1, 2], "map": {"a": 1}},
    ),
    case(
        "what the SDK adds for the toolkit",
        hyperparameters={
            "sagemaker_program": '"sub/train.py"',
            "sagemaker_submit_directory": '"s3://b/source.tar.gz"',
            "sagemaker_container_log_level": "10",
            "sagemaker_job_name": '"the-job"',
            "sagemaker_region": '"us-west-2"',
            "sagemaker_enable_cloudwatch_metrics": "false",
            "sagemaker_s3_output": '"s3://b/out"',
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": "4",
            "sagemaker_custom": '{"b": [1], "a": null}',
            "_tuning_objective_metric": "accuracy",
            "default_user_module_name": "m",
            "x": "1",
        },
        environ={"AWS_DEFAULT_REGION": "eu-west-1"},
    ),
    case("twelve hosts, the second", resources(TWELVE, "algo-2"), inputdataconfig={"t": channel("Pipe")}),
    case("twelve hosts, the tenth", resources(TWELVE, "algo-10"), hyperparameters={"sagemaker_mpi_enabled": "true"}),
    case(
        "two groups",
        resources(
            ["algo-1", "algo-2", "algo-3"],
            "algo-2",
            current_group_name="dnn",
            current_instance_type="ml.p4d.24xlarge",
            **HETEROGENEOUS,
        ),
        hyperparameters={"sagemaker_distribution_instance_groups": '["dnn"]', "sagemaker_mpi_enabled": "true"},
        gpus=8,
    ),
    case(
        "two groups, the other one",
        resources(["algo-1", "algo-2", "algo-3"], "algo-3", current_group_name="data", **HETEROGENEOUS),
        hyperparameters={"sagemaker_torch_distributed_enabled": "true"},
    ),
    case(
        "two groups, none distributed",
        resources(["algo-1", "algo-2", "algo-3"], "algo-3", current_group_name="data", **HETEROGENEOUS),
        hyperparameters={"sagemaker_pytorch_ddp_enabled": "false"},
    ),
    case(
        "an older file without type and groups",
        {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "ethwe"},
        sdk=False,  # SDK v3 fails on it
    ),
    case(
        "the least there can be",
        {"current_host": "algo-1", "hosts": ["algo-1"]},
        hyperparameters={"sagemaker_parameter_server_enabled": "true"},
        sdk=False,
    ),
    case(
        "a topology and members of tomorrow",
        resources(
            ["algo-1", "algo-2"],
            "algo-1",
            topology=[{"hostName": "algo-1", "capacityUnitId": "c-1"}],
            tomorrow={"a": [1]},
        ),
        inputdataconfig={"train": channel(Tomorrow=1)},
    ),
    case(
        "channels of every kind",
        inputdataconfig={
            "z": channel("Pipe", RecordWrapperType="RecordIO", S3DistributionType="ShardedByS3Key"),
            "train-set": channel(ContentType="text/csv; label_size=0"),
            "train.set": channel(),
            "Train": channel("FastFile"),
            "train": channel(),
            "lower": channel("pipe"),
            "bare": {},
        },
    ),
    case(
        "names that meet when folded",
        hyperparameters={"lr": "1", "LR": "2", "a-b": "3", "a_b": "4", "n": "5", "N": "6", "c-d": "7"},
    ),
    case(
        "variables and accelerators",
        resources(["algo-1"], "algo-1", current_instance_type="ml.trn1.2xlarge"),
        hyperparameters={"sagemaker_program": "other.py", "x": "y"},
        environ={
            "SAGEMAKER_PROGRAM": "train.sh",
            "SAGEMAKER_TRAINING_MODULE": "sagemaker_pytorch_container.training:main",
            "SM_HP_MP_PARAMETERS": '{"partitions": 2}',
            "SM_LOG_LEVEL": "20",
            "TRAINING_JOB_NAME": "job",
        },
        gpus=4,
        neurons=[2, 2],
    ),
    case("model parallel off", environ={"SM_HP_MP_PARAMETERS": "{}"}),
    case("a very large Trainium", resources(["algo-1"], "algo-1", current_instance_type="ml.trn2.48xlarge")),
]


def main(toolkit: str, sdk: str) -> None:
    """Asks both launchers about every case and writes what they answered."""
    results = [ask(each, toolkit, sdk) for each in CASES]
    content = {
        "made_by": "make_toolkit_variables.py, sagemaker-training 5.1.4, sagemaker-train 1.27.0",
        "cases": results,
    }
    OUTPUT.write_text(json.dumps(content, indent=1) + "\n")


def ask(each: dict[str, Any], toolkit: str, sdk: str) -> dict[str, Any]:
    """One case with the variables and arguments that the launchers gave for it."""
    with tempfile.TemporaryDirectory() as folder:
        root, programs = Path(folder, "ml"), Path(folder, "bin")
        config = root / "input" / "config"
        config.mkdir(parents=True)
        programs.mkdir()
        for file, content in each["files"].items():
            (config / f"{file}.json").write_text(json.dumps(content))
        lines = "".join(f"GPU {number}: one\n" for number in range(each["gpus"]))
        neurons = json.dumps([{"nc_count": count} for count in each["neurons"]])
        for program, answer in (("nvidia-smi", lines), ("neuron-ls", neurons)):
            path = programs / program
            path.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
            path.chmod(0o755)
        environ = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": toolkit, "LC_ALL": "C.UTF-8"}
        environ |= {"SAGEMAKER_BASE_DIR": str(root), "AWS_CONFIG_FILE": os.devnull} | each["environ"]
        answer = run(["-c", ASK_TOOLKIT], environ).replace(json.dumps(str(root))[1:-1], "{root}")
        result: dict[str, Any] = each | json.loads(answer)
        if each.get("sdk", True):
            (Path(folder) / "files.json").write_text(json.dumps(each["files"]))
            environ.setdefault("TRAINING_JOB_NAME", "job")  # SDK v3 fails without
            answer = run(["-c", ASK_SDK, sdk, str(Path(folder) / "files.json")], environ)
            result |= json.loads(answer.replace("/opt/ml", "{root}"))
        else:
            result |= {"sdk": {}, "sdk_arguments": []}
        result["cpus"] = int(result["toolkit"]["SM_NUM_CPUS"])
        return result


def run(arguments: list[str], environ: dict[str, str]) -> str:
    """The last line that a Python process prints."""
    finished = subprocess.run([sys.executable, *arguments], env=environ, check=True, capture_output=True, text=True)
    return finished.stdout.splitlines()[-1]


if __name__ == "__main__":
    main(*sys.argv[1:])
