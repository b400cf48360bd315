"""One harmless call for each service of the stand-in for AWS."""

from typing import Any

ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "sagemaker": ("list_training_jobs", {}),
    "logs": ("describe_log_groups", {}),
    "iam": ("list_roles", {}),
    "sts": ("get_caller_identity", {}),
    "ec2": ("describe_regions", {}),
    "efs": ("describe_file_systems", {}),
    "fsx": ("describe_file_systems", {}),
    "kms": ("list_keys", {}),
    "ecr": ("describe_repositories", {}),
    "s3": ("list_buckets", {}),
    "service-quotas": ("list_service_quotas", {"ServiceCode": "sagemaker"}),
    "cloudtrail": ("lookup_events", {"LookupAttributes": [{"AttributeKey": "EventName", "AttributeValue": "x"}]}),
    "pricing": ("get_products", {"ServiceCode": "AmazonSageMaker"}),
}
