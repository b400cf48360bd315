"""Every rule by its examples: only this rule finds the wrong one, at a place that exists; the right one has no problem."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from datetime import date, timedelta

import pytest

import launcher.rules
from launcher import parse_spec
from launcher.request.image_uris import resolve_image
from launcher.request.instance_types import instance_type
from launcher.rules import RULES, find_problems
from launcher.rules.built_in.algorithms import built_ins
from launcher.rules.examples import BASE, details, examples, laid_over_base
from launcher.rules.rule import Rule
from launcher.spec.aws_model import shapes
from sagemaker_channels.job.hyperparameters import argument, decoded, hyperparameter_variables

EXAMPLES = examples()
TODAY = date(2026, 11, 26)  # by which the examples with AWS's images are judged
# Examples that another rule reports, too.
ALONGSIDE = {code: {"code-needs-toolkit"} for code in ("code-requirements-toolkit", "code-arguments-toolkit")}


def codes_of(overlay: str) -> list[str]:
    return [problem.code for problem in find_problems(parse_spec(laid_over_base(overlay)), today=TODAY)]


def messages_of(overlay: str) -> list[str]:
    return [str(problem) for problem in find_problems(parse_spec(laid_over_base(overlay), "job.yaml"), today=TODAY)]


def example(rule: Rule, which: int) -> str:
    """Return a rule's wrong (0) or right (1) example."""
    folder = rule.find.__module__.rpartition(".")[0].replace(".", "/")
    assert rule.code in EXAMPLES, f"add {rule.code} to {folder}/examples.yaml, with `more`, `wrong` and `right`"
    return EXAMPLES[rule.code][which]


def test_base_spec_has_no_problem() -> None:
    assert find_problems(parse_spec(BASE), today=TODAY) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_wrong_example_is_found_by_this_rule_alone_with_a_remedy(rule: Rule) -> None:
    problems = find_problems(parse_spec(laid_over_base(example(rule, 0))), today=TODAY)
    assert {problem.code for problem in problems} == {rule.code} | ALONGSIDE.get(rule.code, set())
    for problem in problems:
        assert problem.location is not None
        assert len(problem.message) < 240
        assert not problem.message.endswith(".")
        assert "; " in problem.message, "what is wrong; what to do"
        assert problem.severity == rule.severity or problem.code != rule.code


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_right_example_is_clean(rule: Rule) -> None:
    assert set(codes_of(example(rule, 1))) == ALONGSIDE.get(rule.code, set())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_rule_has_a_reason_and_a_source(rule: Rule) -> None:
    """The docstring is a row of the documentation; the details have the source."""
    assert re.fullmatch(r"\S.*\.", rule.find.__doc__ or "")
    assert example(rule, 0)
    assert details(rule.code), f"give {rule.code} in the examples.yaml of its folder `more`, which has its source"


def test_every_module_with_a_rule_is_a_subject() -> None:
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(launcher.rules.__path__, "launcher.rules.")
    ]
    rules = {rule for module in modules for rule in vars(module).values() if isinstance(rule, Rule)}
    assert {rule.code for rule in rules - set(RULES)} == set(), "add their module to SUBJECTS"


def test_codes_are_stable_names() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", code) for code in codes)


def test_21st_channel_is_one_problem() -> None:
    overlay = "channels:\n" + "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(21))
    problems = find_problems(parse_spec(laid_over_base(overlay)), today=TODAY)
    assert [problem.code for problem in problems] == ["channels-at-most-20"]
    assert problems[0].path == ("channels", "c20")


@pytest.mark.parametrize(
    ("keys", "code", "remedy"),
    [
        ("input_mode: FastFile", "channel-augmented-manifest-needs-pipe", "write input_mode: Pipe"),
        ("input_mode: Pipe, record_wrapper_type: null", "channel-augmented-manifest-records", "write RecordIO"),
        ("input_mode: Pipe, attribute_names: null", "channel-attribute-names", "name the attributes to send"),
        ("input_mode: Pipe, s3_data_type: S3Prefix", "channel-attribute-names", "write s3_data_type: AugmentedM"),
    ],
)
def test_wrong_augmented_manifest_channel_has_one_remedy(keys: str, code: str, remedy: str) -> None:
    overlay = (
        "code: {entry_point: entrypoints/read_channels.py}\nchannels: {train: {s3_uri: s3://bkt/train.manifest, %s}}"
    )
    members = {
        "s3_data_type": "AugmentedManifestFile",
        "attribute_names": "[a-ref, b]",
        "record_wrapper_type": "RecordIO",
    }
    members |= dict(key.split(": ") for key in keys.split(", "))
    overlay %= ", ".join(f"{key}: {value}" for key, value in members.items())
    assert codes_of(overlay) == [code]
    assert remedy in messages_of(overlay)[0]


