"""The job that the tests of following and of `launch logs` create."""

from __future__ import annotations

from typing import Any

from aws_stand_in import StandIn

METRICS = [{"Name": "loss", "Regex": r"loss=([0-9.]+)"}]


def job(aws: StandIn, hosts: int = 1, **more: Any) -> None:
    """Create the job cats-1; `more` are members of its request."""
    request = {
        "TrainingJobName": "cats-1",
        "RoleArn": "arn:aws:iam::123456789012:role/trainer",
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": "image", "MetricDefinitions": METRICS},
        "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": hosts, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
        **more,
    }
    aws.client("sagemaker").create_training_job(**request)
