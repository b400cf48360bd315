"""Submissions: exactly the shown request, only once despite any fault, and clear errors if AWS refuses."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import pytest

import launcher
from aws_stand_in import StandIn
from launcher.aws.code_upload import upload_code
from launcher.aws.session import Account
from launcher.console import Console
from launcher.errors import AccountError, LaunchError, RefusedError
from launcher.jobs.submission import submit
from launching import launch

CODE_CALLS = ["s3:HeadObject", "s3:HeadObject", "s3:PutObject", "s3:PutObject"]
CALLS = ["sagemaker:DescribeTrainingJob", *CODE_CALLS, "sagemaker:CreateTrainingJob"]
FAULTS = ("reset", "reset-after", "throttle", "500", "500-after", "expired")


@pytest.fixture
def plan(submittable: None, monkeypatch: pytest.MonkeyPatch) -> launcher.Plan:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # no pauses between attempts
    return launcher.plan("job.yaml")


def submitted(plan: launcher.Plan) -> str:
    return submit(plan, _account(os.environ["AWS_ENDPOINT_URL"]), Console()).arn


@cache
def _account(endpoint: str) -> Account:
    """Return one account for all tests, since creating clients takes half a second."""
    return Account(region="us-east-1")


def test_submission_sends_plans_request_and_uploads_its_code(aws: StandIn, plan: launcher.Plan) -> None:
    assert submitted(plan).endswith(":training-job/digits-1")
    assert [f"{call['service']}:{call['operation']}" for call in aws.calls()] == CALLS
    assert aws.requests() == [plan.request]
    assert stored(aws, plan) == sent(plan)


def stored(aws: StandIn, plan: launcher.Plan) -> list[bytes]:
    """Return the two objects in S3 that hold the code."""
    assert plan.code_uri is not None
    s3, key = aws.client("s3"), plan.code_uri.removeprefix("s3://mine/")
    return [s3.get_object(Bucket="mine", Key=key + name)["Body"].read() for name in ("boot.py", "code.tar.gz")]


def sent(plan: launcher.Plan) -> list[bytes]:
    """Return the two objects as they should be."""
    assert plan.code is not None
    plan.code.write_tar_gz(archive := io.BytesIO())
    return [plan.code.boot(), archive.getvalue()]


def test_unchanged_code_is_not_uploaded_again(aws: StandIn, plan: launcher.Plan) -> None:
    submitted(plan)
    aws.clear_calls()
    submitted(launcher.plan("job.yaml", name="digits-2"))
    assert aws.writing_calls() == ["sagemaker:CreateTrainingJob"]


def test_upload_progress_counts_code_once_if_keys_expire(
    aws: StandIn, plan: launcher.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    class Counted(Console):
        @contextmanager
        def progress(self, *about: object, **more: object) -> Iterator[Callable[[int], None]]:
            yield counts.append

    account = Account(region="us-east-1")
    account.call("sts", "get_caller_identity")
    aws.fault("expired", "s3:PutObject", key_id="stand-in-key-id", count=-1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "renewed-key-id")
    upload_code(plan, account, Counted())
    assert sum(counts) == sum(map(len, sent(plan)))


def test_code_is_encrypted_with_outputs_key(aws: StandIn, plan: launcher.Plan) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/12345678-1234-1234-1234-123456789012"
    plan = launcher.plan(launcher.load("job.yaml", sets=[f"output_data_config.kms_key_id={key}"]))
    submitted(plan)
    assert plan.code_uri is not None
    head = aws.client("s3").head_object(Bucket="mine", Key=plan.code_uri.removeprefix("s3://mine/") + "code.tar.gz")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", key)


@pytest.mark.parametrize("damage", ["empty", "cut", "without a checksum"])
def test_incomplete_code_is_uploaded_again(aws: StandIn, plan: launcher.Plan, damage: str) -> None:
    submitted(plan)
    assert plan.code_uri is not None
    s3, key = aws.client("s3"), plan.code_uri.removeprefix("s3://mine/") + "code.tar.gz"
    whole = s3.head_object(Bucket="mine", Key=key)  # a body that nobody reads would leave a connection open
    body = {"empty": b"", "cut": sent(plan)[1][:100], "without a checksum": sent(plan)[1]}[damage]
    more = {} if damage == "without a checksum" else {"ChecksumAlgorithm": "SHA256"}
    s3.put_object(Bucket="mine", Key=key, Body=body, Metadata=whole["Metadata"], **more)
    aws.clear_calls()
    submitted(launcher.plan("job.yaml", name="digits-2"))
    assert stored(aws, plan) == sent(plan)
    assert aws.writing_calls() == ["s3:PutObject", "sagemaker:CreateTrainingJob"]


@pytest.mark.parametrize("name", ["boot.py", "code.tar.gz"])
def test_code_that_another_role_has_replaced_is_uploaded_again(aws: StandIn, plan: launcher.Plan, name: str) -> None:
    """The object is whole, and its checksum and metadata are those of its own content."""
    assert plan.code_uri is not None
    key, content = plan.code_uri.removeprefix("s3://mine/") + name, b"print('not yours')\n"
    sha256 = base64.b64encode(hashlib.sha256(content).digest()).decode()
    submitted(plan)
    of_us = aws.client("s3").head_object(Bucket="mine", Key=key)["Metadata"]
    metadata = dict.fromkeys([*of_us, "launcher-content"], f"{len(content)} {sha256}")
    aws.client("s3").put_object(Bucket="mine", Key=key, Body=content, Metadata=metadata, ChecksumAlgorithm="SHA256")
    aws.clear_calls()
    submitted(launcher.plan("job.yaml", name="digits-2"))
    assert stored(aws, plan) == sent(plan)
    assert aws.writing_calls() == ["s3:PutObject", "sagemaker:CreateTrainingJob"]


def test_code_is_not_uploaded_to_a_bucket_of_another_account(aws: StandIn, plan: launcher.Plan) -> None:
    """Its owner could read the code and the outputs, and replace the code."""
    aws.bucket("mine", owner="210987654321")
    with pytest.raises(
        RefusedError, match=r"mine \(it must belong to account 123456789012, unless bucket_owners names another"
    ):
        submitted(plan)
    assert aws.requests() == []
    theirs = launcher.plan(launcher.load("job.yaml", sets=["bucket_owners.mine=210987654321"]))
    assert "BucketOwner" not in json.dumps(theirs.request)
    submitted(theirs)
    assert aws.requests() == [theirs.request]


@pytest.mark.parametrize("kind", FAULTS)
def test_any_fault_at_any_call_leaves_one_job(aws: StandIn, plan: launcher.Plan, kind: str) -> None:
    for number, call in enumerate(CALLS, start=1):
        name = f"digits-{number}"
        plan = launcher.plan(launcher.load("job.yaml", sets=[f"code.s3_uri=s3://mine/{number}/"]), name=name)
        before = aws.requests()
        aws.clear_calls()
        aws.fault(kind, nth=number)
        assert submitted(plan).endswith(f":training-job/{name}"), call
        assert aws.requests() == [*before, plan.request], call
        is_harmless = kind == "500-after" and number == 1  # an effect that is a refusal is the answer
        called = [f"{each['service']}:{each['operation']}" for each in aws.calls()]
        assert (called != CALLS) is not is_harmless, f"no fault at {call}"
        assert stored(aws, plan) == sent(plan), call


@pytest.mark.parametrize("lost", ["reset-after", "500-after"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ResourceLimitExceeded", "The account-level service limit 'ml.m5.large for training job usage' is 1"),
        ("AccessDeniedException", "is not authorized to perform: sagemaker:CreateTrainingJob"),
        ("ValidationException", "No S3 objects found"),
        ("ThrottlingException", "Rate exceeded"),
        ("ResourceInUse", "exists"),
    ],
)
def test_job_whose_answer_was_lost_is_found_whatever_a_retry_returned(
    aws: StandIn, plan: launcher.Plan, lost: str, code: str, message: str
) -> None:
    """botocore retries inside one call, so the lost answer shows only in the number of attempts."""
    aws.fault(lost, "sagemaker:CreateTrainingJob")
    aws.refuse("sagemaker:CreateTrainingJob", code, message, nth=2, count=-1)
    job = submit(plan, _account(os.environ["AWS_ENDPOINT_URL"]), Console())
    assert (job.arn.endswith(":training-job/digits-1"), job.was_found) == (True, False)
    assert aws.requests() == [plan.request]


def test_refusal_of_a_retry_is_reported_if_no_job_exists(aws: StandIn, plan: launcher.Plan) -> None:
    aws.fault("reset", "sagemaker:CreateTrainingJob")
    aws.refuse("sagemaker:CreateTrainingJob", "ResourceLimitExceeded", "the service limit is 0", nth=2, count=-1)
    with pytest.raises(AccountError, match=r"the service limit is 0.*Service Quotas"):
        submitted(plan)
    assert [call["operation"] for call in aws.calls("TrainingJob")][-1] == "DescribeTrainingJob"


def test_lost_answer_and_expired_credentials_report_unknown_job(aws: StandIn, plan: launcher.Plan) -> None:
    aws.fault("reset-after", "sagemaker:CreateTrainingJob")
    aws.fault("expired", "sagemaker:*", nth=3, count=-1)
    with pytest.raises(RefusedError, match=r"whether the job exists is unknown.*launch status digits-1"):
        submit(plan, Account(region="us-east-1"), Console())


def test_one_of_two_identical_submissions_reports_found_job(aws: StandIn, plan: launcher.Plan) -> None:
    """The other one takes the name between this one's look-up and its CreateTrainingJob."""
    aws.client("sagemaker").create_training_job(**plan.request)
    aws.refuse("sagemaker:DescribeTrainingJob", "ValidationException", "Requested resource not found.", count=2)
    done = launch("job.yaml", "--no-check", "--json")
    assert (done.returncode, json.loads(done.stdout)["Created"]) == (0, False), done.stderr
    assert "found     digits-1 in us-east-1: another submission of the same request created it" in done.stderr
    assert "created   digits-1" not in done.stderr
    assert aws.requests() == [plan.request]
    done = launch("job.yaml", "--no-check", "--json", "--name", "digits-2")
    assert json.loads(done.stdout)["Created"] is True
    assert "created   digits-2" in done.stderr