def test_connector_channels_do_not_count() -> None:
    overlay = "channels:\n" + "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(20))
    overlay += "  images: {source: S3Connector, s3_uri: s3://bucket/images/}\n"
    assert find_problems(parse_spec(laid_over_base(overlay)), today=TODAY) == []


VPC = "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
GROUPS = (
    "resource_config: {volume_size_in_gb: 50, instance_groups: [{instance_group_name: a, instance_type: ml.m5.large,"
    " instance_count: 1}, {instance_group_name: b, instance_type: ml.g5.xlarge, instance_count: 2}]}\n"
)
GPU = (
    "resource_config: {instance_type: ml.g5.xlarge, instance_count: 1}\nchannels: {train: {s3_uri: s3://bkt/t/,"
    " content_type: application/x-recordio}, validation: {s3_uri: s3://bkt/v/, content_type: application/x-recordio}}"
)
FINE = {
    "modes that differ by channel": "training_input_mode: Pipe\nchannels: {a: {s3_uri: s3://bkt/a/, input_mode: File},"
    " b: {s3_uri: s3://bkt/b/, input_mode: FastFile}, c: s3://bkt/c/}",
    "shuffled in every mode": "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n"
    "channels: {a: {s3_uri: s3://bkt/a/, shuffle_config: {seed: 1}, s3_data_distribution_type: ShardedByS3Key},"
    " b: {s3_uri: s3://bkt/b/, input_mode: FastFile, shuffle_config: {seed: 1}},"
    " c: {s3_uri: s3://bkt/c/, input_mode: Pipe, shuffle_config: {seed: 1}, s3_data_distribution_type: ShardedByS3Key}}",
    "a key with // in a stream": "channels: {a: {s3_uri: s3://bucket/a//b/, input_mode: Pipe}}",
    "a manifest in a stream": "channels: {a: {s3_uri: s3://bkt/m.json, s3_data_type: ManifestFile, input_mode: Pipe}}",
    "None as a text": "channels: {a: {s3_uri: s3://bkt/a/, compression_type: None, record_wrapper_type: None}}",
    "empty maps and texts": "hyperparameters: {}\nenvironment: {A: ''}\ntags: {}\ncontainer_arguments: [' ']",
    "an image of a region in a job without one": "image: 123456789012.dkr.ecr.us-west-2.amazonaws.com/mine:1",
    "an image by its digest": f"region: eu-west-1\nimage: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/a@sha256:{'0' * 64}",
    "an image of China": "region: cn-north-1\nimage: 123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/a:1\n"
    "role_arn: arn:aws-cn:iam::123456789012:role/training",
    "an image of another registry": "region: eu-west-1\nimage: registry.example.com/training:1\n"
    "training_image_config: {training_repository_access_mode: Vpc}\n" + VPC,
    "no volume for a type with disks": "resource_config: {instance_type: ml.p4d.24xlarge, instance_count: 2}",
    "groups with a volume for one of them": GROUPS + "channels: null",
    "a period of 0": "resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 9,"
    " keep_alive_period_in_seconds: 0}",
    "equal waiting and running": "enable_managed_spot_training: true\ncheckpoint_config: {s3_uri: s3://bkt/c/}\n"
    "stopping_condition: {max_runtime_in_seconds: 60, max_wait_time_in_seconds: 60}",
    "TensorBoard's default, written out": "tensor_board_output_config: {s3_output_path: s3://bucket/tb/,"
    " local_path: /opt/ml/output/tensorboard}",
    "no spot, written out": "enable_managed_spot_training: false",
    "a volume's key on EBS": "resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 9,"
    " volume_kms_key_id: alias/mine}",
    "a channel model in File mode": "channels: {model: s3://bkt/model.tar.gz}",
    "a group's channel on a file system": GROUPS + VPC + "channels: {a: {s3_uri: s3://bkt/a/, instance_group_names: [a]},"
    " c: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /c}}",
    "shards over the hosts of a group": GROUPS + "channels: {a: {s3_uri: s3://bkt/a/, instance_group_names: [b],"
    " s3_data_distribution_type: ShardedByS3Key}}",
    "a list of images that are RecordIO": "image: 685385470294.dkr.ecr.eu-west-1.amazonaws.com/image-classification:1\n"
    "hyperparameters: {num_classes: 10, num_training_samples: 1000}\n"
    "resource_config: {instance_type: ml.p3.2xlarge, instance_count: 1, volume_size_in_gb: 50}\n"
    "channels: {train: {s3_uri: s3://bkt/t/, content_type: application/x-recordio},"
    " validation: {s3_uri: s3://bkt/v/, content_type: application/x-recordio}}",
    "an algorithm's image with a script": "image: 685385470294.dkr.ecr.eu-west-1.amazonaws.com/xgboost:1\n"
    "hyperparameters: {sagemaker_program: train.py}\nchannels: {training: {s3_uri: s3://bkt/t/, content_type: csv}}",
    "an algorithm of the user": "image: null\nalgorithm_name: mine",
    "a serverless job": "image: null\nresource_config: null\nstopping_condition: null\nserverless_job_config: {base_model_arn:"
    " 'arn:aws:sagemaker:eu-west-1:aws:hub-content/SageMakerPublicHub/Model/a/1.0.0', job_type: FineTuning}",
}  # fmt: skip


