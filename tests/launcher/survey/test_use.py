"""How the data are used, by the spec, the account's jobs and the user's answers."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

import launcher
from aws_stand_in import StandIn
from launcher import bundled
from launcher.account.check import Subject
from launcher.account.run import subject_of
from launcher.advice.facts import Use
from launcher.aws.account import Account
from launcher.errors import InputError, RefusedError
from launcher.rules.examples import laid_over_base
from launcher.s3.uri import S3Location
from launcher.survey.channels import Channel, channels_of
from launcher.survey.use import PastJob, past_jobs, recent_jobs, use_of, with_answers

TRAIN = Channel("train", S3Location("mine", "train/"), present="FastFile")
NOW = datetime(2026, 11, 1, tzinfo=timezone.utc)
SMALL = PastJob("job-1", "File", 4)


def subject(spec: str) -> Subject:
    plan = launcher.plan(launcher.parse_spec(laid_over_base(spec)), name="new")
    return subject_of(plan, Account(region="us-east-1"))


def request(name: str, *uris: str, **members: Any) -> dict[str, Any]:
    channels = ", ".join(f"c{number}: {uri}" for number, uri in enumerate(uris))
    spec = laid_over_base(f"channels: {{{channels}}}\n")
    return launcher.plan(launcher.parse_spec(spec), name=name).request | members


def test_jobs_that_read_the_data_are_found_with_their_epochs(aws: StandIn) -> None:
    create = aws.client("sagemaker").create_training_job
    create(**request("job-1", "s3://mine/train/", HyperParameters={"num-epochs": "4"}))
    create(**request("job-2", "s3://mine/", "s3://other/"))
    create(**request("job-3", "s3://mine/train_old/"))
    create(**request("job-4", "s3://mine/train/a/"))
    descriptions, unknown = recent_jobs(Account())
    assert unknown == ""
    found = {each.name: each for each in past_jobs(TRAIN, descriptions or ())}
    assert sorted(found) == ["job-1", "job-2", "job-4"]
    assert found["job-1"] == SMALL


def test_jobs_that_read_file_systems_or_by_the_connector_are_found() -> None:
    name = "fs-0123456789abcdef0"
    specs = {
        "job-1": f"vpc_config: {VPC}\nchannels: {{x: {{source: EFS, file_system_id: {name}, directory_path: /train}}}}\n",
        "job-2": "channels: {x: {source: S3Connector, s3_uri: s3://mine/train/}}\n",
    }
    times = {"TrainingJobStatus": "Completed", "CreationTime": NOW}
    jobs = [
        launcher.plan(launcher.parse_spec(laid_over_base(text)), name=job).request | times
        for job, text in specs.items()
    ]
    on_efs = Channel("train", S3Location(name, "/other"), "EFS", "EFS")
    assert [(each.name, each.way) for each in past_jobs(on_efs, jobs)] == [("job-1", "EFS")]
    assert [(each.name, each.way) for each in past_jobs(TRAIN, jobs)] == [("job-2", "S3Connector")]


VPC = "{security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}"


def test_denied_listing_of_jobs_is_unknown_and_stops_nothing(aws: StandIn) -> None:
    aws.deny("sagemaker:ListTrainingJobs")
    descriptions, unknown = recent_jobs(Account())
    assert descriptions is None
    assert unknown.startswith("which jobs read the data is unknown: you may not ask: sagemaker:ListTrainingJobs")
    assert unknown.endswith("pass --use jobs=N")


def test_use_comes_from_the_spec_the_instance_type_and_earlier_jobs(aws: StandIn) -> None:
    spec = """\
channels: {train: {s3_uri: s3://mine/train/, input_mode: FastFile, s3_data_distribution_type: ShardedByS3Key}}
resource_config: {instance_type: ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 10}
hyperparameters: {max_epochs: 6}
"""
    about = subject(spec)
    ((channel,), left_out) = channels_of(about)
    assert left_out == []
    use = use_of(channel, about, [SMALL, SMALL], ask=True)
    assert (use.epochs, use.jobs, use.instances, use.sharded, use.present) == (6, 2, 2, True, "FastFile")
    assert (use.vcpus, use.memory_bytes, use.disk_bytes) == (4, 16 * 2**30, 10 * 2**30)
    assert use.usd_per_hour == 0.46
    assert (use.has_vpc, use.is_built_in) == (False, False)
    assert use_of(TRAIN, None, [SMALL], ask=True).epochs == 4
    aws.deny("ec2:*")
    asked = use_of(channel, subject(spec), None, ask=True)
    assert (asked.vcpus, asked.memory_bytes, asked.disk_bytes, asked.jobs) == (None, None, 10 * 2**30, None)


def test_answers_have_the_units_of_specs() -> None:
    use = with_answers(Use(), ("start_within_s=5m", "samples=1e6", "disk_bytes=5GB", "memory_bytes=1.5tb"))
    assert use == Use(start_within_s=300, samples=10**6, disk_bytes=5 * 10**9, memory_bytes=1500 * 10**9)
    with pytest.raises(InputError, match="--use epochs=3: epochs is stated twice; state it once"):
        with_answers(Use(), ("epochs=2", "epochs=3"))


def test_answers_replace_what_was_found() -> None:
    answers = ("epochs=10", "edited_in_place=yes", "random_access=no", "samples_per_s=12.5", "jobs=0")
    use = with_answers(Use(epochs=3, present="File"), answers)
    expected = Use(epochs=10, edited_in_place=True, random_access=False, samples_per_s=12.5, jobs=0, present="File")
    assert use == expected


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("epoch=3", "did you mean epochs?"),
        ("present=File", "NAME is one of epochs, jobs, "),
        ("epochs", "expected NAME=VALUE; NAME is one of epochs, jobs, "),
        ("epochs=", "expected a whole number above 0, got ''"),
        ("samples=1m", "expected a whole number above 0, got '1m'"),
        ("disk_bytes=5XB", "expected a whole number above 0, or such as 200GB, got '5XB'"),
        ("epochs=0", "expected a whole number above 0, got '0'"),
        ("epochs=2.5", "expected a whole number above 0, got '2.5'"),
        ("samples_per_s=fast", "expected a number above 0, got 'fast'"),
        ("random_access=1", "expected yes or no, got '1'"),
    ],
)
def test_wrong_answer_is_refused(answer: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        with_answers(Use(), [answer])
    assert str(caught.value).startswith(f"--use {answer}: ")
    assert message in str(caught.value)


def test_channels_without_a_choice_are_left_out_with_the_reason() -> None:
    manifest = (
        "{s3_uri: s3://mine/m.jsonl, s3_data_type: AugmentedManifestFile, attribute_names: [a], input_mode: Pipe}"
    )
    about = subject(f"channels: {{train: s3://mine/train/, augmented: {manifest}}}\n")
    found, left_out = channels_of(about)
    assert [each.name for each in found] == ["train"]
    assert left_out == ["channels.augmented: an augmented manifest is read by Pipe only, so there is nothing to choose"]
    with pytest.raises(InputError, match="read by Pipe only"):
        channels_of(about, ["augmented"])
    with pytest.raises(InputError, match=r"the spec has no channel 'trian'; did you mean train\?"):
        channels_of(about, ["trian"])
    with pytest.raises(
        InputError, match=r"channels.train: SageMaker reads it in its own way, so there is nothing to choose"
    ):
        channels_of(subject_of(launcher.plan(bundled.spec_path("serverless-dataset"), name="new"), Account()))


def test_spec_without_channels_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"the spec has no channels; add one: `channels: \{train: s3://bucket/prefix/\}`"
    ):
        channels_of(subject("channels: {}\n"))