@pytest.mark.parametrize("kind", ["reset", "500", "throttle", "html"])
def test_lasting_fault_creates_no_job_and_is_reported(aws: StandIn, plan: launcher.Plan, kind: str) -> None:
    aws.fault(kind, "sagemaker:CreateTrainingJob", count=-1)
    with pytest.raises(RefusedError, match="no job digits-1 was created"):
        submitted(plan)
    assert aws.requests() == []


def test_unknown_existence_of_job_is_reported(aws: StandIn, plan: launcher.Plan) -> None:
    aws.fault("reset-after", "sagemaker:CreateTrainingJob", count=-1)
    aws.fault("500", "sagemaker:DescribeTrainingJob", nth=2, count=-1)
    with pytest.raises(RefusedError, match=r"whether the job exists is unknown.*launch status digits-1`"):
        submitted(plan)


def test_existing_job_of_same_name_is_an_error(aws: StandIn, plan: launcher.Plan) -> None:
    submitted(plan)
    with pytest.raises(AccountError, match=r"job\.yaml:1:1: training_job_name: .*exists already.*--name"):
        submitted(plan)
    assert len(aws.requests()) == 1


@pytest.mark.parametrize("command", ["submit", "check"])
def test_name_is_free_again_after_the_printed_command_has_deleted_its_job(
    aws: StandIn, plan: launcher.Plan, command: str
) -> None:
    def message() -> str:
        if command == "check":
            done = launch("job.yaml", "--check", "--full", "--json")  # a busy machine may need more than 5 s
            return str(
                next(each["message"] for each in json.loads(done.stdout)["problems"] if each["code"] == "name-taken")
            )
        with pytest.raises(AccountError) as caught:
            submitted(plan)
        return str(caught.value)

    submitted(plan)
    assert "exists already since" in message()
    assert "delete-training-job" not in message()  # AWS refuses it before the job has ended
    aws.job("digits-1", "Failed", describe={"WarmPoolStatus": {"Status": "Available"}})
    assert "delete-training-job" not in message()  # and while the job keeps instances
    aws.job("digits-1", describe={"WarmPoolStatus": {"Status": "Terminated"}})
    printed = re.search(r"`aws sagemaker delete-training-job --training-job-name (\S+) --region (\S+)`", message())
    assert printed and printed.groups() == ("digits-1", "us-east-1")
    aws.client("sagemaker").delete_training_job(TrainingJobName=printed[1])
    submitted(plan)