@pytest.mark.parametrize("overlay", FINE.values(), ids=FINE)
def test_valid_spec_has_no_problem(overlay: str) -> None:
    assert messages_of(overlay) == []


@pytest.mark.parametrize(
    ("hatch", "place"),
    [
        ("{StoppingCondition: {MaxRuntimeInSeconds: 2419201}}", "8:31: request.StoppingCondition.MaxRuntimeInSeconds:"),
        ("{EnableManagedSpotTraining: true}", "8:11: request.EnableManagedSpotTraining: needs"),
        ("{Tags: [{Key: a, Value: b}, {Key: 'aws:a', Value: b}]}", "8:39: request.Tags[1].Key: begins"),
        (
            "{InputDataConfig: [{ChannelName: a, CompressionType: Gzip,"
            " DataSource: {S3DataSource: {S3Uri: 's3://bkt', S3DataType: S3Prefix}}}]}",
            "8:46: request.InputDataConfig[0].CompressionType:",
        ),
        (
            "{InputDataConfig: [{ChannelName: a, DataSource: {S3DataSource: {S3Uri: 's3://bkt', S3DataType: S3Prefix}}}]}",
            "8:74: request.InputDataConfig[0].DataSource.S3DataSource.S3Uri: 's3://bkt' means the whole bucket",
        ),
        (
            "{VpcConfig: {Subnets: [sg-0123456789abcdef0], SecurityGroupIds: [sg-0123456789abcdef0]}}",
            "8:33: request.VpcConfig.Subnets[0]:",
        ),
    ],
)
def test_problem_under_request_is_reported_there(hatch: str, place: str) -> None:
    assert any(message.startswith(f"job.yaml:{place}") for message in messages_of(f"request: {hatch}")), messages_of(
        f"request: {hatch}"
    )


def test_null_member_reaches_no_rule() -> None:
    hatch = "{InputDataConfig: [{ChannelName: a, S3Uri: {a: b}, DataSource: {S3DataSource: {S3DataType: S3Prefix}}}]}"
    assert set(codes_of(f"request: {hatch}")) == {"aws-unknown-member", "aws-required"}


def test_wrong_type_hides_no_other_problem() -> None:
    """Rules do not see a value of a wrong type, but they see those beside it."""
    hatch = (
        "{InputDataConfig: [{ChannelName: a, ShuffleConfig: {Seed: x}, CompressionType: Gzip,"
        " DataSource: {S3DataSource: {S3Uri: 's3://bkt/a/', S3DataType: S3Prefix}}}]}"
    )
    assert set(codes_of(f"request: {hatch}")) == {"aws-type", "channel-gzip-needs-pipe"}


