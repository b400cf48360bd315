"""Faults of the stand-in for AWS: each fails only the calls it is for, in the form of the service's protocol."""

from __future__ import annotations

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from aws_stand_in import StandIn
from aws_stand_in.asking import a_job, once, refused
from aws_stand_in_calls import ASKED
from patience import wait_for

# Each service's codes for throttling, failure, an expired token and a missing permission.
JSON = ["ThrottlingException", "InternalFailure", "ExpiredTokenException", "AccessDeniedException"]
QUERY = ["Throttling", "InternalFailure", "ExpiredToken", "AccessDenied"]
OTHERS = {
    "iam": QUERY,
    "sts": QUERY,
    "ec2": ["RequestLimitExceeded", "InternalError", "RequestExpired", "UnauthorizedOperation"],
    "s3": ["SlowDown", "InternalError", "ExpiredToken", "AccessDenied"],
    "efs": ["ThrottlingException", "InternalServerError", "ExpiredTokenException", "AccessDeniedException"],
}


@pytest.mark.parametrize("service", ASKED)
def test_each_protocol_writes_its_own_refusals(aws: StandIn, service: str) -> None:
    operation, parameters = ASKED[service]
    ask = getattr(once(aws, service), operation)
    codes = []
    for kind in ("throttle", "500", "expired", "denied"):
        aws.fault(kind, f"{service}:*", nth=2)
        ask(**parameters)
        code, status = refused(ask, **parameters)
        assert (status >= 500) == (kind == "500" or code in ("SlowDown", "RequestLimitExceeded"))
        assert aws.calls()[-1]["code"] == code
        codes.append(code)
        ask(**parameters)
    assert codes == OTHERS.get(service, JSON)


def test_head_with_expired_token_has_no_body(aws: StandIn) -> None:
    aws.fault("expired", "s3:HeadBucket")
    assert refused(once(aws, "s3").head_bucket, Bucket="data") == ("400", 400)


def test_new_keys_work_after_the_old_have_expired(aws: StandIn) -> None:
    aws.fault("expired", key_id=aws.environ["AWS_ACCESS_KEY_ID"], count=-1)
    for _ in range(2):
        assert refused(once(aws, "sts").get_caller_identity) == ("ExpiredToken", 403)
    boto3.client("sts", aws_access_key_id="new", aws_secret_access_key="new").get_caller_identity()


def test_faults_separate_effect_from_answer(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    for number, (kind, happens) in enumerate(
        [("reset", False), ("reset-after", True), ("500-after", True), ("throttle", False)]
    ):
        aws.fault(kind, "sagemaker:CreateTrainingJob")
        with pytest.raises((ConnectionClosedError, ClientError)):
            sagemaker.create_training_job(**a_job(f"cats-{number}"))
        assert (f"cats-{number}" in {request["TrainingJobName"] for request in aws.requests()}) == happens
    aws.fault("hang", "sagemaker:CreateTrainingJob", seconds=60)
    hasty = boto3.client("sagemaker", config=Config(read_timeout=0.3, retries={"total_max_attempts": 1}))
    with pytest.raises(ReadTimeoutError):
        hasty.create_training_job(**a_job())
    wait_for(lambda: aws.calls("CreateTrainingJob")[-1].get("outcome") == "hang")
    aws.clear_faults()
    assert "cats-1" in {request["TrainingJobName"] for request in aws.requests()}
    outcomes = [call["outcome"] for call in aws.calls("CreateTrainingJob")]
    assert outcomes == ["reset", "reset-after", "500-after", "throttle", "hang"]
    assert aws.writing_calls() == ["sagemaker:CreateTrainingJob"] * 5


def test_faults_match_only_their_calls(aws: StandIn) -> None:
    s3 = once(aws, "s3")
    aws.deny("s3:GetObject", containing="secret")
    aws.refuse("s3:PutObject", "KMS.DisabledException", "the key is disabled", count=2)
    s3.create_bucket(Bucket="data")
    for _ in range(2):
        assert refused(s3.put_object, Bucket="data", Key="a", Body=b"a") == ("KMS.DisabledException", 400)
    for key in ("a", "secret/a"):
        s3.put_object(Bucket="data", Key=key, Body=b"a")
    s3.get_object(Bucket="data", Key="a")["Body"].close()
    for _ in range(3):
        assert refused(s3.get_object, Bucket="data", Key="secret/a") == ("AccessDenied", 403)
    with pytest.raises(ValueError, match="is not one of"):
        aws.fault("thunder")


def test_calls_above_the_rate_are_throttled(aws: StandIn) -> None:
    aws.log("cats-1", ["a"])
    aws.limit("logs:*", 3)
    logs, codes = once(aws, "logs"), []
    for _ in range(6):
        try:
            logs.filter_log_events(logGroupName="/aws/sagemaker/TrainingJobs")
            codes.append("")
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    assert codes == ["", "", "", *["ThrottlingException"] * 3]
