"""The plan: exactly one request, the same for the same spec."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator

import launcher
from launcher import SpecError
from launcher.request import serialization
from launcher.rules.examples import BASE, laid_over_base
from launcher.spec.model import aws_name, spec_name
from sagemaker_channels import contract
from sagemaker_channels.job.environment import load_environment


def test_unset_keys_are_absent_from_the_request() -> None:
    request = launcher.plan(launcher.parse_spec(BASE), name="one").request
    assert request == {
        "TrainingJobName": "one",
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/training:1",
            "TrainingInputMode": "File",
        },
        "RoleArn": "arn:aws:iam::123456789012:role/training",
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 50},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
        "InputDataConfig": [
            {
                "ChannelName": "train",
                "DataSource": {
                    "S3DataSource": {
                        "S3Uri": "s3://bucket/train/",
                        "S3DataType": "S3Prefix",
                        "S3DataDistributionType": "FullyReplicated",
                    }
                },
                "InputMode": "File",
            }
        ],
    }


def test_null_suppresses_a_default() -> None:
    overlay = "channels: {train: {s3_uri: s3://bkt/t/, input_mode: null, s3_data_distribution_type: ~}}\nstopping_condition: null"
    request = launcher.plan(launcher.parse_spec(laid_over_base(overlay)), name="one").request
    (entry,) = request["InputDataConfig"]
    assert entry == {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3Uri": "s3://bkt/t/", "S3DataType": "S3Prefix"}},
    }
    assert "StoppingCondition" not in request


def test_channel_without_a_mode_has_the_jobs() -> None:
    overlay = "training_input_mode: FastFile\nchannels: {a: s3://bkt/a/, b: {s3_uri: s3://bkt/b/, input_mode: Pipe}}"
    request = launcher.plan(launcher.parse_spec(laid_over_base(overlay)), name="one").request
    assert [entry["InputMode"] for entry in request["InputDataConfig"]] == ["FastFile", "Pipe"]


def test_empty_values_are_sent() -> None:
    spec = launcher.parse_spec(laid_over_base("hyperparameters: {}\ntags: {}\nenvironment: {EMPTY: ''}"))
    request = launcher.plan(spec, name="one").request
    assert (request["HyperParameters"], request["Tags"], request["Environment"]) == ({}, [], {"EMPTY": ""})


def test_connector_settings_are_environment_variables() -> None:
    overlay = "channels: {images: {source: S3Connector, s3_uri: s3://bkt/i/, content_type: application/x-tar}}"
    request = launcher.plan(launcher.parse_spec(laid_over_base(overlay)), name="one").request
    assert "InputDataConfig" not in request
    assert json.loads(request["Environment"]["LAUNCHER_CONNECTOR_0"]) == {
        "channel": "images",
        "s3_uri": "s3://bkt/i/",
        "style": "iterable",
        "content_type": "application/x-tar",
    }


AUGMENTED = (
    "train: {s3_uri: s3://bkt/m, s3_data_type: AugmentedManifestFile, attribute_names: [source-ref, class],"
    " input_mode: Pipe, record_wrapper_type: RecordIO}"
)


def test_attribute_names_are_environment_variables(job: Path) -> None:
    code = "code: {directory: src, entry_point: train.py}\nenvironment: {A: b}\n"
    job.write_text(laid_over_base(f"{code}channels: {{{AUGMENTED}, other: s3://bkt/o/}}"))
    names = {"LAUNCHER_ATTRIBUTE_NAMES_0": '{"train": ["source-ref", "class"]}'}
    assert launcher.plan(job, name="one").request["Environment"] == {"A": "b", **names}
    job.write_text(laid_over_base(f"channels: {{{AUGMENTED}}}"))  # without code no script reads it
    assert "Environment" not in launcher.plan(job, name="one").request


def test_long_attribute_names_are_split_over_variables(job: Path, tmp_path: Path) -> None:
    names = [f"{number:02d}-{'ä' * 40}" for number in range(16)]
    augmented = AUGMENTED.replace("[source-ref, class]", json.dumps(names))
    job.write_text(laid_over_base(f"code: {{directory: src, entry_point: train.py}}\nchannels: {{{augmented}}}"))
    environ = launcher.plan(job, name="one").request["Environment"]
    assert len(environ) > 5
    assert {len(text) for text in environ.values()} <= {512, len([*environ.values()][-1])}
    config = tmp_path / "ml" / contract.CONFIG_DIR
    config.mkdir(parents=True)
    (config / contract.INPUT_DATA_CONFIG_FILE).write_text('{"train": {}}')
    assert load_environment(tmp_path / "ml", environ).channels["train"].attribute_names == tuple(names)


def test_made_job_names_are_legal_and_unique() -> None:
    spec = launcher.parse_spec(laid_over_base(f"base_name: {'a' * 60}"))
    names = {launcher.plan(spec).request["TrainingJobName"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"a{42}-\d{8}-\d{6}-[0-9a-z]{4}", name) for name in names)


def test_yaml_and_json_read_back_equal() -> None:
    awkward = {
        "a": [
            "1e-3",
            "012",
            "no",
            "12:30",
            "x: y",
            "",
            " ",
            "~",
            "null",
            "a\nb",
            "2024-01-01",
            "#x",
            "é",
            "1_0",
            "=",
            "<<",
            "0x1",
        ]
    }
    assert yaml.safe_load(serialization.as_yaml(awkward)) == awkward
    assert json.loads(serialization.as_json(awkward)) == awkward
    quoted = serialization.as_yaml({"rate": "1e-3"})
    assert quoted == "rate: '1e-3'\n"  # plain, a YAML 1.2 reader would make a number of it


def created() -> Any:
    """Return the shape of a request."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    return model.operation_model("CreateTrainingJob").input_shape