def test_value_of_a_wrong_type_is_not_missing() -> None:
    image = "685385470294.dkr.ecr.eu-west-1.amazonaws.com/image-classification:1"
    (code,) = codes_of(
        f"image: {image}\nrequest: {{HyperParameters: {{num_training_samples: '9', num_classes: []}}}}\n{GPU}"
    )
    assert code == "aws-type"
    hyperparameters = "hyperparameters: {num_classes: 2, num_training_samples: 9}"
    (code,) = codes_of(f"image: {image}\n{GPU}\n{hyperparameters}\nrequest: {{InputDataConfig: [x]}}")
    assert code == "aws-type"


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        ("base_name: my_job", "hyphens in place of _"),
        (
            "role_arn: arn:aws:sts::123456789012:assumed-role/mine/me",
            "write the role's, arn:aws:iam::123456789012:role/mine",
        ),
        ("role_arn: arn:aws:iam::123456789012:user/me", "needs a role, not a user"),
        ("role_arn: training-of-the-vision-team", "such as arn:aws:iam::123456789012:role/training-of"),
        ("output_data_config: {s3_output_path: S3://bucket/out}", "write s3://bucket/out"),
        ("output_data_config: {s3_output_path: bucket/out}", "write s3://bucket/out"),
        ("output_data_config: {s3_output_path: bucket}", "such as s3://bucket/folder/"),
        ("channels: {train: /data/train}", "copy it to S3"),
        ("channels: {my train: s3://bkt/t/}", "letters, digits, hyphens"),
        ("environment: {MY-NAME: a}", "digits and underscores"),
        ("tags: {team: a&b}", "letters, digits, spaces"),
        (
            VPC + "channels: {a: {source: EFS, directory_path: /, file_system_id: 'fs-01234567.efs'}}",
            "write fs-01234567",
        ),
    ],
)
def test_pattern_problem_has_a_remedy(overlay: str, words: str) -> None:
    (message,) = messages_of(overlay)
    assert words in message
    assert message.endswith("[aws-pattern]")


def test_every_instance_type_of_botocore_is_known() -> None:
    """A new family has to be looked up once; until then no rule reports it."""
    for name in shapes()["TrainingInstanceType"]["enum"]:
        known = instance_type(name)
        assert known.accelerator is not None, name
        assert known.storage is not None, name
    assert set(codes_of("resource_config: {instance_type: ml.q9.xlarge, instance_count: 1}")) == {"aws-enum"}
    assert instance_type("ml.m5.xlarg").storage is None
    assert (instance_type("ml.x9d.2xlarge").storage, instance_type("ml.x9d.2xlarge").accelerator) == ("NVMe", "")


def test_every_built_in_algorithm_is_recognised() -> None:
    for name in built_ins():
        instance = "ml.p3.2xlarge" if built_ins()[name].gpu_only else "ml.m5.xlarge"
        wanted = {"algorithm": name, **({"version": "1.7-1"} if name == "xgboost" else {})}
        image = resolve_image(wanted, region="us-east-1", instance_type=instance)
        machine = f"resource_config: {{instance_type: {instance}, instance_count: 1, volume_size_in_gb: 9}}"
        assert "built-in-channel-missing" in codes_of(f"image: {image}\nchannels: null\n{machine}"), name


