"""A request becomes a spec whose plan is that request: bundled, random and unusual requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher import parse_spec
from launcher.errors import InputError
from launcher.importing.from_request import import_request
from launcher.importing.imports import import_file
from launcher.request import serialization
from launcher.request.build import build_request
from launcher.rules.examples import laid_over_base
from launcher.spec.aws_model import REQUEST, shapes
from launching import launch

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.json"))


def planned(request: dict[str, Any]) -> dict[str, Any]:
    """Return the request that the imported spec plans to, by way of its YAML."""
    spec = parse_spec(serialization.as_yaml(import_request(request)))
    return build_request(spec, spec.training_job_name or "").request


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_bundled_request_is_imported_without_the_request_key(file: Path) -> None:
    request = json.loads(file.read_text())
    assert planned(request) == request
    assert "request" not in import_request(request)


def test_variables_derived_from_channels_are_not_imported_twice() -> None:
    request = json.loads((Path(__file__).parents[2] / "golden" / "s3-augmented-manifest.json").read_text())
    shuffled = {"LAUNCHER_SHUFFLED_CHANNELS_0": '["train"]'}
    assert request["Environment"] == {"LAUNCHER_ATTRIBUTE_NAMES_0": '{"train": ["source-ref", "class"]}', **shuffled}
    spec = import_request(request)
    assert "environment" not in spec
    spec["channels"]["train"]["attribute_names"] = ["class"]  # no other place has to change
    changed = parse_spec(serialization.as_yaml(spec))
    assert build_request(changed, "a").request["Environment"] == {
        "LAUNCHER_ATTRIBUTE_NAMES_0": '{"train": ["class"]}',
        **shuffled,
    }
    for environment in (
        {"A": "b", **request["Environment"]},
        {"LAUNCHER_ATTRIBUTE_NAMES_0": '{"train": ["other"]}'},
        {"A": "b"},
        {"LAUNCHER_ATTRIBUTE_NAMES_0": ["wrong"]},
    ):
        assert planned({**request, "Environment": environment}) == {**request, "Environment": environment}


@pytest.mark.parametrize(
    "change",
    [
        {"TrainingImage": "again", "Environment": {"A": "${HOME} $${HOME} $"}},
        {"InputDataConfig": [{"ChannelName": "a"}]},
        {
            "InputDataConfig": [
                {"ChannelName": "a", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/"}, "DatasetSource": {}}}
            ]
        },
        {"InputDataConfig": [{"ChannelName": "a", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/", "Other": 1}}}]},
        {"InputDataConfig": []},
        {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]},
        {"Tags": []},
        {"HyperParameters": {}},
        {"HyperParameters": {"a": "", "b": "1e-3", "c": "no", "d": "x\ny", "e": "${X}"}},
        {"Environment": {"A": " ", "B": "012"}},
        {"AlgorithmSpecification": {"TrainingImage": "x"}},
        {
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 0,
                "Unknown": {"A": [1]},
            }
        },
        {"OutputDataConfig": {"S3OutputPath": "https://s3.amazonaws.com/bucket//x", "KmsKeyId": ""}},
        {"DebugRuleConfigurations": [{"RuleConfigurationName": "a", "Strange": True}]},
        {"ExperimentConfig": {}},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_plan_of_an_imported_unusual_request_equals_it(change: dict[str, Any]) -> None:
    request = {**json.loads(GOLDEN[0].read_text()), **change}
    assert planned(request) == request


def values(shape_name: str) -> st.SearchStrategy[Any]:
    """Return requests of the model's shapes: any members, any texts."""
    shape = shapes()[shape_name]
    if shape["type"] == "structure":
        members = {name: values(member["shape"]) for name, member in shape["members"].items()}
        return st.fixed_dictionaries({}, optional=members)
    if shape["type"] == "list":
        return st.lists(values(shape["member"]["shape"]), max_size=2)
    if shape["type"] == "map":
        return st.dictionaries(st.sampled_from(["a", "B-c", "0"]), values(shape["value"]["shape"]), max_size=2)
    if shape["type"] == "boolean":
        return st.booleans()
    if shape["type"] in ("integer", "long"):
        return st.integers(-10, 10**9)
    return st.sampled_from([*shape.get("enum", ())[:2], "text", "", "1e-3", "s3://b/k", "null", "é"])


@settings(max_examples=150, deadline=None)
@given(values(REQUEST))
def test_plan_of_any_imported_request_equals_it(request: dict[str, Any]) -> None:
    named = {"TrainingJobName": "name", **request}
    assert planned(named) == named


def test_read_only_members_of_a_response_are_dropped() -> None:
    request = json.loads(GOLDEN[0].read_text())
    answer = {
        **request,
        "TrainingJobArn": "arn:aws:sagemaker:eu-west-1:123456789012:training-job/x",
        "TrainingJobStatus": "Completed",
        "ModelArtifacts": {"S3ModelArtifacts": "s3://b/model.tar.gz"},
        "ResourceConfig": {**request["ResourceConfig"], "SelectedInstanceType": "ml.m5.large"},
        "CheckpointConfig": None,
    }
    spec = import_request(answer)
    assert (spec["base_name"], "training_job_name" in spec) == ("golden", False)  # the name is taken
    assert planned(answer) == {**request, "TrainingJobName": ""}


@pytest.mark.parametrize(
    "end", ["2026-01-31-23-59-59-123", "2026-01-31-23-59-59", "20260131-235959", "20260131235959", "1795785916"]
)
def test_time_at_the_end_of_a_name_is_left_to_the_next_submission(end: str) -> None:
    spec = import_request(json.loads(GOLDEN[0].read_text()) | {"TrainingJobName": f"digits-2026-{end}"})
    assert (spec["base_name"], "training_job_name" in spec) == ("digits-2026", False)


def test_step_functions_state_is_imported() -> None:
    request = json.loads(GOLDEN[0].read_text())
    state = {"Type": "Task", "Resource": "arn:aws:states:::sagemaker:createTrainingJob.sync", "Parameters": request}
    assert planned(state) == request


def test_import_option_prints_the_spec(tmp_path: Path) -> None:
    assert parse_spec(launch("import", str(GOLDEN[0])).stdout).training_job_name == "golden"


def test_spec_is_not_imported(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(laid_over_base("channels: {train: s3://bucket/train/}"))
    done = launch("import", str(spec))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {spec}: is a spec already; run launch {spec} --dry-run\n"


def test_import_reads_standard_input() -> None:
    done = launch("import", "-", stdin=GOLDEN[0].read_text(encoding="utf-8"))
    assert parse_spec(done.stdout).training_job_name == "golden"
    done = launch("import", "-", stdin="[]")
    assert (done.returncode, done.stderr.startswith("error: <stdin>: is not a request")) == (2, True)


@pytest.mark.parametrize("depth", [60, 900, 100_000])
def test_request_that_is_nested_too_deeply_is_refused(tmp_path: Path, depth: int) -> None:
    file = tmp_path / "request.json"
    file.write_text(f'{{"TrainingJobName": "x", "HyperParameters": {{"a": {depth * "["}1{depth * "]"}}}}}')
    if depth == 60:
        assert "TrainingJobName: x" in import_file(file).as_yaml()
        return
    with pytest.raises(InputError, match=r"request\.json: .*(is nested too deeply|is not JSON)"):
        import_file(file).as_yaml()
