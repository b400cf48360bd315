"""What tests of AWS's answers ask with: clients that never try again, a refusal as a pair, and a small request for a job."""

from __future__ import annotations

import functools
from typing import Any

from botocore.exceptions import ClientError

from aws_stand_in.running import REGION, StandIn


def once(aws: StandIn, service: str) -> Any:
    """A client that never tries again, to see each answer. It is the same one for all tests of a process."""
    return _client(aws.endpoint, service)


@functools.cache
def _client(endpoint: str, service: str) -> Any:
    import boto3
    from botocore.config import Config

    make: Any = boto3.client
    keys = {"aws_access_key_id": "stand-in-key-id", "aws_secret_access_key": "stand-in-secret"}
    config = Config(retries={"total_max_attempts": 1}, read_timeout=20)
    return make(service, endpoint_url=endpoint, region_name=REGION, config=config, **keys)


def refused(what: Any, **parameters: Any) -> tuple[str, int]:
    """The error's code and HTTP's status. Raises AssertionError where the call is not refused."""
    try:
        what(**parameters)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError("the call was not refused")


def a_job(name: str = "cats-1", **more: Any) -> dict[str, Any]:
    """A request for a training job with little in it, and `more`."""
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/trainer",
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": "image"},
        "OutputDataConfig": {"S3OutputPath": "s3://data/out/"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        **more,
    }
