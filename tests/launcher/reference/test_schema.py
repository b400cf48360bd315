"""schema.json and the parser agree: an editor accepts the same generated specs as `launch`."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher import Plan, Problem, SpecError, make_plan, parse_spec
from launcher.reference.problem_codes import unknown_codes
from launcher.reference.schema import schema
from launcher.rules import find_problems
from launcher.rules.examples import laid_over_base
from launcher.spec.job import JobSpec
from launcher.spec.model import Section
from launcher.spec.names import MadeName
from launcher.spec.own_keys import Code, OwnKeys, Queue

# The codes that a schema can express: of keys, types, enums, patterns and bounds, not of rules across keys.
EXPRESSIBLE = {
    "unknown-key",
    "unknown-source",
    "unknown-value",
    "wrong-type",
    "invalid-value",
    "aws-enum",
    "aws-pattern",
    "aws-min",
    "aws-max",
}

TEXTS = st.sampled_from(
    [
        "ml.m5.large",
        "File",
        "Pipe",
        "s3://bucket/key",
        "text",
        "",
        "12h",
        "1h30m",
        "50GB",
        "50",
        "true",
        "fs-0123456789",
    ]
)
# Without 1.0 and 1e-07, which a schema treats as plain numbers, but the parser by their written form.
FLOATS = st.floats(0.01, 0.99)
SCALARS = st.none() | st.booleans() | st.integers(-5, 100) | FLOATS | TEXTS
PATTERNED = TEXTS | st.booleans() | st.integers(-5, 100) | FLOATS
SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def keys(definition: dict[str, Any]) -> list[str]:
    return [*definition["properties"], "unknown"]


def values(definition: dict[str, Any], depth: int = 3) -> st.SearchStrategy[Any]:
    """Return values for a part of the schema, mostly of its type, sometimes of another."""
    if "$ref" in definition:
        return values(SCHEMA["$defs"][definition["$ref"].rsplit("/", 1)[1]], depth)
    if definition.get("type") == "null":
        return st.none()
    if "pattern" in definition:
        return PATTERNED
    options = definition.get("anyOf", definition.get("oneOf"))
    if options and depth:
        patterned = any("pattern" in option for option in options)
        others = st.none() | PATTERNED if patterned else SCALARS
        return st.one_of(others, *(values(option, depth - 1) for option in options))
    if definition.get("type") == "array" and depth:
        return SCALARS | st.lists(values(definition["items"], depth - 1), max_size=2)
    if "properties" in definition and depth:
        members = {key: values(part, depth - 1) for key, part in definition["properties"].items()}
        return SCALARS | st.fixed_dictionaries({}, optional={**members, "unknown": SCALARS})
    if "enum" in definition:
        return st.sampled_from(definition["enum"][:3]) | SCALARS
    return SCALARS


def problems_of(spec: dict[str, Any]) -> list[Problem]:
    try:
        return find_problems(parse_spec(json.dumps(spec)))
    except SpecError as error:
        return list(error.problems)


TOP = SCHEMA["properties"]
# Left out: texts that depend on other keys (the job's name is checked as a whole, an image is looked up).
KEYS = [
    key
    for key in JobSpec.model_fields
    if key not in ("base_name", "training_job_name", "extends", "request", "image", "ignore")
]


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_editors_and_the_parser_agree(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYS))
    spec = {key: data.draw(values(TOP[key]))}
    problems = problems_of(spec)
    if VALIDATOR.is_valid(spec):
        assert [str(each) for each in problems if each.code in EXPRESSIBLE] == [], spec
    else:
        assert [each for each in problems if each.path[:1] == (key,) and each.severity == "error"], spec


RIGHT = [
    'training_input_mode: "${M:-Pipe}"',
    'resource_config: {instance_type: "${M:-ml.m5.large}", instance_count: "${M:-1}", volume_size_in_gb: "${M:-50GB}"}',
    'stopping_condition: {max_runtime_in_seconds: "${M:-12h}"}',
    'enable_network_isolation: "${M:-true}"',
    'vpc_config: {subnets: ["${M:-subnet-0123456789abcdef0}"], security_group_ids: ["${M:-sg-0123456789abcdef0}"]}',
    'role_arn: "arn:aws:iam::${M:-123456789012}:role/training"',
    'channels: {train: "${M:-s3://bucket/train/}", val: {s3_uri: "${M:-s3://bucket/val/}", input_mode: "${M:-File}"}}',
    'tags: {team: "${M:-x}", "größe @ 1": 5, more: true}',
    'request: {ResourceConfig: {InstanceCount: "${M:-2}"}, StoppingCondition: null, EnableNetworkIsolation: false}',
    'request: {RoleArn: "arn:aws:iam::123456789012:role/other", HyperParameters: {a: 012}}\nrole_arn: null',
    'hyperparameters: {a: [1, 2], b: {c: d}, e: 1.5, "": x}',
    "channels: {d: {source: Dataset, dataset_arn: arn:aws:sagemaker:eu-west-1:123456789012:hub-content/a/DataSet/b/1.0.0}}",
    "channels: {c: {source: S3Connector, s3_uri: s3://bucket/c/}}",
    "base_name: '${M:-job}'",
    "base_name: 5",
    f"base_name: {'a' * 60}-",
    "ignore: [aws-enum, spot-without-checkpoints]",
]
WRONG = [
    "role_arn: null",
    "output_data_config: {}",
    "channels: {a: {}}",
    "channels: {a: {source: EFS}}",
    "channels: {a: {source: EFS, file_system_id: fs-0123456789abcdef0}}",
    "channels: {a: {source: S3Connector}}",
    "channels: {a b: s3://bucket/a/}",
    "channels: {a: data}",
    "hyperparameters: {" + ", ".join(f"a{index}: b" for index in range(101)) + "}",
    f"hyperparameters: {{a: {'x' * 2501}}}",
    f"hyperparameters: {{{'x' * 257}: a}}",
    "environment: {a-b: c}",
    f"environment: {{a: {'x' * 513}}}",
    "tags: {a: x*y}",
    f"tags: {{{'x' * 129}: a}}",
    "tags: {" + ", ".join(f"a{index}: b" for index in range(51)) + "}",
    "request: {Foo: 1}",
    "request: {ResourceConfig: {InstanceTyp: ml.m5.large}}",
    "request: {InputDataConfig: [{}]}",
    "ignore: [foo]",
    "channels: {a: {s3_uri: s3://b/a/, input_mode: Pipe, shuffle_config: {seed: 18446744073709551615}}}",
    "metric_definitions: [{}]",
    "resource_config: {instance_groups: [{instance_type: ml.m5.large}]}",
    'environment: "${M:-A}"',
    "base_name: my_job",
    "base_name: -job",
]


def as_editors_do(text: str) -> dict[str, Any]:
    value = yaml.safe_load(text)
    assert isinstance(value, dict)
    return value


def planned(text: str) -> Plan:
    spec = parse_spec(text)
    return make_plan(spec, job_name=MadeName("a"), problems=unknown_codes(spec, ()))


@pytest.mark.parametrize("overlay", RIGHT)
def test_right_spec_is_right_in_editors(overlay: str) -> None:
    text = laid_over_base(overlay)
    planned(text)
    VALIDATOR.validate(as_editors_do(text))


@pytest.mark.parametrize("overlay", WRONG)
def test_wrong_spec_is_wrong_in_editors(overlay: str) -> None:
    text = laid_over_base(overlay)
    with pytest.raises(SpecError):
        planned(text)
    assert not VALIDATOR.is_valid(as_editors_do(text))


@pytest.mark.parametrize(
    "layer",
    ["channels: {a: {}}", "extends: base.yaml\nbase_name: mine", "channels: {a: {source: EFS, input_mode: File}}"],
)
def test_incomplete_layer_is_right_in_editors(layer: str) -> None:
    VALIDATOR.validate(as_editors_do(layer))


@pytest.mark.parametrize("section", [OwnKeys, Code, Queue])
def test_every_key_of_ours_has_a_meaning(section: type[Section]) -> None:
    made = schema()
    properties = made["$defs"].get(section.__name__, made)["properties"]
    missing = [key for key in section.model_fields if "description" not in properties[key]]
    assert missing in ([], ["code"]), "write a docstring below it in launcher/spec/own_keys.py"  # Code has its own
