"""Clients that never retry, a refusal as a pair, and a small job request, for tests of the stand-in's answers."""

from __future__ import annotations

import functools
from typing import Any

from botocore.exceptions import ClientError

from aws_stand_in.running import REGION, StandIn
from patience import PATIENCE


def once(aws: StandIn, service: str) -> Any:
    """Return a client that never retries, to see each answer. All tests of a process share it."""
    return _client(aws.endpoint, service)


@functools.cache
def _client(endpoint: str, service: str) -> Any:
    import boto3
    from botocore.config import Config

    make: Any = boto3.client
    keys = {"aws_access_key_id": "stand-in-key-id", "aws_secret_access_key": "stand-in-secret"}
    config = Config(retries={"total_max_attempts": 1}, read_timeout=PATIENCE)
    return make(service, endpoint_url=endpoint, region_name=REGION, config=config, **keys)


def refused(what: Any, **parameters: Any) -> tuple[str, int]:
    """Return the error's code and HTTP status. Raises AssertionError if the call is not refused."""
    try:
        what(**parameters)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError("the call was not refused")


def a_job(name: str = "cats-1", **more: Any) -> dict[str, Any]:
    """Return a minimal request for a training job, with the members of `more`."""
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/trainer",
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": "image"},
        "OutputDataConfig": {"S3OutputPath": "s3://data/out/"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        **more,
    }