def test_member_names_convert_to_keys_and_back() -> None:
    shapes: list[Any] = [created()]
    seen = set()
    while shapes:
        shape = shapes.pop()
        if shape.name in seen:
            continue
        seen.add(shape.name)
        for name, member in getattr(shape, "members", {}).items():
            assert aws_name(spec_name(name)) == name
            shapes.append(member)
        shapes += [inner for inner in (getattr(shape, "member", None), getattr(shape, "value", None)) if inner]


def test_aws_cli_accepts_the_request(job: Path) -> None:
    request = json.loads(serialization.as_json(launcher.plan(job, name="one").request))
    report = ParamValidator().validate(request, created())
    assert not report.has_errors(), report.generate_report()


def test_planning_reads_no_clock_file_or_environment(job: Path) -> None:
    """A dry run opens no socket, writes no file and imports nothing heavy, with an environment that names nothing."""
    program = """
import os, sys
heavy = {"boto3", "botocore", "sagemaker", "torch", "rich", "s3torchconnector", "pathspec"}
heavy |= {"launcher.aws.session", "difflib", "gzip", "tarfile"}
def audit(event, args):
    if event.startswith("socket.") or event in ("os.mkdir", "os.remove", "os.rename", "subprocess.Popen"):
        raise RuntimeError(f"{event} {args}")
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        raise RuntimeError(f"{event} {args}")
sys.addaudithook(audit)
sys.dont_write_bytecode = True
from launcher.cli import main
try:
    main([sys.argv[1], "--dry-run", "--name", "one"])
finally:
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(job)], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "code      1 file, 18 bytes\n[]\n"
    assert yaml.safe_load(done.stdout) == launcher.plan(job, name="one").request


@pytest.mark.parametrize("code", ["", "code: {directory: src, entry_point: train.py}"])
@pytest.mark.parametrize(
    "overlay", ['hyperparameters: {p: "${S}"}', 'environment: "${S}"', 'request: {Environment: "${S}"}',
                'request: {HyperParameters: ["${S}"]}', 'request: "${S}"', 'environment: ["${S}"]']
)  # fmt: skip
def test_secret_of_a_wrong_form_is_not_shown(problems_of: Callable[..., list[str]], overlay: str, code: str) -> None:
    found = problems_of(f"{overlay}\n{code}", S="hunter2\nx")
    assert len(found) == 1
    assert "hunter2" not in found[0]


def test_wrong_name_option_is_reported_at_the_option(job: Path, problems_of: Callable[..., list[str]]) -> None:
    job.write_text(laid_over_base("base_name: null"))
    assert launcher.plan(job, name="abc").request["TrainingJobName"] == "abc"
    for base in ("base_name: null", "base_name: mine", "base_name: null\ntraining_job_name: mine"):
        (message,) = problems_of(base, "x y")
        assert message.startswith("--name: 'x y' does not match")


def test_wrong_base_name_is_quoted_as_written(job: Path, problems_of: Callable[..., list[str]]) -> None:
    (message,) = problems_of("base_name: my_job", None)
    assert message.startswith("7:1: base_name: 'my_job' does not match")
    with pytest.raises(SpecError) as caught:
        launcher.plan(launcher.load(job, sets=[f"base_name={'a_' * 150}"]))
    assert {str(problem.location) for problem in caught.value.problems} == {"--set base_name"}
    job.write_text(laid_over_base(f"base_name: {'a' * 43}"))
    assert [warning.code for warning in launcher.plan(job).warnings] == ["base-name-room"]
    assert launcher.plan(job, name="one").warnings == ()
