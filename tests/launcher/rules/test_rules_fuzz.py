"""No rule raises for any request, and no message shows the value of a setting."""

from __future__ import annotations

from datetime import date
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from launcher import SpecError, make_plan
from launcher.code.archive import CodeArchive
from launcher.code.file_rules import CodeFile
from launcher.request.view import Draft
from launcher.rules import RULES, find_problems
from launcher.rules.built_in.algorithms import built_ins
from launcher.spec.aws_model import REQUEST, shapes
from launcher.spec.job import JobSpec
from launcher.spec.names import MadeName

SECRET = "hunter2-"
TODAY = date(2026, 11, 26)
REGISTRIES = ("685385470294", "438346466558", "999678624901", "224300973850")
IMAGES = [f"{account}.dkr.ecr.eu-west-1.amazonaws.com/{name}:1" for account in REGISTRIES for name in built_ins()]
IMAGES += ["", "mine:1", "https://mine", "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training"]
IMAGES += ["763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"]
IMAGES += ["123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2-gpu-py3"]
IMAGES += ["123456789012.dkr.ecr.us-esat-1.amazonaws.com/mine:1"]
# Texts that rules look for, so that random requests have them: by the end of a shape's name, else any of the texts.
CHOICES = {
    "AlgorithmImage": IMAGES,
    "InstanceType": ["", "ml.m5.large", "ml.g5.xlarge", "ml.p3.2xlarge", "ml.p6e-gb200.36xlarge", "ml.q1.large", "local"],
    "S3OutputPath": ["", "s3://b/k", "https://s3.amazonaws.com/b/k", "https://b.s3.amazonaws.com/k"],
    "S3Uri": ["", "/", "s3://My_B/k", "s3://b/*", "s3://b", "s3://b/k", "s3://b//k/", "s3://s3://b/", "s3://b--x-s3/k",
              "https://console.aws.amazon.com/"],
    "ContentType": ["", "text/csv", "csv", "application/x-image", "application/x-recordio; a=b", "text/csv;label_size=0"],
    "ChannelName": ["", "..", "train", "Train", "train_0", "validation", "train_lst", "train_annotation", "model"],
    "ArnOrName": ["arn:aws:sagemaker:us-east-1:865070037744:algorithm/a", "arn:aws:sagemaker:::a", "mine"],
    "RoleArn": ["", "arn:aws:iam::123456789012:role/a", "arn:aws-cn:iam::123456789012:role/a"],
    "Key": ["", "aws:a", "objective", "AWS_SESSION_TOKEN", "sagemaker_program", "num_round", "sagemaker_submit_directory"],
    "": ["", "/", "a", "sg-1", "subnet-1", "(", "/opt/ml/a", "/opt/ml/model", "/fsx", "-ref",
         "arn:aws:kms:us-east-1:123456789012:key/a"],
}  # fmt: skip
NUMBERS = [-1, 0, 1, 1, 2, 300, 3601, 20_000, 10**9]
SETTINGS = ["", "1", "s3://b/k", "multi:", "${ssm:/a}", f"{SECRET}x", f'"{SECRET}y"']
STRANGE = ["S3Uri", "InputMode", "ContentType", "InstanceGroupNames", "InstanceType", "Key", "ChannelName", "Foo"]
WRONG: list[Any] = [None, [], {}, [[]], [{}], {"a": []}, "x", 3, True]


def value(shape_name: str, chance: Random, odds: float) -> Any:
    """Return a value of a shape's type, without its limits; each member is present with these odds."""
    shape = shapes()[shape_name]
    match shape["type"]:
        case "structure":
            rare = {"ContainerEntrypoint": odds / 5}  # with it no built-in algorithm runs
            given_odds = {name: rare.get(name, odds) for name in shape["members"]}
            members = [
                (name, shape["members"][name]["shape"]) for name in given_odds if chance.random() < given_odds[name]
            ]
            return {name: value(inner, chance, odds) for name, inner in members}
        case "list":
            return [value(shape["member"]["shape"], chance, odds) for _ in range(chance.choice((0, 1, 2, 3, 3)))]
        case "map":
            return {chance.choice(CHOICES["Key"]): chance.choice(SETTINGS) for _ in range(2)}
        case "boolean":
            return chance.random() < 0.5
        case "integer" | "long":
            return chance.choice(NUMBERS)
    if "enum" in shape and not shape_name.endswith("InstanceType"):
        return chance.choice([*shape["enum"], ""])
    return chance.choice(next(texts for ending, texts in CHOICES.items() if shape_name.endswith(ending)))


def spoiled(request: Any, chance: Random) -> Any:
    """Return the request with one value in twenty of a wrong type, and a foreign member in one mapping in ten."""
    if chance.random() < 0.05:
        return chance.choice(WRONG)
    if isinstance(request, dict):
        strange = {chance.choice(STRANGE): chance.choice(WRONG)} if chance.random() < 0.1 else {}
        return strange | {key: spoiled(inner, chance) for key, inner in request.items()}
    return [spoiled(inner, chance) for inner in request] if isinstance(request, list) else request


