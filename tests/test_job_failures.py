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
        "act as arn:aws:iam::123456789012:role/SageMakerRole",
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
        "hyperparameter k as",
    ),
    (
        "hyperparameter-invalid",
        "AlgorithmError: sagemaker_algorithm_toolkit.exceptions.UserError: Hyperparameter max_depth: value 'x' is not an int",
        "hyperparameter max_depth as",
    ),
    (
        "mount-denied",
        "ClientError: Unable to mount file system: fs-0337a79e, directory path: /data. Access denied by server.",
        "fs-0337a79e refuses",
    ),
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
        "out-of-memory-gpu",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n\nOOM when allocating tensor with"
        " shape[64,112] and type float on /job:localhost/replica:0/task:0/device:GPU:0",
        "GPU",
    ),
    (
        "out-of-memory-gpu",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
        "GPU",
    ),
    (
        "gated-model",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: 1)\n\nThe above exception was the direct cause of"
        " the following exception:\n\nTraceback (most recent call last):\nOSError: You are trying to access a gated repo.\n"
        "Make sure to have access to it at https://huggingface.co/meta-llama/Llama-2-7b-hf.",
        "Hugging Face",
    ),
    (
        "gated-model",  # by what it was raised from
        "huggingface_hub.errors.GatedRepoError: 403 Client Error.\n\nThe above exception was the direct cause of the following"
        " exception:\n\nTraceback (most recent call last):\nRuntimeError: cannot load the model",
        "Hugging Face",
    ),
    ("missing-module", "/opt/conda/bin/python3.11: No module named train", "module train,"),
    ("missing-module", "python: No module named train", "module train,"),
    ("container-start", "[FATAL tini (7)] exec train failed: No such file or directory", "executed: train"),
    (
        "efa-locked-memory",  # though a warning, and though an exception stands below
        "algo-1:48:60 [0] register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: 12,"
        " Error: Cannot allocate memory\nTraceback (most recent call last):\ntorch.distributed.DistBackendError: NCCL error in:"
        " ProcessGroupNCCL.cpp:1970, unhandled system error",
        "ulimit -l",
    ),
    ("out-of-memory", "  traceback : Signal 9 (SIGKILL) received by PID 58", "memory"),
    (
        "out-of-memory",  # the echo on other ranks stands below
        "  traceback : Signal 9 (SIGKILL) received by PID 58\n[rank1]: torch.distributed.DistBackendError: NCCL error: peer gone",
        "memory",
    ),
    ("nccl", "algo-1:48:60 [0] NCCL WARN Call to connect returned Connection timed out", "perhaps the hosts"),
    # The last exception of the script, whatever stands in other lines.
    (
        "script-failed",
        "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: bad label 7",
        "1: ValueError: bad",
    ),
    ("script-failed", "WARNING: CUDA out of memory, halving the batch size\nKeyError: 'labels'", "KeyError: 'labels'"),
    ("script-failed", "CUDA out of memory, halving the batch size\nKeyError: 'labels'", "KeyError: 'labels'"),
    (
        "script-failed",
        "Temporary failure in name resolution, trying again\nepoch 2\nIndexError: list index out of range",
        "IndexError: list index out of range",
    ),
    ("script-failed", "will send SIGKILL to workers that hang\nAssertionError", "AssertionError"),
    ("script-failed", "SIGKILL is caught\nAssertionError: shapes differ", "AssertionError: shapes differ"),
    (
        "script-failed",  # aws/deep-learning-containers#3964
        "algo-1:48:60 [0] get_platform_type:110 NCCL WARN NET/OFI Error opening file:"
        " /sys/devices/virtual/dmi/id/product_name\nValueError: bad label 7",
        "ValueError: bad label 7",
    ),
    (
        "script-failed",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\nValueError: bad label 7\n'
        "E1204 05:26:26.878000 17 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0\n"
        "Traceback (most recent call last):\n    raise ChildFailedError(\ntorch.distributed.elastic.multiprocessing.errors."
        "ChildFailedError: \n============\ntrain.py FAILED\nRoot Cause (first observed failure):\n  exitcode  : 1 (pid: 55)",
        "exit code 1: ValueError: bad label 7",
    ),
    (
        "script-failed",
        "KeyError: 'cached'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent"
        " call last):\nzipfile.BadZipFile: File is not a zip file",
        "zipfile.BadZipFile: File is not a zip file",
    ),
    (
        "no-network",
        "Traceback (most recent call last):\nsocket.gaierror: [Errno -3] Temporary failure in name resolution",
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
    assert found.code == code, found.cause
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


def test_a_benign_line_alone_is_no_cause() -> None:
    benign = "algo-1:48 [0] NCCL WARN NET/OFI Error opening file: /sys/devices/virtual/dmi/id/product_name"
    found = likely_cause({**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, (benign, "epoch 1"))
    assert found is not None
    assert found.code == "script-failed"
    assert "said nothing of why" in found.cause


def test_one_host_is_not_told_to_open_its_security_groups() -> None:
    one = {**JOB, "FailureReason": "AlgorithmError: , exit code: 1", "ResourceConfig": {"InstanceCount": 1}}
    found = likely_cause(one, ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251",))
    assert found is not None
    assert found.code == "nccl"
    assert "the hosts" not in found.cause
    assert "security groups" not in found.remedy


def test_a_job_that_was_told_to_end_says_what_ended_it_before() -> None:
    job = {**JOB, "FailureReason": "AlgorithmError: , exit code: 143"}
    found = likely_cause(job, ("ValueError: bad label 7", "SIGTERM"))
    assert found is not None
    assert (found.code, "ValueError: bad label 7" in found.cause) == ("script-failed", True)


def test_what_the_reason_leaves_open_is_taken_from_the_lines() -> None:
    job = {**JOB, "FailureReason": "AlgorithmError: InstallRequirementsError:\nExitCode 1"}
    found = likely_cause(job, ("ERROR: No matching distribution found for torchh==9",))
    assert found is not None
    assert (found.code, "torchh==9" in found.cause) == ("requirements", True)
