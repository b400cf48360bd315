"""Every member of the request has a key or can be written under `request:`, and is checked either way."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore
import pytest

import launcher
from launcher import parse_spec
from launcher.errors import SpecPath, dotted
from launcher.request.build import build_request
from launcher.rules import find_problems
from launcher.rules.examples import BASE, laid_over_base
from launcher.spec.aws_model import REQUEST, shapes
from launcher.spec.channels import KINDS
from launcher.spec.job import JobSpec
from launcher.spec.model import aws_name, spec_name
from launcher.spec.own_keys import OwnKeys
from launcher.spec.structures import members

# Members without a key, since only responses have them.
NOT_WRITTEN = {("ResourceConfig", "SelectedInstanceType"), ("ResourceConfig", "SelectedInstanceCount")}
SAMPLES = {"string": "text", "integer": 7, "long": 7, "boolean": True}


def sample(shape_name: str) -> Any:
    """Return a value of the shape with every member."""
    shape = shapes()[shape_name]
    if shape["type"] == "structure":
        return {name: sample(member["shape"]) for name, member in shape["members"].items()}
    if shape["type"] == "list":
        return [sample(shape["member"]["shape"])]
    if shape["type"] == "map":
        return {"key": sample(shape["value"]["shape"])}
    return shape["enum"][0] if "enum" in shape else SAMPLES[shape["type"]]


def in_spec_names(value: Any, shape_name: str) -> Any:
    """Return a sample with the keys of a spec in place of the members of a structure."""
    shape = shapes()[shape_name]
    if shape["type"] == "structure":
        return {spec_name(name): in_spec_names(item, shape["members"][name]["shape"]) for name, item in value.items()}
    if shape["type"] == "list":
        return [in_spec_names(item, shape["member"]["shape"]) for item in value]
    return value


def test_every_member_has_a_key() -> None:
    request = sample(REQUEST)
    for above, member in NOT_WRITTEN:
        del request[above][member]
    members = shapes()[REQUEST]["members"]
    spec: dict[str, Any] = {
        spec_name(name): in_spec_names(value, members[name]["shape"])
        for name, value in request.items()
        if name not in ("AlgorithmSpecification", "InputDataConfig", "HyperParameters", "Tags")
    }
    algorithm = in_spec_names(request["AlgorithmSpecification"], "AlgorithmSpecification")
    algorithm["image"] = algorithm.pop("training_image")
    spec |= {**algorithm, "hyperparameters": {"key": "text"}, "tags": {"text": "text"}}
    channel = request["InputDataConfig"][0]
    common = {name: value for name, value in channel.items() if name not in ("ChannelName", "DataSource")}
    sources = {source: kind.MEMBER for source, kind in KINDS.items() if kind.MEMBER}
    spec["channels"], expected = {}, []
    for source, member in sources.items():
        taken = {name: value for name, value in common.items() if spec_name(name) in KINDS[source].model_fields}
        data = dict(channel["DataSource"][member])
        if "FileSystemType" in data:
            data["FileSystemType"] = source
        expected.append({"ChannelName": source, "DataSource": {member: data}, **taken})
        keys = {**in_spec_names(data, member), **in_spec_names(taken, "Channel")}
        keys.pop("file_system_type", None)
        spec["channels"][source] = {"source": source, **keys}
    request["InputDataConfig"] = expected
    job_name = spec.pop("training_job_name")
    assert build_request(JobSpec.model_validate(spec), job_name).request == request
    assert set(common) == {
        member for source in sources for member in common if spec_name(member) in KINDS[source].model_fields
    }


def test_members_of_the_model_have_shapes() -> None:
    named = {name for name in shapes() if shapes()[name]["type"] == "structure"}
    used = {member["shape"] for name in named for member in shapes()[name]["members"].values()}
    assert used <= set(shapes())


def test_every_key_of_ours_is_read() -> None:
    files = [file for file in Path(launcher.__file__).parent.rglob("*.py") if file.name != "own_keys.py"]
    source = "".join(file.read_text() for file in files)
    assert [key for key in OwnKeys.model_fields if not re.search(rf"\.{key}\b|\"{key}\"", source)] == [], (
        "nothing reads it"
    )


def dry_run(tmp_path: Path, overlay: str, known: dict[str, Any], **how: Any) -> subprocess.CompletedProcess[str]:
    """Plan a spec with the shapes of another release of botocore."""
    folder = tmp_path / "botocore/data/sagemaker/2017-07-24"
    folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / "botocore/__init__.py").touch()
    shutil.copy(Path(botocore.__file__).parent / "data/partitions.json", folder.parents[1])
    model = json.dumps({"metadata": {}, "operations": {}, "shapes": known}, **how)
    (folder / "service-2.json.gz").write_bytes(gzip.compress(model.encode()))
    (tmp_path / "job.yaml").write_text(laid_over_base(overlay))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "launcher", str(tmp_path / "job.yaml"), "--dry-run"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("indent", [None, 1, 2, "\t"])
def test_model_can_be_formatted_in_any_way(tmp_path: Path, indent: int | str | None) -> None:
    """A release of botocore may have its JSON on one line, or indented by other steps."""
    done = dry_run(tmp_path, "request: {Nonsense: 1}", dict(shapes()), indent=indent)
    assert "request.Nonsense: is not a member of the request" in done.stderr
    assert done.returncode == 2


def test_member_that_aws_adds_is_a_key(tmp_path: Path) -> None:
    request = {
        **shapes()[REQUEST],
        "members": {**shapes()[REQUEST]["members"], "QuantumConfig": {"shape": "QuantumConfig"}},
    }
    names = ("MaxCoherenceInSeconds", "QPUClockMHzInSeconds")  # the latter's capitals are no words
    added = {"type": "structure", "members": {name: {"shape": "MaxRuntimeInSeconds"} for name in names}}
    known = {**shapes(), REQUEST: request, "QuantumConfig": added}
    done = dry_run(tmp_path, "quantum_config: {max_coherence_in_seconds: 2h, qpuclock_mhz_in_seconds: 1}", known)
    assert "QuantumConfig:\n  MaxCoherenceInSeconds: 7200\n  QPUClockMHzInSeconds: 1\n" in done.stdout, done.stderr
    done = dry_run(tmp_path, "quantum_config: {max_coherence: 2h}", known)
    assert "did you mean max_coherence_in_seconds?" in done.stderr


@pytest.mark.parametrize("key", OwnKeys.model_fields)
def test_key_of_ours_is_not_taken_for_a_member_that_aws_adds(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**shapes()[REQUEST]["members"], aws_name(key): {"shape": "TrainingJobName"}}
    monkeypatch.setitem(shapes(), REQUEST, {**shapes()[REQUEST], "members": known})
    assert key not in members.__wrapped__()


def places(value: Any, path: SpecPath = ()) -> Iterator[SpecPath]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*path, key))


def test_every_member_of_a_request_has_its_place_in_the_spec() -> None:
    text = laid_over_base(
        "tags: {team: vision}\nhyperparameters: {Epochs: 5}\nenvironment: {A_B: c}\n"
        "channels: {train: {s3_uri: s3://bucket/train/, input_mode: Pipe, shuffle_config: {seed: 1}}}"
    )
    spec = parse_spec(text, "job.yaml")
    plan = launcher.plan(spec, name="one")
    written = set(places(json.loads(spec.model_dump_json(exclude_none=True))))
    for place in places(plan.request):
        assert not place or plan.origin.place(place) in written | {("base_name",), ("algorithm_specification",)}, place


@pytest.mark.parametrize(
    ("hatch", "expected"),
    [
        ("{EnableNetworkIsolation: true}", {"EnableNetworkIsolation": True}),
        (
            "{ResourceConfig: {InstanceCount: 3}}",
            {"ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 3, "VolumeSizeInGB": 50}},
        ),
        ("{StoppingCondition: null}", {"StoppingCondition": None}),
        ("{HyperParameters: {a: 012}}", {"HyperParameters": {"a": "012"}}),
        ("{Tags: [{Key: a, Value: 1e-3}]}", {"Tags": [{"Key": "a", "Value": "1e-3"}]}),
    ],
)
def test_request_key_is_merged_last(hatch: str, expected: dict[str, Any]) -> None:
    request = launcher.plan(parse_spec(laid_over_base(f"request: {hatch}")), name="one").request
    for member, value in expected.items():
        assert request.get(member) == value


@pytest.mark.parametrize(
    ("hatch", "place", "words"),
    [
        ("{EnableNetworkIsolaton: true}", "job.yaml:8:11: request.EnableNetworkIsolaton:", "did you mean EnableNetworkIsolation?"),
        ("{ResourceConfig: {InstanceCount: two}}", "job.yaml:8:28: request.ResourceConfig.InstanceCount:", "a whole number"),
        ("{RetryStrategy: {MaximumRetryAttempts: 31}}", "job.yaml:8:27:", "at most 30"),
        ("{RetryStrategy: {}}", "job.yaml:8:11", "request.RetryStrategy.MaximumRetryAttempts: is missing"),
        ("{RoleArn: null}", "job.yaml:8:11: request.RoleArn:", "write RoleArn: arn:aws:iam::"),
        ("{OutputDataConfig: {S3OutputPath: null}}", "job.yaml:8:30: request.OutputDataConfig.S3OutputPath:", "is missing"),
        ("{AlgorithmSpecification: {TrainingImage: null}}", "job.yaml:8:36: request.AlgorithmSpecification.TrainingImage:",
         "missing"),
        ("{AlgorithmSpecification: x}", "job.yaml:8:11: request.AlgorithmSpecification:", "a mapping belongs here"),
        ("{InputDataConfig: [{ChannelName: a}]}", "job.yaml:8:29: request.InputDataConfig[0].DataSource:", "is missing"),
        ("{InputDataConfig: [{ChannelName: a, DataSource: null}]}", "job.yaml:8:46: request.InputDataConfig[0].DataSource:",
         "has no value, but a mapping"),
    ],
)  # fmt: skip
def test_request_key_is_checked_at_its_place(hatch: str, place: str, words: str) -> None:
    (problem,) = map(str, find_problems(parse_spec(laid_over_base(f"request: {hatch}"), "job.yaml")))
    assert problem.startswith(place)
    assert words in problem


@pytest.mark.parametrize(
    ("hatch", "missing"),
    [
        ("{InputDataConfig: [{}]}", ["InputDataConfig[0].ChannelName", "InputDataConfig[0].DataSource"]),
        (
            "{ResourceConfig: {InstanceType: null, InstanceCount: null, InstanceGroups: [{}]}}",
            [f"ResourceConfig.InstanceGroups[0].Instance{name}" for name in ("Type", "Count", "GroupName")],
        ),
    ],
)
def test_missing_member_of_an_item_is_reported_at_the_item(hatch: str, missing: list[str]) -> None:
    problems = find_problems(parse_spec(laid_over_base(f"request: {hatch}"), "job.yaml"))
    assert {dotted(problem.path) for problem in problems} == {f"request.{each}" for each in missing}
    assert {problem.location and problem.location.line for problem in problems} == {8}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("3600", 3600), ("90m", 5400), ("12h", 43200), ("1h30m", 5400), ("2d", 172800), ("45s", 45)],
)
def test_durations_become_seconds(written: str, seconds: int) -> None:
    spec = parse_spec(laid_over_base(f"stopping_condition: {{max_runtime_in_seconds: {written}}}"))
    assert build_request(spec, "one").request["StoppingCondition"] == {"MaxRuntimeInSeconds": seconds}


def test_size_in_terabytes_becomes_gigabytes() -> None:
    spec = parse_spec(BASE.replace("volume_size_in_gb: 50", "volume_size_in_gb: 2TB"))
    assert build_request(spec, "one").request["ResourceConfig"]["VolumeSizeInGB"] == 2000


def test_serverless_job_has_no_input_mode() -> None:
    spec = JobSpec.model_validate(
        {"base_name": "a", "serverless_job_config": {"base_model_arn": "arn", "job_type": "FineTuning"}}
    )
    assert "AlgorithmSpecification" not in build_request(spec, "one").request
