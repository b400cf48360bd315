"""Each mistake of `mistakes.py` gets one message, at its line, with the remedy, and no second one that misleads."""

from __future__ import annotations

import pytest

from launcher import parse_spec
from launcher.errors import Problem, SpecError
from launcher.rules import find_problems
from launcher.rules.examples import laid_over_base
from mistakes import ROWS


def problems_of(text: str) -> list[Problem]:
    try:
        return find_problems(parse_spec(text, "job.yaml"))
    except SpecError as error:
        return list(error.problems)


@pytest.mark.parametrize(("fragment", "code", "remedy"), ROWS, ids=[f"{n}-{row[1]}" for n, row in enumerate(ROWS)])
def test_mistake_is_one_message_at_its_line_with_the_remedy(fragment: str, code: str, remedy: str) -> None:
    text = laid_over_base(fragment)
    problems = problems_of(text)
    assert [problem.code for problem in problems] == [code], "\n".join(map(str, problems))
    (marked,) = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# <-")]
    assert problems[0].location is not None
    assert problems[0].location.line == marked, str(problems[0])
    assert remedy in problems[0].message
    assert len(problems[0].message) < 300


def test_key_under_another_name_is_not_reported_as_missing() -> None:
    """A request with its own members' names gets one message for each member."""
    text = (
        "TrainingJobName: mine\nRoleArn: arn:aws:iam::123456789012:role/mine\nAlgorithmSpecification: {TrainingImage: a}\n"
        "ResourceConfig: {InstanceType: ml.m5.large}\nStoppingCondition: {MaxRuntimeInSeconds: 60}\n"
        "OutputDataConfig: {S3OutputPath: s3://bucket/}\nInputDataConfig: []\n"
    )
    problems = problems_of(text)
    assert [(problem.code, problem.location and problem.location.line) for problem in problems] == [
        ("unknown-key", line) for line in range(1, 8)
    ]


def test_first_spec_of_a_user_who_guesses_the_keys_gets_each_right_one() -> None:
    guessed = {
        "name: my-first": "write base_name: ...",
        "role: arn:aws:iam::123456789012:role/mine": "write role_arn: ...",
        "container: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine:1": "write image: ...",
        "machine: ml.m5.xlarge": "write resource_config: {instance_type: ...}",
        "nodes: 1": "write resource_config: {instance_count: ...}",
        "disk: 50": "write resource_config: {volume_size_in_gb: ...}",
        "timeout: 1h": "write stopping_condition: {max_runtime_in_seconds: ...}",
        "output: s3://bucket/output": "write output_data_config: {s3_output_path: ...}",
        "checkpoints: s3://bucket/checkpoints": "write checkpoint_config: {s3_uri: ...}",
        "params: {lr: 0.1}": "write hyperparameters: {NAME: VALUE}",
        "train_data: s3://bucket/train/": "write channels: {train: s3://BUCKET/FOLDER/}",
        "retries: 3": "write retry_strategy: {maximum_retry_attempts: ...}",
        "budget: 5": "write max_cost: ...",
    }
    found = problems_of("\n".join(guessed))
    assert {problem.code for problem in found} == {"unknown-key"}
    for problem, (line, remedy) in zip(found, guessed.items(), strict=True):
        assert problem.path == (line.partition(":")[0],)
        assert f"; {remedy}" in problem.message


def test_secret_in_a_list_is_not_shown() -> None:
    (problem,) = problems_of(laid_over_base("environment: [{name: TOKEN, value: hunter2}]"))
    assert "hunter2" not in str(problem)
