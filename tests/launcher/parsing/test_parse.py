"""From YAML text to a spec: values are kept as written, and every problem has its location, reason and remedy."""

from __future__ import annotations

import cProfile
import json
import string
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher import JobSpec, Problem, SpecError, parse_spec
from launcher.errors import dotted
from launcher.rules import find_problems
from launcher.rules.examples import BASE, laid_over_base
from launcher.spec.channels import KINDS


def problems_of(text: str | bytes) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "job.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "written",
    [
        "1e-3",
        "012",
        "1_000",
        "0123456701",
        "12:30",
        "no",
        "on",
        "true",
        "True",
        "2024-01-01",
        "2024-13-45",
        "0x1f",
        ".5",
        "=",
        "1" * 5000,
    ],
)
def test_hyperparameters_are_sent_as_written(written: str) -> None:
    spec = parse_spec(laid_over_base(f"hyperparameters: {{value: {written}}}\nenvironment: {{VALUE: {written}}}"))
    assert spec.hyperparameters == {"value": written}
    assert spec.environment == {"VALUE": written}


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("'1e-3'", "1e-3"),
        ("''", ""),
        ("[1, 1e-3, a, true, null]", '[1, 1e-3, "a", true, null]'),
        ("{a: 1, b: 'x'}", '{"a": 1, "b": "x"}'),
    ],
)
def test_quoted_values_lists_and_mappings_are_sent_as_text(written: str, sent: str) -> None:
    spec = parse_spec(laid_over_base(f"hyperparameters: {{value: {written}}}"))
    assert spec.hyperparameters == {"value": sent}


def test_tagged_scalars_have_the_type_of_their_tag() -> None:
    text = BASE.replace("instance_count: 1", 'instance_count: !!int "12"') + 'enable_network_isolation: !!bool "true"\n'
    spec = parse_spec(text + "hyperparameters: {rate: !!float 1e-3}\n")
    assert spec.resource_config is not None
    assert (spec.resource_config.instance_count, spec.enable_network_isolation) == (12, True)
    assert spec.hyperparameters == {"rate": "1e-3"}


@pytest.mark.parametrize(
    ("overlay", "place", "words"),
    [
        ("base_nam: x", "1: base_nam:", "did you mean base_name?"),
        ("channels: {train: {s3_urri: s3://bkt/}}", "20: channels.train.s3_urri:", "did you mean s3_uri?"),
        ("channels: {train: {source: EBS}}", "20: channels.train.source:", f"one of {', '.join(KINDS)}"),
        ("channels: [train]", "1: channels:", "a mapping"),
        ("tags: 3", "1: tags:", "a mapping"),
        ("hyperparameters: {a: }", "19: hyperparameters.a:", "'' for an empty text"),
        (
            "stopping_condition: {max_runtime_in_seconds: 012}",
            "22: stopping_condition.max_runtime_in_seconds:",
            "write 12",
        ),
        ("stopping_condition: {max_runtime_in_seconds: 1e3}", "22:", "a whole number"),
        ("stopping_condition: {max_runtime_in_seconds: '60'}", "22:", "without quotes"),
        ("enable_managed_spot_training: yes", "1: enable_managed_spot_training:", "write true"),
        ("code: {entry_point: a.py, delivery: chanel}", "27: code.delivery:", "did you mean channel?"),
        ("container_arguments: one", "1: container_arguments:", "a list"),
        ("container_arguments: [[one]]", "23: container_arguments[0]:", "a single text"),
        ("role_arn: arn:aws:iam::1:role/x", "1: role_arn:", "[aws-pattern]"),
        (
            "channels: {train: {s3_uri: s3://bkt/a/, input_mode: Fastfile}}",
            "41: channels.train.input_mode:",
            "did you mean FastFile?",
        ),
    ],
)
def test_problem_has_location_reason_and_remedy(overlay: str, place: str, words: str) -> None:
    (found,) = map(str, every_problem(laid_over_base(overlay)))
    file, line, rest = found.split(":", 2)
    assert file == "job.yaml"
    assert int(line) == len(laid_over_base(overlay).splitlines())
    assert rest.startswith(place)
    assert words in rest


