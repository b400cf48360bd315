"""Requests in the forms of public projects: each is imported as keys of a spec, and plans to the same request.

`data/requests` has one file for each form that was found, with invented names; its `source` names the form.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import launcher
from launcher.errors import RefusedError, SpecError
from launcher.importing.from_request import import_request
from launcher.importing.imports import import_file
from launcher.parsing.parser import parse_spec
from launcher.request import serialization
from launcher.request.build import build_request

REQUESTS = sorted((Path(__file__).parents[2] / "data" / "requests").glob("*.json"))


def imported(text: str, folder: Path) -> str:
    file = folder / "request"
    file.write_text(text, encoding="utf-8")
    return import_file(file).as_yaml()


@pytest.mark.parametrize("file", REQUESTS, ids=lambda file: file.stem)
def test_plan_of_a_published_request_equals_it(file: Path, tmp_path: Path) -> None:
    case: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    (tmp_path / "job.yaml").write_text(imported(case.get("text") or json.dumps(case["request"]), tmp_path))
    expected = case.get("plans_to") or case["request"]
    plan = launcher.plan(
        launcher.load(tmp_path / "job.yaml", environ={"HOME": "elsewhere"}), ignore=("image-out-of-patch",)
    )
    is_named = plan.spec.training_job_name is not None
    assert is_named or plan.request["TrainingJobName"].startswith(expected.get("TrainingJobName", ""))
    name = {} if is_named else {"TrainingJobName": plan.request["TrainingJobName"]}
    assert plan.request == {**expected, **name}
    assert [warning.code for warning in plan.warnings] == case.get("warnings", [])
    assert "request:" not in (tmp_path / "job.yaml").read_text().splitlines()


def test_members_around_a_request_are_left_out(tmp_path: Path) -> None:
    case = json.loads((REQUESTS[0].parent / "operator-resource.json").read_text())
    lines = imported(case["text"], tmp_path).splitlines()
    assert {"region: eu-west-1", "base_name: vines"} <= set(lines)


def test_members_of_other_tools_are_listed_as_left_out(tmp_path: Path) -> None:
    case = json.loads((REQUESTS[0].parent / "airflow-config.json").read_text())
    first = imported(json.dumps(case["request"]), tmp_path).splitlines()[0]
    assert first.startswith("# Left out") and "S3Operations" in first


def test_numbers_become_text_where_aws_accepts_only_text(tmp_path: Path) -> None:
    request = {"TrainingJobName": "a", "HyperParameters": {"rows": 3, "on": True, "name": "x"}}
    spec = imported(json.dumps(request), tmp_path)
    assert spec.startswith(
        "# Converted to text, since AWS accepts nothing else: HyperParameters.rows, HyperParameters.on\n"
    )
    assert import_request(request)["hyperparameters"] == {"rows": "3", "on": "true", "name": "x"}


ALGORITHM = '"AlgorithmSpecification": {"TrainingInputMode": "File"}}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"A": {"RoleArn": "r", ' + ALGORITHM + ', "B": {"RoleArn": "r", ' + ALGORITHM + "}",
            "2 requests: 1 A, 2 B; choose one",
        ),
        ('{"TrainingJobDefinition": {"TrainingInputMode": "File"}}', "is not a request"),
        ("{'TrainingJobName': name}", "line 1: `name` is not a plain value"),
        ("client.create_training_job(**request)", "is not a plain value"),
        ("client.create_training_job(TrainingJobName=f'a-{now}')", "is not a plain value"),
        ("{1: 'a'}", "is not a member's name"),
        ("import boto3\nrequest = {}\n", "is a program"),
        ('{"TrainingJobName": "a", "TrainingJobName": "b"}', "'TrainingJobName' twice"),
        ('{"TrainingJobName": "\\ud800"}', r"U\+D800"),
        ('{"TrainingJobName": "a"', "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a request"),
        ("", "is empty"),
        ("trainingJobName: a\ntrainingJobName: b\n", "is written twice"),
        ("RoleArn: !Base64 x\n", "the tag !Base64 is not supported"),
        ("kind: a\n---\nkind: b\n", "second document"),
    ],
)
def test_file_without_a_request_is_one_clear_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises((RefusedError, SpecError), match=words) as caught:
        imported(text, tmp_path)
    assert "\n" not in str(caught.value)


def test_wrong_request_is_imported_and_the_plan_reports_it_once(tmp_path: Path) -> None:
    request = {
        "TrainingJobName": "a",
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": ["one"]},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": "2", "VolumeSizeInGB": 30},
    }
    spec = imported(json.dumps(request), tmp_path)
    assert "instance_type: ml.m5.large" in spec
    with pytest.raises(SpecError) as caught:
        launcher.plan(launcher.parse_spec(spec))
    wrong = [problem.path for problem in caught.value.problems if problem.code in ("aws-type", "wrong-type")]
    assert wrong == [
        ("request", "AlgorithmSpecification", "TrainingImage"),
        ("request", "ResourceConfig", "InstanceCount"),
    ]


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield every place below `value`."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (key,)
        yield from ((key, *rest) for rest in places(item))


@pytest.mark.parametrize("name", ["controller-resource", "notebook-augmented-manifest", "sdk-v2-estimator"])
@pytest.mark.parametrize("wrong", [[], {}, "", "3", [[]], {"a": {}}, [{"Key": {}, "Value": []}]], ids=json.dumps)
def test_wrong_value_anywhere_is_imported_unchanged(name: str, wrong: Any) -> None:
    case = json.loads((REQUESTS[0].parent / f"{name}.json").read_text())
    original = case.get("plans_to", case["request"])
    for *above, last in places(original):
        request = copy.deepcopy(original)
        level = request
        for key in above:
            level = level[key]
        level[last] = wrong
        spec = parse_spec(serialization.as_yaml(import_request(request)))
        assert build_request(spec, spec.training_job_name or "").request in (
            request,
            {"TrainingJobName": "", **request},
        )
