"""Causes of failures that show in messages of AWS, its built-in algorithms and the machine, each with a remedy.

The first matching row wins, so specific rows come before general ones. A comment names a pattern's source: `sdk#N` is an issue
of aws/sagemaker-python-sdk, `examples#N` one of aws/amazon-sagemaker-examples, `docs` the developer guide.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple


class Row(NamedTuple):
    """One cause, by its code. `{name}` in its sentences is a group of the pattern or a fact of the job (`reasons`)."""

    pattern: str  # ignores case; ^ and $ match at each line
    cause: str
    remedy: str
    in_lines: bool = True  # if not, only AWS's own messages are searched
    in_warnings: bool = False  # whether a warning with this text is as certain as an error
    input_mode: str | None = None  # only if the {channel} that the pattern finds has this mode

    def search(self, text: str) -> re.Match[str] | None:
        return re.search(self.pattern, text, re.IGNORECASE | re.MULTILINE)


of_aws = partial(Row, in_lines=False)  # a cause that only messages of AWS itself show

AWS_CAUSES: dict[str, Row] = {
    # Secondary statuses (docs: DescribeTrainingJob).
    "max-runtime": of_aws(
        r"MaxRuntimeExceeded",
        "the time limit was reached: max_runtime_in_seconds is {max_runtime}",
        "raise stopping_condition.max_runtime_in_seconds; with checkpoint_config, the next run resumes from the last checkpoint",
    ),
    "max-wait-time": of_aws(
        r"MaxWaitTimeExceeded",
        "waiting for spot capacity and training took longer than max_wait_time_in_seconds ({max_wait}) allows",
        "raise stopping_condition.max_wait_time_in_seconds, use another instance type or region, or train without spot",
    ),
    "spot-interruption": of_aws(
        r"^Interrupted\b|spot.{0,40}interrupt",
        "AWS took the spot instances back",
        "write checkpoints (checkpoint_config) so that the job can resume, or train without enable_managed_spot_training",
    ),
    # Memory and disk.
    "out-of-memory-gpu": Row(
        # torch; XGBoost on CUDA: rapidsai/deployment#523
        r"CUDA out of memory|torch(\.cuda)?\.OutOfMemoryError|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|out_of_memory: CUDA",
        "the GPU's memory was full",
        "use a smaller batch size, gradient accumulation, mixed precision or checkpointing of activations, or an instance type"
        " with more memory per GPU than {instance_type}",
    ),
    "efa-locked-memory": Row(
        # aws-ofi-nccl#141, #44; awslabs/awsome-distributed-ai#647
        r"NET/OFI.{0,200}Cannot allocate memory|Libfabric error: \(-12\)|Unable to register memory.{0,120}Cannot allocate",
        "EFA cannot lock as much memory as it needs (the limit of ulimit -l); the host's memory was not full",
        "print `ulimit -l` in the job: it must be unlimited; use an image with a newer EFA installer and aws-ofi-nccl, or set"
        " FI_PROVIDER=tcp in environment to train without EFA",
        in_warnings=True,
    ),
    "out-of-shared-memory": Row(
        # sdk#937, sdk#5592; pytorch#5040
        r"out of shared memory|insufficient shared memory|killed by signal: Bus error|unable to (write|open).{0,20}/torch_",
        "the DataLoader's workers filled /dev/shm, through which they send batches",
        "use fewer workers or a smaller prefetch_factor, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    "no-space": Row(
        # sdk#128: `ClientError: Data download failed:Insufficient disk space`
        r"No space left on device|Insufficient disk space|\[Errno 28\]|Disk quota exceeded",
        "a disk was full; the training volume has {volume} GB",
        "raise resource_config.volume_size_in_gb (types with NVMe have a fixed disk: use a larger type), read the channel in"
        " FastFile mode, and write to /opt/ml/output/data or /tmp rather than to /",
    ),
    "out-of-memory": Row(
        # `ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an instance.`
        # and `ClientError: Artifact upload failed:ClientError: Out of Memory. Please use a larger instance`:
        # DIAGNijmegen/rse-grand-challenge; 137 is 128 + SIGKILL; databrickslabs/dolly#89: -9
        r"instance type with more memory|Out of Memory\. Please use a larger instance|exit(ed with)? ?code:?=? ?(137|-9)\b"
        r"|\(SIGKILL\) received|Signals\.SIGKILL|return code = -9|exitcode\s*:\s*-9\b"
        r"|Out of memory: Kill|oom-kill|OOMKilled|^MemoryError|can't allocate memory|Cannot allocate memory"
        r"|exited unexpectedly.{0,80}Killed|line \d+: +\d+ Killed\b|\(pid \d+\) is killed by signal: Killed",
        "the host's memory was full, and Linux killed the training",
        "use an instance type with more memory than {instance_type} or fewer DataLoader workers, or stream the data instead of"
        " keeping it in memory",
    ),
    # Quotas and capacity.
    "instance-limit": of_aws(
        # examples#263
        r"account-level service limit '(?P<quota>[^']+)'|ResourceLimitExceeded(?!.*service limit)",
        "the account's quota for these instances is used up ({quota})",
        "ask for more in Service Quotas, wait for other jobs to end, or use another instance type",
    ),
    "capacity": of_aws(
        # DIAGNijmegen/rse-grand-challenge#2631; amazon-sagemaker-feedback#99
        r"CapacityError|Insufficient(Instance)?Capacity|Insufficient capacity|Unable to provision requested ML compute"
        r"|not enough capacity",
        "AWS had no capacity for {instance_type} at that time",
        "try again later, or use another instance type, more subnets (zones), another region, or a training plan",
    ),
    # Errors of SageMaker and its built-in algorithms.
    "role-not-assumed": of_aws(
        # sdk#35, sdk#43; astronomer/docs#1695
        r"unable to assume the role '?(?P<role>arn:[^'\s]+)|unable to perform: sts:AssumeRole|unable to assume the role"
        r"|Could not assume role (?P<role2>arn:[^'\s]+?)[.,]?(\s|$)",
        "SageMaker may not assume {role}",
        "check that role_arn is the role's whole ARN, with its path (/service-role/), and that its trust policy allows"
        " sts:AssumeRole to sagemaker.amazonaws.com; `launch job.yaml --check` checks it",
    ),
    "no-training-data": Row(
        r"No training data processed|No records? (were|was) (found|processed)",
        "the algorithm found no readable record in its training channel",
        "check that the channel's name is right, its content_type matches the files' format, files are not empty, and"
        " ShardedByS3Key assigns some to each host",
    ),
    "hyperparameter-invalid": Row(
        # sagemaker-xgboost-container: sagemaker_algorithm_toolkit/hyperparameter_validation.py
        r"(Invalid value for|Extraneous|Missing required) hyperparameter( found)?:? '?(?P<object>[\w.-]*\w)"
        r"|UserError: Hyperparameter (?P<object2>[\w.-]*\w): ",
        "the algorithm does not accept the hyperparameter {object} or its value",
        "compare the hyperparameters with the algorithm's page in the developer guide: names, types, ranges, required ones",
    ),
    "algorithm-configuration": of_aws(
        r"Unable to initialize the algorithm\.?\s*(?P<refusal>Failed to validate [^\n]{1,200}(\s*Caused by: [^\n]{1,200})?)?",
        "the algorithm does not accept the job's configuration: {refusal}",
        "compare the channels' names, content_type, s3_data_distribution_type, input_mode and the hyperparameters with the"
        " algorithm's page in the developer guide",
    ),
    # S3, KMS.
    "kms-denied": Row(
        # repost.aws/knowledge-center/sagemaker-s3-accessdenied-training
        r"perform: (?P<action>kms:\w+)( on resource: (?P<object>\S+))?|KMS.{0,60}(AccessDenied|not authorized|denied)"
        r"|(AccessDenied|denied).{0,80}\bkms\b|ciphertext refers to a .{0,30}key that does not exist",
        "{role} may not use the KMS key of encrypted data",
        "allow the role kms:Decrypt, kms:GenerateDataKey and kms:CreateGrant on the key, in its policy and in the key's policy",
    ),
    "fast-file-prefix": of_aws(
        r"partial S3 prefix is not supported(.|\n)*?Current S3 prefix: \[(?P<path>[^\]]*)\]|partial S3 prefix is not supported",
        "FastFile needs a whole folder or a whole key, but {path} is only the beginning of several keys",
        "end the channel's s3_uri with / (or read it in File mode)",
    ),
    "double-slash": of_aws(
        # aws-samples/generative-ai-on-amazon-sagemaker#242
        r"(?P<object>s3://\S+) has an illegal char sub-sequence '//'|illegal char sub-sequence",
        "the key of {object} contains //, which SageMaker cannot turn into a file name",
        "copy the objects to keys without //, and fix the program that writes them",
    ),
    "no-route-to-s3": of_aws(
        # awslabs: amazon-sagemaker-operator-for-k8s#22
        r"route to an S3 VPC endpoint|Unable to execute request to S3",
        "the job's subnets cannot reach S3",
        "add a gateway endpoint for S3 to the subnets' route tables (it is free), or a NAT gateway; allow outgoing traffic in the"
        " security groups",
    ),
    "mount-timeout": Row(
        # `ClientError: Unable to mount file system: fs-0337a79e, directory path: /efs/mtk. File system connection timed out. ...`
        r"Unable to mount file system: (?P<system>fs-\w+).{0,300}(timed out|reachable)",
        "{system} did not respond: the job's subnets cannot reach its mount target",
        "let the file system's security group accept the job's (vpc_config.security_group_ids): port 2049 for EFS, 988 and"
        " 1018-1023 for FSx; give a subnet in a zone with a mount target",
    ),
    "mount-denied": Row(
        r"Unable to mount file system: (?P<system>fs-\w+)[\s\S]{0,300}(access (was )?denied|permission denied|not authorized)"
        r"|mount\.nfs4?: access denied by server",
        "{system} refuses the job: its file system policy does not allow mounting",
        "let the file system's policy (aws efs describe-file-system-policy) allow elasticfilesystem:ClientMount, and ClientWrite"
        " for rw, through a mount target; a policy that requires IAM or TLS excludes the job",
    ),
    "mount-path": Row(
        # examples#2183; aws-fsx-csi-driver#437 for mount.lustre's own words
        r"Unable to mount file system: (?P<system>fs-\w+), directory path: (?P<path>\S+?)[.,]?(\s|$)"
        r"|Is '(?P<path2>[^']+)' the correct filesystem name|mount\.lustre:.{0,200}failed",
        "the directory {path} does not exist; for FSx for Lustre it must begin with the file system's mount name",
        "write directory_path as /<MountName>/... (aws fsx describe-file-systems shows MountName; it is fsx on SCRATCH_1 only);"
        " for EFS, a directory that exists",
    ),
    "no-objects": of_aws(
        # examples#2489; sdk: `S3 key: ... matched no files on s3`
        r"No S3 objects found under S3 URL \"(?P<object>[^\"]+)\"|S3 key: (?P<object2>\S+) matched no files|matched no files on s3"
        r"|no file found in path (?P<path>\S+)",  # boto3#1397
        "a channel's s3_uri had no objects",
        "check with `aws s3 ls` that the prefix is spelled right, and that {role} has s3:ListBucket on its bucket",
    ),
    "bucket-elsewhere": Row(
        r"PermanentRedirect|must be addressed using the specified endpoint|\(301\).{0,20}Moved|AuthorizationHeaderMalformed",
        "a bucket is in another region than the job",
        "copy the data to a bucket of the job's region, or run the job in the bucket's",
    ),
    "no-bucket": Row(
        r"NoSuchBucket",
        "a bucket of the job does not exist",
        "correct s3_uri, s3_output_path or checkpoint_config",
    ),
    "upload-denied": of_aws(
        # `ClientError: Artifact upload failed:Error 7: AccessDenied (403): Access Denied`
        r"Artifact upload failed:.{0,200}(AccessDenied|403|Forbidden)",
        "{role} may not write below {output}",
        "allow the role s3:PutObject (and s3:AbortMultipartUpload) there; check the bucket's policy and its KMS key, too",
    ),
    "access-denied": Row(
        # examples#4384; `failed to download data. 403 Forbidden (403): Forbidden`; botocore's own
        r"Unable to download object (?P<object>s3://\S+)\s+\(AccessDenied"
        r"|is not authorized to perform: (?P<action>[\w:*]+)( on resource: \"?(?P<object2>[^\s\"]+))?"
        r"|Data download failed(?!.*object s3://).{0,200}(AccessDenied|403|Forbidden)"
        r"|An error occurred \((AccessDenied\w*|403)\) when calling the (?P<action2>\w+) operation",
        "{role} was denied {action} on {object}",
        "allow the role s3:GetObject on the objects and s3:ListBucket on the bucket (or the action named); check the bucket's"
        " policy and its KMS key, too",
    ),
    # The image.
    "image-not-found": of_aws(
        # sdk#1968, sdk#57; examples#1476, examples#2534
        r"Cannot pull algorithm container|Cannot find the requested image|Cannot find repository: (?P<image2>\S+)"
        r"|CannotPullContainer|RepositoryDoesNotExist|manifest .{0,80}not found",
        "{image} does not exist, or may not be pulled",
        "check its account, region, name and tag, the role's ecr:BatchGetImage, ecr:GetDownloadUrlForLayer and"
        " ecr:GetAuthorizationToken, the repository's policy, and in a VPC the endpoints for ECR",
    ),
    "image-architecture": Row(
        r"exec format error",
        "the image was built for another processor architecture",
        "build it with `docker build --platform linux/amd64` (linux/arm64 for Graviton types)",
    ),
    "container-start": Row(
        # exit codes of shells and Docker: 127 not found, 126 not executable
        r"CannotStartContainerError|executable file not found in \$PATH|exit code: 12[67]\b"
        # sdk#4113
        r"|FATAL tini \(\d+\)\] exec (?P<command>.{1,80}?) failed"
        r"|exec:? \"(?P<command2>[^\"]{1,80})\": (stat|executable|permission)",
        "the container's command was not found, or cannot be executed: {command}",
        "check container_entrypoint, that the image has python3, and that scripts are executable and have Unix line endings; an"
        " image without an entrypoint needs `train` in PATH (pip install sagemaker-training), or code: in the spec",
    ),
}