def every_problem(text: str) -> Sequence[Problem]:
    try:
        return find_problems(parse_spec(text, "job.yaml"))
    except SpecError as error:
        return error.problems


def test_all_problems_are_reported_together_in_file_order() -> None:
    lines = problems_of(
        "image: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/a:1\n"
        "base_name: a_b\n"
        "role_arn: arn:aws:iam::nobody:role/x\n"
        "resource_config: {instance_type: ml.m5.xlarg, instance_count: two}\n"
        "output_data_config: {s3_output_path: S3://b/}\n"
        "channels:\n"
        "  a: {s3_uri: s3://bkt/a/, input_mode: FastFile, compression_type: Gzip}\n"
        "  b: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: x}\n"
        "  a: s3://bkt/\n"
        "stopping_condition: {max_runtime_in_seconds: 60}\n"
    )
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4", "4", "5", "7", "8", "8", "9"]
    assert [line.rsplit("[", 1)[1][:-1] for line in lines] == [
        "aws-pattern",
        "aws-pattern",
        "aws-enum",
        "wrong-type",
        "aws-pattern",
        "channel-gzip-needs-pipe",
        "file-system-needs-vpc",
        "directory-path-absolute",
        "duplicate-key",
    ]


@pytest.mark.parametrize(
    ("overlay", "missing"),
    [
        ("role_arn: null\noutput_data_config: null", {"role_arn", "output_data_config"}),
        ("channels: {a: {source: EFS}}", {"channels.a.file_system_id", "channels.a.directory_path"}),
        ("metric_definitions: [{}]", {"metric_definitions[0].name", "metric_definitions[0].regex"}),
    ],
)
def test_missing_keys_are_reported_beside_other_problems(overlay: str, missing: set[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(laid_over_base(f"foo: 1\n{overlay}"))
    assert {dotted(each.path) for each in caught.value.problems if each.code == "aws-required"} == missing
    assert "unknown-key" in {each.code for each in caught.value.problems}


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("", "job.yaml:1:1:", "yaml-empty"),
        ("# nothing\n", "job.yaml:1:1:", "yaml-empty"),
        ("- a\n", "job.yaml:1:1:", "wrong-type"),
        ("a: 1\n\tb: 2\n", "job.yaml:2:1:", "yaml-syntax"),
        ("a: !!python/object/apply:os.system [x]\n", "job.yaml:1:4:", "yaml-tag"),
        ("a: !mine 3\n", "job.yaml:1:4:", "yaml-tag"),
        ("a: 1\n---\nb: 2\n", "job.yaml:2:1:", "yaml-documents"),
        ("a: b: c\n", "job.yaml:1:5:", "yaml-syntax"),
        ("a: [1, 2\n", "job.yaml:1:4:", "yaml-syntax"),
        ("a: *nothing\n", "job.yaml:1:4:", "yaml-alias"),
        ("a: &x [*x]\n", "job.yaml:1:8:", "yaml-alias"),
        ("a: \x00\n", "job.yaml:1:4:", "yaml-character"),
        (b"a: \xff\n", "job.yaml:1:4:", "yaml-encoding"),
        ("a: 1\n".encode("utf-16"), "job.yaml:1:1:", "yaml-encoding"),
        ("a: " + "[" * 500, "job.yaml:1:53:", "yaml-depth"),
        ("a: " + "[" * 10_000, "job.yaml:1:", "yaml-depth"),  # the column is libyaml's limit from 0.2.6 on
        ("a: " + "x" * 1_000_000, "job.yaml:1:1:", "yaml-too-large"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)),
            "job.yaml:",
            "yaml-alias",
        ),
        ("? [a]\n: b\n", "job.yaml:1:3:", "yaml-key"),
        ("base_name: a\nbase_name: b\n", "job.yaml:2:1:", "duplicate-key"),
        ("base_name: {1: a, 1: b}\n", "job.yaml:1:19:", "duplicate-key"),
    ],
)
def test_invalid_yaml_is_one_problem_at_its_place(text: str | bytes, place: str, code: str) -> None:
    matching = [line for line in problems_of(text) if line.endswith(f"[{code}]")]
    assert len(matching) == 1
    assert matching[0].startswith(place)


