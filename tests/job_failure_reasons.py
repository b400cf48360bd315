"""A failed job, and FailureReasons of AWS, each with the expected cause."""

from __future__ import annotations

JOB = {
    "TrainingJobStatus": "Failed",
    "SecondaryStatus": "Failed",
    "RoleArn": "arn:aws:iam::123456789012:role/trainer",
    "AlgorithmSpecification": {"TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/cats:1"},
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
    "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
}

# (code, AWS's FailureReason, what the cause must name)
REASONS: list[tuple[str, str, str]] = [
    ("no-space", "ClientError: Data download failed:Insufficient disk space", "30 GB"),
    (
        "out-of-memory",
        "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an instance.",
        "memory",
    ),
    (
        "out-of-memory",
        "ClientError: Artifact upload failed:ClientError: Out of Memory. Please use a larger instance",
        "",
    ),
    ("out-of-memory", "AlgorithmError: , exit code: 137", "killed"),
    ("out-of-memory", 'AlgorithmError: ExecuteUserScriptError:\nExitCode -9\nErrorMessage ""\nexit code: -9', ""),
    (
        "instance-limit",
        "ResourceLimitExceeded: The account-level service limit 'ml.p2.xlarge for training job usage' is 0 Instances, with current"
        " utilization of 0 Instances and a request delta of 1 Instances.",
        "ml.p2.xlarge for training job usage",
    ),
    (
        "capacity",
        "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type.",
        "ml.g5.xlarge",
    ),
    (
        "kms-denied",
        "ClientError: Data download failed:Unable to download object s3://data/a (AccessDenied: User: arn:aws:sts::1:assumed-role/"
        "trainer/SageMaker is not authorized to perform: kms:Decrypt on resource: arn:aws:kms:us-east-1:1:key/k because ...)",
        "KMS",
    ),
    (
        "fast-file-prefix",
        "ClientError: Data download failed:Failed to download data. For FastFile mode, partial S3 prefix is not supported. S3"
        " prefix has to end with a full file or folder. Add a trailing '/' to the S3 prefix if it ends with a folder name that is"
        " also a prefix for other folders. Current S3 prefix: [penguins/preprocessing/train], found",
        "penguins/preprocessing/train",
    ),
    (
        "double-slash",
        "ClientError: Data download failed:Failed to download data. S3 key: s3://data/shared//code/requirements.txt has an illegal"
        " char sub-sequence '//' in it",
        "s3://data/shared//code/requirements.txt",
    ),
    (
        "no-route-to-s3",
        "ClientError: Data download failed:Please ensure that the subnet's route table has a route to an S3 VPC endpoint or a NAT"
        " device, and both the security groups and the subnet's network ACL allow outbound traffic to S3.",
        "subnets",
    ),
    (
        "mount-timeout",
        "ClientError: Unable to mount file system: fs-0337a79e, directory path: /efs/mtk. File system connection timed out. Please"
        " ensure that mount target IP address of file system is reachable and the security groups you associate with file system"
        " must allow inbound access on NFS port.",
        "fs-0337a79e",
    ),
    (
        "mount-path",
        "ClientError: Unable to mount file system: fs-0337a79e, directory path: /fsx/train. Not found.",
        "/fsx/train",
    ),
    (
        "no-objects",
        'ClientError: No S3 objects found under S3 URL "s3://data/train" given in input data source. Please ensure that the bucket'
        " exists in the selected region (us-west-2), that objects exist under that S3 prefix",
        "s3_uri",
    ),
    ("no-objects", "ClientError: Data download failed:S3 key: s3://data/train matched no files on s3", "s3_uri"),
    ("bucket-elsewhere", "ClientError: Data download failed:PermanentRedirect (301): Moved Permanently", "region"),
    (
        "no-bucket",
        "ClientError: Data download failed:NoSuchBucket (404): The specified bucket does not exist",
        "bucket",
    ),
    (
        "upload-denied",
        "ClientError: Artifact upload failed:Error 7: AccessDenied (403): Access Denied",
        "s3://data/out",
    ),
    (
        "access-denied",
        "ClientError: Data download failed:Unable to download object s3://raw/cats/1.csv (AccessDenied: Access Denied)",
        "s3://raw/cats/1.csv",
    ),
    (
        "access-denied",
        "ClientError: Data download failed:failed to download data. 403 Forbidden (403): Forbidden",
        "role/trainer",
    ),
    (
        "image-not-found",
        "ClientError: Cannot pull algorithm container. Either the image does not exist or its permissions are incorrect.",
        "cats:1",
    ),
    ("container-start", "AlgorithmError: , exit code: 127", "command"),
    *(
        ("program-not-found", f"AlgorithmError: {reason}, exit code: {code}", "acclerate")
        for reason, code in (
            ("acclerate launch ended with exit code 127\nsh: line 1: acclerate: command not found", 127),
            ("./run.sh ended with exit code 126\n./run.sh: line 3: acclerate: Permission denied", 126),
            ("acclerate cannot be started: No such file or directory", 1),
        )
    ),
    ("crashed", "AlgorithmError: Exit Code: 139", "segmentation"),
    ("terminated", "AlgorithmError: , exit code: 143", "SIGTERM"),
    ("internal-error", "InternalServerError: We encountered an internal error. Please try again.", "AWS"),
    (
        "pipe-stalled",
        "InternalServerError: We encountered an internal error - Platform Error: SageMaker pipe channel timed out",
        "",
    ),
    ("requirements", 'AlgorithmError: InstallRequirementsError:\nExitCode 1\nErrorMessage ""', "requirements"),
    (
        "missing-module",
        "AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage \"ModuleNotFoundError: No module named 'timm'\"\nCommand"
        ' "/opt/conda/bin/python3.11 train.py"',
        "timm",
    ),
    ("script-failed", "AlgorithmError: , exit code: 1", "exit code 1"),
    (
        "script-failed",
        'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "ValueError: Target size (torch.Size([4])) must be the'
        ' same as input size (torch.Size([4, 1]))"\nCommand "/opt/conda/bin/python3.11 train.py", exit code: 1',
        "exit code 1: ValueError: Target size (torch.Size([4])) must be the same as input size (torch.Size([4, 1]))",
    ),
    (
        "script-failed",
        'AlgorithmError: framework error: \nTraceback (most recent call last):\n  File "train.py", line 1, in <module>\n'
        "xgboost.core.XGBoostError: [12:00:00] label must be in [0, num_class).\n, exit code: 1",
        "xgboost.core.XGBoostError: [12:00:00] label must be in [0, num_class).",
    ),
    (
        "script-failed",
        'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "WARNING: CUDA out of memory, halving the batch size\n'
        'KeyError: \'labels\'"\nCommand "python train.py"',
        "KeyError: 'labels'",
    ),
    (
        "script-failed",
        "AlgorithmError: Exception during training: XGBoostError: bad label",
        "failed: XGBoostError: bad label",
    ),
    ("script-failed", "ClientError: XGBoostError: bad label", "XGBoostError: bad label"),
    ("out-of-memory", 'AlgorithmError: ErrorMessage "ValueError: retried"\n, exit code: 137', "killed"),
    (
        "role-not-assumed",
        "ClientError: SageMaker was unable to assume the role 'arn:aws:iam::123456789012:role/SageMakerRole'",
        "assume arn:aws:iam::123456789012:role/SageMakerRole",
    ),
    (
        "role-not-assumed",
        "ClientError: TrainingHostAgent Initialization failed:InvalidInputException: SageMaker is unable to perform:"
        " sts:AssumeRole on the role. Check if you have a trust relationship",
        "role/trainer",
    ),
    (
        "no-training-data",
        "ClientError: No training data processed. Either the training channel is empty or the mini-batch size is too high.",
        "training channel",
    ),
    (
        "algorithm-configuration",
        "ClientError: Unable to initialize the algorithm. Failed to validate input data configuration. (caused by"
        " ValidationError)\n\nCaused by: 'train' is a required property",
        "'train' is a required property",
    ),
    (
        "hyperparameter-invalid",
        "ClientError: Invalid value for hyperparameter k: expected a number",
        "hyperparameter k or",
    ),
    (
        "hyperparameter-invalid",
        "AlgorithmError: sagemaker_algorithm_toolkit.exceptions.UserError: Hyperparameter max_depth: value 'x' is not an int",
        "hyperparameter max_depth or",
    ),
    (
        "mount-denied",
        "ClientError: Unable to mount file system: fs-0337a79e, directory path: /data. Access denied by server.",
        "fs-0337a79e refuses",
    ),
]
