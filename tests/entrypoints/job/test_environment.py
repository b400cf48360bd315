"""load_environment reads what SageMaker writes, of any age and by any writer, or names the file it cannot read."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sagemaker_channels import contract
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.job.environment import Channel, InstanceGroup, host_order, load_environment

REPOSITORY = Path(__file__).parents[3]
# As SageMaker writes it today, of a job with one host.
RESOURCES: dict[str, Any] = {
    "current_group_name": "homogeneousCluster",
    "current_host": "algo-1",
    "current_instance_type": "ml.c5.xlarge",
    "hosts": ["algo-1"],
    "instance_groups": [
        {"hosts": ["algo-1"], "instance_group_name": "homogeneousCluster", "instance_type": "ml.c5.xlarge"}
    ],
    "network_interface_name": "eth0",
    "topology": None,
}


def write(root: Path, **files: Any) -> Path:
    """Writes the files of a container: objects as JSON in UTF-8, bytes as they are."""
    config = root / contract.CONFIG_DIR
    config.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=False).encode()
        (config / f"{name}.json").write_bytes(data)
    return root


def test_sagemakers_files_are_read(tmp_path: Path) -> None:
    train = {
        "TrainingInputMode": "Pipe",
        "S3DistributionType": "ShardedByS3Key",
        "RecordWrapperType": "RecordIO",
        "ContentType": "image/png",
    }
    lists = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    write(
        tmp_path,
        resourceconfig=RESOURCES,
        inputdataconfig={"train": train, "lists": lists},
        hyperparameters={"epochs": "5", "model": "resnet"},
    )
    environment = load_environment(tmp_path, {"TRAINING_JOB_NAME": "digits-1"})
    assert environment.job_name == "digits-1"
    assert environment.hyperparameters == {"epochs": 5, "model": "resnet"}
    data = tmp_path / "input" / "data"
    assert environment.channels == {
        "train": Channel("train", "Pipe", "image/png", "ShardedByS3Key", "RecordIO", data / "train", hosts=1),
        "lists": Channel("lists", "File", None, "FullyReplicated", "None", data / "lists", hosts=1),
    }
    assert (environment.hosts, environment.current_host, environment.host_rank) == (("algo-1",), "algo-1", 0)
    assert (environment.current_instance_type, environment.current_group) == ("ml.c5.xlarge", "homogeneousCluster")
    assert environment.instance_groups == (InstanceGroup("homogeneousCluster", "ml.c5.xlarge", ("algo-1",)),)
    assert environment.network_interface_name == "eth0"
    assert environment.model_dir == tmp_path / "model"
    assert environment.output_data_dir == tmp_path / "output" / "data"
    assert environment.checkpoint_dir == tmp_path / "checkpoints"
    assert environment.failure_file == tmp_path / "output" / "failure"
    assert pickle.loads(pickle.dumps(environment)) == environment  # DataLoader workers started by spawn get it so


def test_missing_files_give_defaults(tmp_path: Path) -> None:
    environment = load_environment(tmp_path, {})
    assert (environment.hosts, environment.host_rank) == (("algo-1",), 0)
    assert (environment.channels, environment.hyperparameters, environment.instance_groups) == ({}, {}, ())
    assert (environment.job_name, environment.current_instance_type) == (None, "local")


def test_older_resourceconfig_is_read(tmp_path: Path) -> None:
    write(tmp_path, resourceconfig={"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]})
    environment = load_environment(tmp_path, {})
    assert (environment.current_instance_type, environment.current_group) == ("local", "homogeneousCluster")
    assert (environment.network_interface_name, environment.instance_groups) == ("eth0", ())


def test_hosts_are_ordered_by_number(tmp_path: Path) -> None:
    listed = sorted(f"algo-{number}" for number in range(1, 13))
    assert listed[1] == "algo-10"  # the trap: SageMaker's order is lexicographic
    write(tmp_path, resourceconfig=RESOURCES | {"hosts": listed, "current_host": "algo-10"})
    environment = load_environment(tmp_path, {})
    assert environment.hosts == tuple(f"algo-{number}" for number in range(1, 13))
    assert environment.host_rank == 9


def test_hosts_of_any_name_can_be_ordered() -> None:
    names = ["", "1", "2a", "algo-02", "algo-2", "algo-10", "b", "٣"]
    backwards = names[::-1]
    assert sorted(backwards, key=host_order) == names


def test_hosts_of_each_group_are_ordered_by_number(tmp_path: Path) -> None:
    groups = [
        {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "hosts": ["algo-10", "algo-9"]},
        {"instance_group_name": "dnn", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-11"]},
    ]
    members = {"current_group_name": "data", "instance_groups": groups, "current_host": "algo-10"}
    write(tmp_path, resourceconfig=RESOURCES | members | {"hosts": ["algo-10", "algo-11", "algo-9"]})
    environment = load_environment(tmp_path, {})
    assert [group.hosts for group in environment.instance_groups] == [("algo-9", "algo-10"), ("algo-11",)]
    assert environment.hosts == ("algo-9", "algo-10", "algo-11")


def test_unknown_and_null_members_are_ignored(tmp_path: Path) -> None:
    nothing = {"TrainingInputMode": None, "ContentType": None, "S3DistributionType": None, "Tomorrow": {"a": 1}}
    resources = {"hosts": ["algo-1"], "current_host": "algo-1", "instance_groups": None, "current_instance_type": None}
    write(tmp_path, inputdataconfig={"train": nothing}, resourceconfig=resources | {"tomorrow": 1})
    environment = load_environment(tmp_path, {})
    assert environment.channels["train"].mode == "File"
    assert environment.channels["train"].distribution == "FullyReplicated"
    assert environment.channels["train"].record_wrapper == "None"
    assert environment.current_instance_type == "local"


@pytest.mark.parametrize(
    ("written", "mode"), [("pipe", "Pipe"), ("FASTFILE", "FastFile"), ("File", "File"), ("Tomorrow", "Tomorrow")]
)
def test_modes_get_awss_spelling(written: str, mode: str, tmp_path: Path) -> None:
    write(tmp_path, inputdataconfig={"train": {"TrainingInputMode": written}})
    assert load_environment(tmp_path, {}).channels["train"].mode == mode


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1e-3", 0.001),
        ("true", True),
        ("True", "True"),
        ("null", None),
        ('"5"', "5"),
        ("012", "012"),
        ("", ""),
        ("[1, 2]", [1, 2]),
        ("it's $HOME\n", "it's $HOME\n"),
        ("9" * 5000, "9" * 5000),  # longer than Python makes numbers of
        (7, 7),  # local set-ups write numbers
    ],
)
def test_hyperparameters_are_json_or_text(text: object, value: object, tmp_path: Path) -> None:
    write(tmp_path, hyperparameters={"x": text})
    assert load_environment(tmp_path, {}).hyperparameters == {"x": value}


def test_code_channel_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, inputdataconfig={"train": {}, contract.CODE_CHANNEL: {"TrainingInputMode": "File"}})
    environment = load_environment(tmp_path, {})
    assert list(environment.channels) == list(environment.input_data_config) == ["train"]


def test_connector_channels_come_from_variables(tmp_path: Path) -> None:
    write(tmp_path, inputdataconfig={"train": {}})
    first = {"channel": "images", "s3_uri": "s3://b/p/", "style": "iterable", "content_type": "application/x-tar"}
    second = {"channel": "more", "s3_uri": "s3://b/q", "reader": "Mine", "max_objects": 3}
    environ = {"LAUNCHER_CONNECTOR_10": json.dumps(second), "LAUNCHER_CONNECTOR_2": json.dumps(first)}
    channels = load_environment(tmp_path, environ).channels
    assert list(channels) == ["train", "images", "more"]
    images, more = channels["images"], channels["more"]
    assert (images.mode, images.s3_uri, images.style) == ("S3Connector", "s3://b/p/", "iterable")
    assert (images.content_type, images.max_objects) == ("application/x-tar", None)
    assert (more.mode, more.style) == ("Mine", None)
    assert (more.content_type, more.max_objects, more.distribution) == (None, 3, "FullyReplicated")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"channel": 5, "s3_uri": "s3://b/", "style": "map"}', "null"])
def test_damaged_connector_variable_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LAUNCHER_CONNECTOR_0"):
        load_environment(tmp_path, {"LAUNCHER_CONNECTOR_0": text})


def test_two_channels_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, inputdataconfig={"train": {}})
    text = json.dumps({"channel": "train", "s3_uri": "s3://b/p/", "style": "map"})
    with pytest.raises(ConfigError, match=r"LAUNCHER_CONNECTOR_0.*'train'"):
        load_environment(tmp_path, {"LAUNCHER_CONNECTOR_0": text})


@pytest.mark.parametrize("name", ["hyperparameters", "inputdataconfig", "resourceconfig"])
@pytest.mark.parametrize("content", [b"", b'{"a": ', b"[1]", b'{"a": "\xff"}', b"\xef\xbb\xbf{}"])
def test_damaged_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    write(tmp_path, **{name: content})
    with pytest.raises(ConfigError, match=rf"{name}\.json") as raised:
        load_environment(tmp_path, {})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "content",
    [
        {"hosts": ["algo-1", "algo-2"]},
        {"hosts": ["algo-1", "algo-2"], "current_host": "algo-3"},
        {"hosts": "algo-1", "current_host": "algo-1"},
        {"hosts": [1], "current_host": "algo-1"},
        {"hosts": ["algo-1"], "current_host": "algo-1", "instance_groups": ["a"]},
        {"hosts": ["algo-1"], "current_host": ["algo-1"]},
    ],
)
def test_contradictory_resourceconfig_is_named(content: Any, tmp_path: Path) -> None:
    write(tmp_path, resourceconfig=content)
    with pytest.raises(ConfigError, match=r"resourceconfig\.json"):
        load_environment(tmp_path, {})


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / contract.CONFIG_DIR / "resourceconfig.json").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"resourceconfig\.json"):
        load_environment(tmp_path, {})


def test_root_is_the_variables_or_the_contracts(tmp_path: Path) -> None:
    assert load_environment(environ={contract.BASE_DIR_VARIABLE: str(tmp_path)}).root == tmp_path
    assert load_environment(environ={contract.BASE_DIR_VARIABLE: ""}).root == Path(contract.BASE_DIR)


def test_files_are_utf8_in_any_locale_with_only_the_standard_library(tmp_path: Path) -> None:
    write(tmp_path, hyperparameters={"city": "Zürich 東京"}, inputdataconfig={"bücher": {}})
    script = (
        "import sys; from sagemaker_channels.job.environment import load_environment as load\n"
        "e = load(); print(ascii([e.hyperparameters['city'], *e.channels]))\n"
        "foreign = {n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names\n"
        "print(sorted(n for n in foreign if not n.startswith('_')))"
    )
    environ = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": str(REPOSITORY / "entrypoints"),
    }
    environ |= {contract.BASE_DIR_VARIABLE: str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-S", "-c", script], env=environ, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [ascii(["Zürich 東京", "bücher"]), "['sagemaker_channels']"]