def test_anchors_and_merge_keys_are_resolved() -> None:
    spec = parse_spec(
        laid_over_base(
            "channels:\n"
            "  a: &common {s3_uri: s3://bucket/a/, input_mode: FastFile}\n"
            "  b: {<<: *common, s3_uri: s3://bucket/b/}\n"
        )
    )
    b = spec.all_channels["b"]
    assert (b.s3_uri, b.input_mode) == ("s3://bucket/b/", "FastFile")


def test_byte_order_mark_is_ignored() -> None:
    assert parse_spec(BASE.encode("utf-8-sig")).model_dump() == parse_spec(BASE).model_dump()


def test_spec_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse_spec(BASE).image = "other"


def test_python_values_are_accepted() -> None:
    spec = JobSpec.model_validate({"hyperparameters": {"epochs": 5, "rate": 0.1, "flag": True, "layers": [1, 2]}})
    assert spec.hyperparameters == {"epochs": "5", "rate": "0.1", "flag": "true", "layers": "[1, 2]"}


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=string.printable + "é\u2028", max_size=200))
def test_any_text_yields_a_spec_or_problems(text: str) -> None:
    try:
        parse_spec(text)
    except SpecError as error:
        assert error.problems


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["source", "s3_uri", "seed", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*JobSpec.model_fields, "unknown"]), _VALUES, max_size=5))
def test_any_mapping_yields_a_spec_or_problems(value: dict[str, object]) -> None:
    try:
        parse_spec(json.dumps(value))
    except SpecError as error:
        assert all(problem.location for problem in error.problems)


@pytest.mark.parametrize(
    "overlay",
    [
        'hyperparameters: {"[key]": null}',
        "channels: {train: }",
        "channels: {train: {source: null, s3_uri: s3://bkt/a/}}",
        "container_arguments: [a, null]",
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [[a]]}",
    ],
)
def test_odd_key_or_null_is_one_problem(overlay: str) -> None:
    found = [str(problem) for problem in every_problem(laid_over_base(overlay))]
    assert len(found) <= 1, found
    assert not any("None" in line for line in found)


def test_merged_keys_keep_the_location_of_their_text() -> None:
    text = laid_over_base(
        "channels:\n"
        "  a: &d {s3_uri: s3://bucket/a/, input_mode: FastFile}\n"
        "  b:\n"
        "    input_mode: Fastfile\n"
        "    <<: *d\n"
    )
    (found,) = every_problem(text)
    assert found.location is not None
    assert found.location.line == text.splitlines().index("    input_mode: Fastfile") + 1


def test_key_named_like_pydantics_location_is_found() -> None:
    found = [
        problem.path
        for problem in every_problem(laid_over_base('channels: {"[key]": {s3_uri: s3://bkt/a/, bogus: 1}}'))
    ]
    assert ("channels", "[key]", "bogus") in found


@pytest.mark.parametrize("value", ["null", "1"])
def test_work_for_a_large_spec_is_not_quadratic(value: str) -> None:
    """Eight times the keys cost about eight times the calls."""

    def calls(count: int) -> int:
        text = laid_over_base("hyperparameters:\n" + "".join(f"  k{index}: {value}\n" for index in range(count)))
        profile = cProfile.Profile()
        profile.runcall(every_problem, text)
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(2400) < 12 * calls(300)