def test_different_job_created_meanwhile_is_an_error(aws: StandIn, plan: launcher.Plan) -> None:
    other = {**plan.request, "HyperParameters": {"epochs": "6"}}
    aws.client("sagemaker").create_training_job(**other)
    aws.refuse("sagemaker:DescribeTrainingJob", "ValidationException", "Could not find training job 'arn'")  # moto's
    with pytest.raises(AccountError, match="exists already"):
        submitted(plan)
    assert aws.requests() == [other]


def test_submission_works_without_permission_to_describe(aws: StandIn, plan: launcher.Plan) -> None:
    aws.deny("sagemaker:DescribeTrainingJob")
    submitted(plan)
    assert len(aws.requests()) == 1


@pytest.mark.parametrize(
    ("code", "message", "place", "remedy"),
    [
        # Each as public reports of CreateTrainingJob have it.
        (
            "ResourceLimitExceeded",
            "The account-level service limit 'ml.m5.large for training job usage' is 0 Instances",
            "job.yaml:8:19: resource_config.instance_type",
            "Service Quotas",
        ),
        (
            "ValidationException",
            "Could not assume role arn:aws:iam::123456789012:role/trainer. Please ensure that the role exists",
            "job.yaml:3:1: role_arn",
            "trust policy",
        ),
        (
            "ValidationException",
            'No S3 objects found under S3 URL "s3://mine/train/" given in input data source.',
            "job.yaml:12:3: channels.train.s3_uri",
            "upload the data",
        ),
        (
            "ValidationException",
            "1 validation error detected: Value '10' at 'resourceConfig.volumeSizeInGB' failed to satisfy constraint",
            "job.yaml:8:66: resource_config.volume_size_in_gb",
            "",
        ),
        (
            "ValidationException",
            "1 validation error detected: Value 'hidden-value' at 'environment' failed to satisfy constraint",
            "job.yaml:7:1: environment",
            "${TOKEN:-hidden-value}",
        ),
        (
            "AccessDeniedException",
            "User: arn:aws:iam::123456789012:user/me is not authorized to perform: iam:PassRole on resource:"
            " arn:aws:iam::123456789012:role/trainer because no identity-based policy allows the iam:PassRole action",
            "job.yaml:3:1: role_arn",
            "ask the account's administrator to allow you iam:PassRole on this role",
        ),
    ],
)
def test_refusal_is_reported_at_line_that_caused_it(
    aws: StandIn, plan: launcher.Plan, code: str, message: str, place: str, remedy: str
) -> None:
    aws.refuse("sagemaker:CreateTrainingJob", code, message)
    with pytest.raises(AccountError) as caught:
        submitted(plan)
    assert str(caught.value).startswith(f"{place}: ")
    assert remedy in str(caught.value)
    assert caught.value.exit_code == 3
    assert aws.requests() == []


