"""The stand-in for AWS, asked by boto3: that it answers as AWS's references say, since other tests lean on it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from aws_stand_in import StandIn

REQUEST: dict[str, Any] = {
    "TrainingJobName": "cats-1",
    "RoleArn": "arn:aws:iam::123456789012:role/trainer",
    "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": "image"},
    "OutputDataConfig": {"S3OutputPath": "s3://data/out/"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "HyperParameters": {"empty": ""},
    "Tags": [{"Key": "team", "Value": "vision"}],
}


def once(aws: StandIn, service: str) -> Any:
    """A client that never tries again, to see each answer."""
    import boto3

    return boto3.client(service, config=Config(retries={"total_max_attempts": 1}, read_timeout=5))


def refused(what: Any, **parameters: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        what(**parameters)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_jobs_life(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    arn = sagemaker.create_training_job(**REQUEST)["TrainingJobArn"]
    assert aws.requests() == [REQUEST]
    assert refused(sagemaker.create_training_job, **REQUEST) == ("ResourceInUse", 400)
    assert refused(sagemaker.describe_training_job, TrainingJobName="dogs") == ("ValidationException", 400)
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == REQUEST["Tags"]

    aws.advance(60)
    aws.job("cats-1", "Downloading")
    aws.advance(30)
    aws.job("cats-1", "Training", message="going on")
    aws.job("cats-1", "Uploading")
    aws.advance(10)
    aws.job("cats-1", "Completed", metrics={"loss": 0.5}, billable=33)
    job = sagemaker.describe_training_job(TrainingJobName="cats-1")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Completed", "Completed")
    assert job["HyperParameters"] == {"empty": ""}
    assert "Tags" not in job
    statuses = [transition["Status"] for transition in job["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert job["SecondaryStatusTransitions"][2]["StatusMessage"] == "going on"
    assert (job["TrainingTimeInSeconds"], job["BillableTimeInSeconds"]) == (40, 33)
    assert job["FinalMetricDataList"][0]["Value"] == 0.5
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == "s3://data/out/cats-1/output/model.tar.gz"
    with pytest.raises(ValueError, match="cannot become Training"):
        aws.job("cats-1", "Training")
    assert refused(sagemaker.stop_training_job, TrainingJobName="cats-1") == ("ValidationException", 400)
