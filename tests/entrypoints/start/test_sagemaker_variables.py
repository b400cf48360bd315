"""The SM_* variables and the command line are those of AWS's own launchers, whose answers lie in tests/data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sagemaker_channels import contract
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.job.hyperparameters import command_line_arguments
from sagemaker_channels.start.variables import Machine, count_machine, sagemaker_variables

CASES = json.loads((Path(__file__).parents[2] / "data" / "toolkit_variables.json").read_text(encoding="utf-8"))["cases"]
# SDK v3's variables for hyperparameters of the toolkit itself, which the toolkit does not pass to scripts.
LEFT_OUT = ("SM_HP_SAGEMAKER_", "SM_HP__TUNING_OBJECTIVE_METRIC", "SM_HP_DEFAULT_USER_MODULE_NAME")


def container(root: Path, files: dict[str, Any], environ: dict[str, str] | None = None) -> Environment:
    """The environment of a container whose root holds these files."""
    config = root / contract.CONFIG_DIR
    config.mkdir(parents=True)
    for name, content in files.items():
        (config / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return load_environment(root, environ or {})


def variables_of(case: dict[str, Any], root: Path, style: str = "toolkit") -> dict[str, str]:
    environment = container(root, case["files"], case["environ"])
    machine = Machine(case["cpus"], case["gpus"], int(case["toolkit"]["SM_NUM_NEURONS"]))
    return sagemaker_variables(environment, case["environ"], machine, argument_style=style)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_variables_of_the_toolkit_have_its_values(case: dict[str, Any], tmp_path: Path) -> None:
    variables = variables_of(case, tmp_path)
    expected = {name: text.replace("{root}", str(tmp_path)) for name, text in case["toolkit"].items()}
    assert {name: variables.get(name) for name in expected} == expected


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_arguments_equal_the_toolkits(case: dict[str, Any], tmp_path: Path) -> None:
    assert command_line_arguments(container(tmp_path, case["files"]).hyperparameters, "toolkit") == case["arguments"]


SDK_CASES = [case for case in CASES if case["sdk"]]


@pytest.mark.parametrize("case", SDK_CASES, ids=[case["name"] for case in SDK_CASES])
def test_further_variables_of_the_sdk_have_its_values(case: dict[str, Any], tmp_path: Path) -> None:
    variables = variables_of(case, tmp_path)
    further = {name for name in case["sdk"] if name not in case["toolkit"] and not name.startswith(LEFT_OUT)}
    expected = {name: case["sdk"][name].replace("{root}", str(tmp_path)) for name in further}
    assert {name: variables.get(name) for name in expected} == expected
    assert {"SM_INPUT_DATA_DIR", "SM_MASTER_ADDR", "SM_MASTER_PORT", "SM_HOST_COUNT", "SM_CURRENT_HOST_RANK"} <= further


@pytest.mark.parametrize("case", SDK_CASES, ids=[case["name"] for case in SDK_CASES])
def test_argument_style_json_equals_the_sdks_driver(case: dict[str, Any], tmp_path: Path) -> None:
    variables = variables_of(case, tmp_path / "variables", "json")
    settings, expected = (
        {name: text for name, text in each.items() if name.startswith(("SM_HPS", "SM_HP_"))}
        for each in (variables, case["sdk"])
    )
    assert settings == expected
    arguments = command_line_arguments(container(tmp_path, case["files"]).hyperparameters, "json")
    assert arguments == case["sdk_arguments"]
    assert json.loads(variables["SM_USER_ARGS"]) == arguments


def test_only_variables_of_toolkit_or_sdk_are_set(tmp_path: Path) -> None:
    for number, case in enumerate(SDK_CASES):
        ours = set(variables_of(case, tmp_path / str(number)))
        # SDK v3 sets these two where its own source_code is given, which stands for our entry point.
        assert ours - set(case["toolkit"]) - set(case["sdk"]) == {"SM_SOURCE_DIR", "SM_ENTRY_SCRIPT"}, case["name"]


def test_folded_name_does_not_replace_a_hyperparameter(tmp_path: Path) -> None:
    files = {"hyperparameters": {"a_b": "own", "a-b": "folded", "c-d": "null"}}
    variables = sagemaker_variables(container(tmp_path, files), {}, Machine(1))
    assert variables["SM_HP_A_B"] == "own"
    assert variables["SM_HP_A-B"] == "folded"
    assert variables["SM_HP_C_D"] == ""  # the toolkit's spelling of null


def test_code_channel_has_no_variables(tmp_path: Path) -> None:
    entry = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    files = {"inputdataconfig": {"train": entry, contract.CODE_CHANNEL: entry}}
    variables = sagemaker_variables(container(tmp_path, files), {}, Machine(1))
    assert variables["SM_CHANNELS"] == '["train"]'
    assert not any(contract.CODE_CHANNEL in name.lower() + text for name, text in variables.items())


def test_connector_channel_has_no_folder_variable(tmp_path: Path) -> None:
    text = json.dumps({"channel": "images", "s3_uri": "s3://b/p/", "style": "map"})
    environ = {f"{contract.CONNECTOR_VARIABLE}0": text}
    variables = sagemaker_variables(container(tmp_path, {}, environ), environ, Machine(1))
    assert variables["SM_CHANNELS"] == "[]"
    assert "SM_CHANNEL_IMAGES" not in variables


def test_entry_point_variables_name_the_script_that_runs(tmp_path: Path) -> None:
    environment = container(tmp_path, {"hyperparameters": {"sagemaker_program": "other.py"}})
    variables = sagemaker_variables(environment, {"SAGEMAKER_PROGRAM": "third.py"}, Machine(1), "sub/train.py")
    assert variables["SM_USER_ENTRY_POINT"] == variables["SM_ENTRY_SCRIPT"] == "sub/train.py"
    assert variables["SM_MODULE_NAME"] == "sub/train"
    assert json.loads(variables["SM_TRAINING_ENV"])["user_entry_point"] == "sub/train.py"


def test_master_address_of_a_local_run_is_its_own(tmp_path: Path) -> None:
    environ = {contract.MASTER_ADDR_VARIABLE: "127.0.0.1", contract.MASTER_PORT_VARIABLE: "29511"}
    variables = sagemaker_variables(container(tmp_path, {}), environ, Machine(1))
    assert (variables["SM_MASTER_ADDR"], variables["SM_MASTER_PORT"]) == ("127.0.0.1", "29511")


def test_missing_files_mean_one_host(tmp_path: Path) -> None:
    variables = sagemaker_variables(load_environment(tmp_path, {}), {}, Machine(1))
    assert variables["SM_HOSTS"] == '["algo-1"]'
    assert variables["SM_CURRENT_HOST"] == variables["SM_MASTER_ADDR"] == "algo-1"
    assert variables["SM_CHANNELS"] == "[]"


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_accelerators_are_counted_by_the_vendors_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(tmp_path, "nvidia-smi", "echo 'GPU 0: A'; echo 'GPU 1: A'; echo 'No more'")
    program(tmp_path, "neuron-ls", """echo '[{"nc_count": 2}, {"nc_count": 2}, {}]'""")
    assert (count_machine("ml.trn1.2xlarge").gpus, count_machine("ml.trn1.2xlarge").neurons) == (2, 4)
    program(tmp_path, "nvidia-smi", "echo 'GPU 0: A'; exit 9")  # a tool without its driver
    program(tmp_path, "neuron-ls", "echo error=no devices")
    assert (count_machine("ml.c5.xlarge").gpus, count_machine("ml.c5.xlarge").neurons) == (0, 0)
    assert count_machine("ml.trn2.48xlarge").neurons == 64
