"""Each cause in the tables is found in the words that AWS, Linux, torch and Python really use; and none where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.jobs.failures import CAUSES, likely_cause

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
]

# (code, the last lines, what the cause must name), under `AlgorithmError: , exit code: 1`
LINES: list[tuple[str, str, str]] = [
    (
        "out-of-memory-gpu",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 21.98 GiB",
        "GPU",
    ),
    (
        "out-of-memory-gpu",
        "xgboost.core.XGBoostError: Memory allocation error on worker 0: std::bad_alloc: out_of_memory: CUDA error at",
        "GPU",
    ),
    (
        "out-of-shared-memory",
        "RuntimeError: DataLoader worker (pid 256) is killed by signal: Bus error. It is possible that dataloader's workers are out"
        " of shared memory. Please try to raise your shared memory limit.",
        "/dev/shm",
    ),
    ("no-space", "OSError: [Errno 28] No space left on device: '/opt/ml/model/model.pt'", "disk"),
    ("out-of-memory", "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", "memory"),
    ("out-of-memory", "numpy: MemoryError\nMemoryError", "memory"),
    (
        "out-of-memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:83] DefaultCPUAllocator: can't allocate memory",
        "memory",
    ),
    (
        "access-denied",
        "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied",
        "GetObject",
    ),
    (
        "access-denied",
        "An error occurred (AccessDeniedException): User: arn:aws:sts::1:assumed-role/trainer/SageMaker is not authorized to"
        " perform: secretsmanager:GetSecretValue on resource: arn:aws:secretsmanager:us-east-1:1:secret:token because no policy",
        "secretsmanager:GetSecretValue on arn:aws:secretsmanager:us-east-1:1:secret:token",
    ),
    ("image-architecture", "/usr/bin/python3: exec format error", "processor"),
    ("requirements", "ERROR: No matching distribution found for torchh==9", "torchh==9"),
    ("missing-module", "ModuleNotFoundError: No module named 'webdataset'", "webdataset"),
    ("import-failed", "ImportError: cannot import name 'triu' from 'scipy.linalg'", "triu"),
    (
        "entry-point-missing",
        "python3: can't open file '/opt/ml/code/trian.py': [Errno 2] No such file or directory",
        "trian.py",
    ),
    ("wrong-arguments", "train.py: error: unrecognized arguments: --lerning-rate 0.1", "--lerning-rate"),
    (
        "data-missing",
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/training/cats.csv'",
        "/opt/ml/input/data/training/cats.csv",
    ),
    (
        "file-missing",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/cats.csv'",
        "/home/me/cats.csv",
    ),
    (
        "permission-denied",
        "PermissionError: [Errno 13] Permission denied: '/opt/ml/input/data/train/x'",
        "/opt/ml/input/data/train/x",
    ),
    (
        "permission-denied",
        "OSError: [Errno 30] Read-only file system: '/opt/ml/input/data/efs/x'",
        "/opt/ml/input/data/efs/x",
    ),
    (
        "collective-timeout",
        "[rank0]:[E321 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580,"
        " OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.",
        "rank",
    ),
    (
        "nccl",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled system error",
        "hosts",
    ),
    ("nccl", "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.1.7]:43187", "hosts"),
    (
        "no-gpu-driver",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "GPU",
    ),
    ("gpu-fault", "RuntimeError: CUDA error: device-side assert triggered", "GPU"),
    (
        "no-network",
        "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /bert (Caused by NameResolutionError",
        "network",
    ),
    (
        "script-failed",
        "Traceback (most recent call last):\nValueError: batch size must be positive",
        "ValueError: batch size",
    ),
]


@pytest.mark.parametrize(("code", "reason", "named"), REASONS)
def test_in_what_aws_says(code: str, reason: str, named: str) -> None:
    check(code, {**JOB, "FailureReason": reason}, (), named)


@pytest.mark.parametrize(("code", "lines", "named"), LINES)
def test_in_what_the_hosts_said_last(code: str, lines: str, named: str) -> None:
    told = ("epoch 3: loss 0.25", *lines.splitlines(), "ERROR failed")
    check(code, {**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, told, named)


@pytest.mark.parametrize(
    ("secondary", "named"), [("MaxRuntimeExceeded", "3600"), ("MaxWaitTimeExceeded", "7200"), ("Interrupted", "spot")]
)
def test_in_a_status(secondary: str, named: str) -> None:
    code = {"MaxRuntimeExceeded": "max-runtime", "MaxWaitTimeExceeded": "max-wait-time"}.get(
        secondary, "spot-interruption"
    )
    check(code, {**JOB, "TrainingJobStatus": "Stopped", "SecondaryStatus": secondary}, (), named)


def check(code: str, description: dict[str, Any], lines: tuple[str, ...], named: str) -> None:
    found = likely_cause(description, lines)
    assert found is not None
    assert found.code == code
    assert named in found.cause
    assert found.remedy
    assert "{" not in found.cause + found.remedy


def test_every_row_has_an_example() -> None:
    statuses = {"max-runtime", "max-wait-time", "spot-interruption"}
    assert {row.code for row in CAUSES} <= {code for code, *_ in REASONS} | {code for code, *_ in LINES} | statuses


def test_sentences_read_well_without_facts() -> None:
    for row in CAUSES:
        bare = likely_cause({"TrainingJobStatus": "Failed", "FailureReason": ""}, ())
        assert bare is None
        assert "  " not in row.cause + row.remedy
        assert not row.remedy.endswith(".")


@pytest.mark.parametrize("status", ["Completed", "InProgress", "Stopped"])
def test_a_job_that_did_not_fail_has_no_cause(status: str) -> None:
    lines = ("ModuleNotFoundError: No module named 'wandb'", "CUDA out of memory")
    assert likely_cause({**JOB, "TrainingJobStatus": status, "SecondaryStatus": status}, lines) is None


def test_nothing_is_guessed_where_nothing_is_said() -> None:
    assert likely_cause({**JOB, "FailureReason": "ClientError: something new"}, ("epoch 1", "epoch 2")) is None


def test_what_aws_names_goes_before_what_stands_in_the_lines() -> None:
    job = {**JOB, "FailureReason": "ClientError: Please use an instance type with more memory, or reduce the size"}
    found = likely_cause(job, ("ModuleNotFoundError: No module named 'wandb'",))
    assert found is not None
    assert found.code == "out-of-memory"


def test_the_first_trouble_is_named_rather_than_its_echo_on_other_hosts() -> None:
    lines = (
        "NCCL error: remote process exited",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
        "NCCL WARN",
    )
    found = likely_cause({**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, lines)
    assert found is not None
    assert found.code == "out-of-memory-gpu"
