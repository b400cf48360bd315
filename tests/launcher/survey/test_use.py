"""How the data are used, by the spec and the user's answers."""

from __future__ import annotations

import pytest

import launcher
from aws_stand_in import StandIn
from launcher import bundled
from launcher.account.check import Subject
from launcher.account.results import subject_of
from launcher.advice.facts import Use
from launcher.aws.session import Account
from launcher.errors import InputError, RefusedError
from launcher.rules.examples import laid_over_base
from launcher.spec.channels import KINDS
from launcher.survey.channels import channels_of
from launcher.survey.use import use_of, with_answers


def subject(spec: str) -> Subject:
    plan = launcher.plan(launcher.parse_spec(laid_over_base(spec)), name="new")
    return subject_of(plan, Account(region="us-east-1"))


def test_use_comes_from_the_spec_and_the_instance_type(aws: StandIn) -> None:
    spec = """\
channels: {train: {s3_uri: s3://mine/train/, input_mode: FastFile, s3_data_distribution_type: ShardedByS3Key}}
resource_config: {instance_type: ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 10}
hyperparameters: {max_epochs: 6}
"""
    about = subject(spec)
    ((channel,), left_out) = channels_of(about)
    assert left_out == []
    use = use_of(channel, about, ask=True)
    assert (use.epochs, use.instances, use.sharded, use.present) == (6, 2, True, "FastFile")
    assert (use.vcpus, use.memory_bytes, use.disk_bytes) == (4, 16 * 2**30, 10 * 2**30)
    assert use.usd_per_hour == 0.46
    assert (use.has_vpc, use.is_built_in) == (False, False)
    aws.deny("ec2:*")
    asked = use_of(channel, subject(spec), ask=True)
    assert (asked.vcpus, asked.memory_bytes, asked.disk_bytes) == (None, None, 10 * 2**30)


def test_answers_have_the_units_of_specs() -> None:
    use = with_answers(Use(), ("start_within_s=5m", "samples=1e6", "disk_bytes=5GB", "memory_bytes=1.5tb"))
    assert use == Use(start_within_s=300, samples=10**6, disk_bytes=5 * 10**9, memory_bytes=1500 * 10**9)


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


def test_channels_without_a_choice_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setitem(KINDS["Dataset"].WITHOUT, "WAYS", "a kind's own reason")
    with pytest.raises(InputError, match=r"channels.train: a kind's own reason; advice is for channels of S3, EFS, "):
        channels_of(subject_of(launcher.plan(bundled.spec_path("serverless-dataset"), name="new"), Account()))


def test_spec_without_channels_is_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"the spec has no channels; add one: `channels: \{train: s3://bucket/prefix/\}`"
    ):
        channels_of(subject("channels: {}\n"))