def test_denial_by_an_organization_names_its_policy_and_no_channel(
    aws: StandIn, submittable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's name in the ARN begins with the name of the channel `train`."""
    policy = "arn:aws:organizations::210987654321:policy/o-abc/service_control_policy/p-12345678"
    message = (
        "User: arn:aws:sts::123456789012:assumed-role/trainer/me is not authorized to perform: sagemaker:CreateTrainingJob on"
        " resource: arn:aws:sagemaker:us-east-1:123456789012:training-job/train-1 with an explicit deny in a service control"
        f" policy: {policy}"
    )
    aws.refuse("sagemaker:CreateTrainingJob", "AccessDeniedException", message)
    with pytest.raises(AccountError) as caught:
        submitted(launcher.plan("job.yaml", name="train-1"))
    (problem,) = caught.value.problems
    assert (problem.path, problem.location) == ((), None)
    assert problem.message.startswith("AWS refused: sagemaker:CreateTrainingJob: User: ")
    assert problem.message.endswith(
        f"{policy} [AccessDeniedException]; ask the organization's administrator, or change what the policy forbids, such as"
        " the region or the instance type"
    )


def test_unwritable_bucket_is_refused(aws: StandIn, plan: launcher.Plan) -> None:
    aws.deny("s3:PutObject")
    with pytest.raises(LaunchError, match=r"the code cannot be uploaded to bucket mine.*code\.s3_uri"):
        submitted(plan)
    assert aws.requests() == []


def test_command_submits_and_prints_name(aws: StandIn, plan: launcher.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a-real-secret")
    done = launch("job.yaml", "--no-check")
    assert (done.returncode, done.stdout) == (0, "digits-1\n")
    assert "launch logs digits-1 --follow" in done.stderr
    assert aws.requests()[0]["Environment"] == {"TOKEN": "a-real-secret"}
    assert "a-real-secret" not in done.stdout + done.stderr
    done = launch("job.yaml", "--no-check", "--name", "digits-2", "--json")
    assert json.loads(done.stdout)["TrainingJobName"] == "digits-2"
    done = launch("job.yaml", "--no-check")
    assert (done.returncode, done.stdout) == (3, "")
    assert "exists already" in done.stderr
    done = launch("job.yaml", "--no-check", "--json")
    assert json.loads(done.stdout)["problems"][0]["code"] == "name-taken"
    done = launch("job.yaml", "--no-check", "--name", "digits-2", "--json")
    assert json.loads(done.stdout)["problems"][0]["file"] == "--name"


@pytest.mark.parametrize("arguments", [["job.yaml", "--set", "region=null"], ["list"]])
@pytest.mark.parametrize(
    ("missing", "remedy"), [("AWS_ACCESS_KEY_ID", "set AWS_PROFILE"), ("AWS_REGION", "set AWS_REGION")]
)
def test_missing_credentials_are_one_line_with_a_remedy_for_every_command(
    plan: launcher.Plan, monkeypatch: pytest.MonkeyPatch, arguments: list[str], missing: str, remedy: str
) -> None:
    for name in (missing, "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    done = launch(*arguments)
    assert done.returncode == 3, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert remedy in done.stderr
    assert "--region" not in done.stderr
