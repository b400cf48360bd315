"""schema.json and the parser agree: what an editor accepts is what `launch` accepts, over generated specs."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher import Problem, SpecError, parse_spec
from launcher.checks import check_spec
from launcher.schema import schema
from launcher.spec import JobSpec

# What a schema can say: keys, types, enums, patterns, bounds of numbers. Required members, lengths and rules it cannot.
SAID = {"unknown-key", "unknown-source", "unknown-value", "wrong-type", "invalid-value", "aws-enum", "aws-pattern"}
NOT_SAID = (
    "tags",
    "hyperparameters",
    "environment",
)  # the model's limits on their keys and values are not in the schema

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
# No 1.0 and no 1e-07: to a schema these are integers and numbers like others; the parser goes by how they are written.
FLOATS = st.floats(0.01, 0.99)
SCALARS = st.none() | st.booleans() | st.integers(-5, 100) | FLOATS | TEXTS
PATTERNED = TEXTS | st.booleans() | st.integers(-5, 100) | FLOATS
SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def keys(definition: dict[str, Any]) -> list[str]:
    return [*definition["properties"], "unknown"]


def values(definition: dict[str, Any], depth: int = 3) -> st.SearchStrategy[Any]:
    """Values for a part of the schema: mostly of its kind, now and then of another."""
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
        return check_spec(parse_spec(json.dumps(spec)))
    except SpecError as error:
        return list(error.problems)


def can_be_said(problem: Problem) -> bool:
    """Whether a schema could have said it: not the lengths of texts and lists, nor what a mapping's own keys are like."""
    bound = problem.code in ("aws-min", "aws-max") and not any(
        word in problem.message for word in ("charac", "item", "entr")
    )
    own_keys = problem.path[:1] in {(name,) for name in NOT_SAID} and problem.code == "aws-pattern"
    return (problem.code in SAID or bound) and not own_keys


TOP = SCHEMA["properties"]
# Left out: texts that other keys decide about (the job's name is checked as the whole name, an image is looked up).
KEYS = [
    key
    for key in JobSpec.model_fields
    if key not in ("base_name", "training_job_name", "extends", "request", "image", "ignore")
]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_editors_and_the_parser_agree(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYS))
    spec = {key: data.draw(values(TOP[key]))}
    problems = problems_of(spec)
    if VALIDATOR.is_valid(spec):
        assert [str(each) for each in problems if can_be_said(each)] == [], spec
    else:
        assert [each for each in problems if each.path[:1] == (key,) and each.severity == "error"], spec