CODE = CodeArchive((CodeFile("train.py", "src/train.py", False, 7, 64 * "0"),))
SEEDS = {"seed": st.integers(0, 2**32), "odds": st.sampled_from([0.2, 0.5, 0.8, 1])}
MANY = settings(max_examples=60, deadline=None, derandomize=True)


@given(**SEEDS)
@MANY
def test_rules_do_not_raise_for_any_request(seed: int, odds: float) -> None:
    spec = JobSpec.model_validate({"base_name": "a", "region": "eu-west-1", "enable_network_isolation": True})
    draft = Draft(spec, value(REQUEST, Random(seed), odds), today=TODAY)
    for rule in RULES:
        for path, message in rule.find(draft):
            assert all(isinstance(part, str | int) for part in path)
            assert SECRET not in message


@given(**SEEDS)
@MANY
def test_every_problem_has_a_place(seed: int, odds: float) -> None:
    """The same for a spec with everything under `request:`, including the model's own problems and their remedies."""
    spec = JobSpec.model_validate({"base_name": "a", "request": value(REQUEST, Random(seed), odds)})
    for problem in find_problems(spec):
        assert problem.path
        assert SECRET not in problem.message


@given(**SEEDS)
@MANY
def test_wrong_types_reach_no_rule(seed: int, odds: float) -> None:
    chance = Random(seed)
    request = {key: spoiled(inner, chance) for key, inner in value(REQUEST, chance, odds).items()}
    spec = JobSpec.model_validate({"base_name": "a", "request": request})
    assert all(isinstance(problem.message, str) for problem in find_problems(spec))


@given(delivery=st.sampled_from(["auto", "channel", "submit_directory"]), wrong=st.booleans(), **SEEDS)
@MANY
def test_code_adds_only_its_own_problems_to_any_request(delivery: str, wrong: bool, seed: int, odds: float) -> None:
    """A request with code gives a plan or problems, of which only the code's are new."""
    chance = Random(seed)
    request = value(REQUEST, chance, odds)
    if wrong:
        request = {key: spoiled(inner, chance) for key, inner in request.items()}
    code = {"directory": "src", "entry_point": "train.py", "delivery": delivery}
    spec = JobSpec.model_validate({"base_name": "a", "region": "eu-west-1", "request": request, "code": code})
    known = {str(problem) for problem in find_problems(spec)}
    try:
        reported = make_plan(spec, job_name=MadeName("a"), code=CODE).warnings
    except SpecError as error:
        reported = error.problems[:-1]  # the last may have the number of those left out
    assert not any(SECRET in problem.message for problem in reported)
    assert all(problem.path[0] == "code" for problem in reported if str(problem) not in known)


def test_code_is_added_to_right_requests() -> None:
    """Small changes to a right request, so that some can be planned."""
    planned = 0
    for seed in range(200):
        chance = Random(seed)
        request = {member: value(shapes()[REQUEST]["members"][member]["shape"], chance, 1) for member in
                   chance.sample(["InputDataConfig", "HyperParameters", "Environment", "VpcConfig", "Tags"], 2)}  # fmt: skip
        fields = {"role_arn": "arn:aws:iam::123456789012:role/a", "output_data_config": {"s3_output_path": "s3://b/k"}}
        machine = {"instance_type": "ml.m5.large", "instance_count": 1, "volume_size_in_gb": 9}
        fields |= {"image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/a:1", "resource_config": machine}
        chosen = {"base_name": "a", "code": {"directory": "src", "entry_point": "train.py"}, "request": request}
        try:
            planned += bool(make_plan(JobSpec.model_validate({**fields, **chosen}), job_name="one", code=CODE))
        except SpecError as error:
            assert error.problems
    assert planned


def test_random_requests_break_most_rules() -> None:
    """Random requests that break no rule would prove nothing."""
    fields = {"base_name": "a", "region": "eu-west-1"}
    code = {"code": {"directory": "src", "entry_point": "train.py"}}  # some rules are only for jobs with code
    specs = [JobSpec.model_validate(each) for each in (fields, {**fields, **code}, {"base_name": "a"})]
    met = set()
    for seed in range(600):
        request = value(REQUEST, Random(seed), (0.5, 0.8)[seed % 2])
        met |= {rule.code for spec in specs for rule in RULES if any(rule.find(Draft(spec, request, today=TODAY)))}
    of_the_spec = {rule.code for rule in RULES if rule.code.startswith(("code-", "connector-", "job-"))}
    assert len(met | of_the_spec) > 0.75 * len(RULES), sorted({rule.code for rule in RULES} - met - of_the_spec)
