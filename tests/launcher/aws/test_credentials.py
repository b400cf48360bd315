"""Expired or missing credentials, and an unreachable AWS: reported early, and always with the same message."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import launcher
from account_data import CHANNEL, checked, with_data
from aws_stand_in import StandIn
from aws_stand_in_calls import ASKED
from launcher.account import CHECKS
from launcher.aws.session import Account, AwsError, CredentialsError
from launcher.console import Console
from launcher.errors import RefusedError
from launcher.jobs.submission import submit
from launcher.local.channels.stores import remote_store
from patience import in_threads
from submitted_spec import SPEC

CHANNELS = CHANNEL.replace("}}", "}, more: s3://data/train/deep/}")


def test_expired_credentials_end_the_checks_early_with_one_message(aws: StandIn) -> None:
    with_data(aws)
    aws.fault("expired", "*", count=-1)
    for _ in range(3):
        aws.clear_calls()
        with pytest.raises(RefusedError, match="the AWS credentials have expired; renew them"):
            checked(CHANNELS, checks=CHECKS)
        assert len(aws.calls()) < 40


def test_head_without_error_code_is_resolved_by_another_call(aws: StandIn) -> None:
    aws.client("s3").create_bucket(Bucket="data")
    aws.fault("expired", "s3:*", count=-1)
    with pytest.raises(CredentialsError, match="have expired"):
        Account().call("s3", "head_bucket", Bucket="data")
    aws.clear_faults()
    aws.refuse("s3:HeadBucket", "BadRequest", "no", status=400, count=-1)
    with pytest.raises(AwsError) as caught:
        Account().call("s3", "head_bucket", Bucket="data")
    assert not caught.value.is_unauthenticated
    assert "expired" not in str(caught.value)


def test_many_threads_renew_credentials_once(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.call("sts", "get_caller_identity")
    aws.fault("expired", "*", key_id="stand-in-key-id", count=-1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "renewed-key-id")
    first = account.client("sts")

    def ask(_: int) -> Any:
        account.call("sts", "get_caller_identity")
        return account.client("sts")

    clients = in_threads(ask, 16)
    assert len({id(client) for client in clients} - {id(first)}) == 1


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("expired", "the AWS credentials have expired"), ("invalid", "AWS does not accept the credentials")],
)
def test_user_is_asked_once_and_the_call_is_repeated(
    aws: StandIn, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    asked: list[str] = []

    def renew(reason: str) -> bool:
        asked.append(reason)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "renewed-key-id")
        return True

    aws.fault(kind, "*", key_id="stand-in-key-id", count=-1)
    assert Account(on_expired=renew).call("sts", "get_caller_identity")["Account"]
    assert [each.partition(";")[0] for each in asked] == [reason]


def test_credential_process_with_expired_keys_is_called_a_few_times(
    aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _credential_process(tmp_path, monkeypatch, 'echo x >> count; key=key-$(wc -l < count | tr -d " ")')
    aws.fault("expired", "*", count=-1)
    with pytest.raises(CredentialsError, match="have expired"):
        Account().call("sts", "get_caller_identity")
    assert len((tmp_path / "count").read_text().splitlines()) < 12


def test_expired_credentials_at_creation_are_not_blamed_on_the_spec(
    aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    aws.fault("expired", "sagemaker:CreateTrainingJob", count=-1)
    plan = launcher.plan(launcher.parse_spec("".join(line for line in SPEC.splitlines(True) if "code:" not in line)))
    with pytest.raises(RefusedError, match=r"^the AWS credentials have expired.*no job digits-1 was created"):
        submit(plan, Account(), Console())
    assert aws.requests() == []


def test_unreachable_aws_or_missing_credentials_are_reported_with_their_cause(
    aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        patch.setattr(time, "sleep", lambda seconds: None)  # no pauses between attempts
        with pytest.raises(RefusedError, match=r"AWS cannot be reached: .*127\.0\.0\.1:9.*proxies"):
            checked(CHANNEL)
        patch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9")
        with pytest.raises(RefusedError, match=r"^s3: Invalid endpoint: [\d.]+:9; check the AWS environment"):
            checked(CHANNEL)
    _credential_process(tmp_path, monkeypatch, "echo dead >&2; exit 1")
    with pytest.raises(RefusedError, match=r"there are no AWS credentials: .*dead; renew them"):
        checked(CHANNEL)
    broken = {
        "credential_process = /no/such": "No such file or directory: '/no/such'",
        "credential_process = echo no-json": "Expecting value",
        "role_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = /no/such": "/no/such",
    }
    for settings, reason in broken.items():
        (tmp_path / "config").write_text(f"[default]\n{settings}\n")
        with pytest.raises(
            RefusedError, match=rf"there are no AWS credentials: .*{reason}.*correct the AWS configuration"
        ):
            Account().client("s3")
    sso = "[default]\nsso_session = my\nsso_account_id = 123456789012\nsso_role_name = x\n"
    (tmp_path / "config").write_text(
        f"{sso}[sso-session my]\nsso_start_url = https://x.test/\nsso_region = us-east-1\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RefusedError, match=r"there are no AWS credentials: .*SSO Token.*aws sso login"):
        checked(CHANNEL)


def test_parameters_refused_by_boto3_were_not_sent(aws: StandIn) -> None:
    with pytest.raises(AwsError, match="Parameter validation failed") as caught:
        Account().call("sagemaker", "describe_training_job", TrainingJobName=1)
    assert not caught.value.may_have_happened


def test_refusal_that_is_not_from_aws_is_reported_as_such(aws: StandIn) -> None:
    for message in ("<?xml version='1.0'?><Error/>", "<html>", ""):
        aws.refuse("sts:GetCallerIdentity", "", message)
        with pytest.raises(AwsError, match="the answer is not from AWS"):
            Account().call("sts", "get_caller_identity")
    for service, operation in (
        ("sts", "get_caller_identity"),
        ("sagemaker", "search"),
        ("logs", "describe_log_streams"),
    ):
        aws.fault("html", f"{service}:*")
        needed = {"Resource": "TrainingJob"} if operation == "search" else {}
        with pytest.raises(AwsError, match="the answer is not from AWS"):
            Account().call(service, operation, **needed)


def test_user_without_a_home_folder_can_ask(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a container's user that is only a number."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("posixpath.expanduser", lambda path: path)
    assert Account().caller["Account"]


def test_missing_profile_has_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "profile: 'nosuch' is not in the AWS configuration; write one of `aws configure list-profiles`"
    spec = launcher.parse_spec(SPEC + "profile: nosuch\n")
    for open_aws in (lambda: Account(profile="nosuch").client("s3"), lambda: remote_store(spec).__enter__()):
        with pytest.raises(RefusedError) as caught:
            open_aws()
        assert str(caught.value) == message
    monkeypatch.setenv("AWS_PROFILE", "gone")
    with pytest.raises(RefusedError, match="AWS_PROFILE: 'gone' is not in the AWS configuration"):
        Account().client("s3")


def _credential_process(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Configure a shell script, which may set `key`, as the source of credentials."""
    printed = '{\\"Version\\": 1, \\"AccessKeyId\\": \\"$key\\", \\"SecretAccessKey\\": \\"no\\", \\"SessionToken\\": \\"t\\"}'
    program = folder / "credentials.sh"
    program.write_text(f'#!/bin/sh\ncd {folder}\n{script}\necho "{printed}"\n')
    program.chmod(0o755)
    (folder / "config").write_text(f"[default]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("invalid", r"^AWS does not accept the credentials; check the access key.*AWS reported: .*\[\w+\]$"),
        ("signature", r"^AWS does not accept the credentials; check the access key.*AWS reported: .*\[\w+\]$"),
        (
            "skewed",
            r"^(this machine's clock differs from AWS's by minutes; set it|AWS does not accept the credentials)",
        ),
    ],
)
def test_rejected_credentials_end_the_checks_with_one_message(aws: StandIn, kind: str, message: str) -> None:
    """EC2 has one code for all three; with a wrong clock any other service names the cause."""
    with_data(aws)
    aws.fault(kind, "*", count=-1)
    with pytest.raises(RefusedError, match=message):
        checked(CHANNELS, checks=CHECKS)
    for service in ("sagemaker", "sts", "iam", "logs", "s3"):
        operation, parameters = ASKED[service]
        with pytest.raises(CredentialsError, match="clock" if kind == "skewed" else "does not accept") as caught:
            Account().call(service, operation, **parameters)
        assert "\n" not in str(caught.value)
    assert AwsError("s3:PutObject: no", call="s3:PutObject", code="AccessDenied").is_unauthenticated is False


def test_call_that_is_not_answered_is_named(aws: StandIn, capfd: pytest.CaptureFixture[str]) -> None:
    """Also in a pipe: with all attempts it takes minutes until there is an error."""
    aws.fault("hang", "sts:GetCallerIdentity", seconds=2.3)
    Account().call("sts", "get_caller_identity")
    message = "sts:GetCallerIdentity: there is no answer yet; waiting for it\n"
    assert capfd.readouterr().err == message