AWS = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "last_day", "instead"),
    [
        (f"{AWS}/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker", date(2026, 8, 6), "version: '2.14'"),
        (
            f"{AWS}/pytorch-training:2.9-cpu-py312",
            date(2026, 10, 15),
            "region: eu-west-1 and image: {framework: pytorch",
        ),
        (f"{AWS}/pytorch:2.14.0-cpu-amzn2023-sagemaker", date(2027, 9, 28), "use a newer one"),
        (f"{AWS}/tensorflow-training:2.19-cpu-py312", date(2026, 3, 11), "version: '2.21'"),
        (f"{AWS}/tensorflow-training:1.15.5-cpu-py37", date(2024, 9, 26), "tensorflow 1.15 after 2024-09-26"),
        (
            "141502667606.dkr.ecr.eu-west-1.amazonaws.com/sagemaker-xgboost:3.0-5",
            date(2026, 11, 17),
            "version: '3.2-0'",
        ),
        (f"{AWS}/pytorch-training:2.1.0-cpu-py310", date(2024, 10, 4), "pytorch 2.1 after"),
        (f"{AWS}/pytorch-training:2.10.0-cpu-py313", date(2027, 1, 21), "pytorch 2.10 after"),
    ],
)
def test_image_is_out_of_patch_from_the_day_after_its_date(image: str, last_day: date, instead: str) -> None:
    def messages(today: date | None) -> list[str]:
        found = find_problems(parse_spec(laid_over_base(f"image: {image}")), today=today)
        return [problem.message for problem in found if problem.code == "image-out-of-patch"]

    assert messages(None) == messages(last_day) == []
    (message,) = messages(last_day + timedelta(days=1))
    assert instead in message


@pytest.mark.parametrize("image", ["123456789012.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.8.0", "mine:1"])
def test_other_peoples_images_have_no_end_of_patch(image: str) -> None:
    found = find_problems(parse_spec(laid_over_base(f"image: {image}")), today=date(2100, 1, 1))
    assert "image-out-of-patch" not in {problem.code for problem in found}


@pytest.mark.parametrize(
    ("style", "value", "arrives"),
    [
        ("toolkit", "{a: 1, b: x}", '\'a=1,b=x\'; code.argument_style: json passes \'{"a": 1, "b": "x"}\''),
        ("toolkit", """'{"x": "y"}'""", "'x=y'; code.argument_style: json"),
        ("toolkit", "[a]", """"['a']"; code.argument_style: json passes"""),
        ("toolkit", "'null'", "''"),
        *(
            ("toolkit", value, None)
            for value in ("0.001", "1e-3", "012", "true", "no", "[1, 2]", "text", "'{broken'", "'True'")
        ),
        ("json", """'{"x":"y"}'""", """'{"x": "y"}'"""),
        ("json", """'"5"'""", "without the quotes inside"),
        *(("json", value, None) for value in ("{a: 1, b: [x]}", "[a]", "true", "'True'", "'null'", "1e-3")),
    ],
)
def test_hyperparameter_changed_on_its_way_draws_a_warning(style: str, value: str, arrives: str | None) -> None:
    overlay = f"code: {{entry_point: train.py, argument_style: {style}}}\nhyperparameters: {{h: {value}}}"
    found = [message for message in messages_of(overlay) if message.endswith("[hyperparameter-changed]")]
    assert len(found) == (arrives is not None)
    assert all(arrives in message for message in found if arrives)


@pytest.mark.parametrize("style", ["toolkit", "json"])
@pytest.mark.parametrize(
    "text", ['"5"', '"{\\"a\\": 1}"', "null", "1e-3", '"1e-3"', '"a"', "[1,2]", '{"a":1}', "NaN", "true"]
)
def test_advice_to_write_what_arrives_changes_no_variable(style: str, text: str) -> None:
    """What the message says of SM_HPS is true: a JSON text that holds JSON would become a mapping in it."""
    overlay = f"code: {{entry_point: train.py, argument_style: {style}}}\nhyperparameters: {{h: {json.dumps(text)}}}"
    for message in messages_of(overlay):
        value = decoded(text)
        arrives = argument(value, style)
        before, after = (hyperparameter_variables({"h": each}, style)["SM_HPS"] for each in (value, decoded(arrives)))
        if "which changes neither SM_HPS nor" in message:
            assert before == after
        elif "code.argument_style: json" not in message:
            assert "or read it from SM_HPS" in message
            assert before != after or text == "NaN"  # which equals nothing


def test_changed_hyperparameter_is_named_without_its_variables_value() -> None:
    overlay = "code: {entry_point: train.py}\nhyperparameters: {key: '${KEY}'}"
    for text, arrives in (("123e4567", "inf"), ("123e4", "1230000.0")):  # such as commits
        spec = parse_spec(laid_over_base(overlay), environ={"KEY": text})
        (message,) = [str(problem) for problem in find_problems(spec) if problem.code == "hyperparameter-changed"]
        assert "hyperparameters.key" in message and text not in message and arrives not in message
