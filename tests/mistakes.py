"""Mistakes that users make, as public issues and forums report them, for `test_mistakes.py`.

Each row is an overlay for the base of the rules' examples, in which `# <-` marks the line that the message has to name, then
the code, and a piece of the message.
"""

from __future__ import annotations

VPC = "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
EFS = VPC + "channels:\n  train:\n    source: EFS\n    directory_path: /data\n    file_system_id: "
AWS = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"
MINE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
SPOT = "enable_managed_spot_training: true\ncheckpoint_config: {s3_uri: s3://bucket/checkpoints/}\n"
XGBOOST = "image: 685385470294.dkr.ecr.eu-west-1.amazonaws.com/xgboost:1\n"
IMAGE = "region: us-east-1\nimage: {framework: pytorch, version: 2.5}\n"
MACHINE = "resource_config:\n  instance_type: ml.m5.large\n  instance_count: 1\n  volume_size_in_gb: 50\n"


def train(*keys: str) -> str:
    """Return a channel `train` with these keys."""
    return "channels:\n  train:\n" + "".join(f"    {key}\n" for key in keys)


ROWS: list[tuple[str, str, str]] = [
    # the job's name and role
    ("base_name: my_training_app  # <-", "aws-pattern", "hyphens in place of _"),
    (f"base_name: null\ntraining_job_name: {'long-' * 13}a  # <-", "aws-max", "at most 63"),
    ("role_arn: SageMakerRole  # <-", "aws-min", "such as arn:aws:iam::123456789012:role/SageMakerRole"),
    ("role_arn: AmazonSageMaker-ExecutionRole  # <-", "aws-pattern", ":role/AmazonSageMaker-ExecutionRole"),
    ("role_arn: arn:aws:iam::123456789012:user/me_role  # <-", "aws-pattern", "needs a role"),
    ("role_arn: arn:aws:iam::123456789012:root  # <-", "aws-pattern", "needs a role"),
    (
        "role_arn: arn:aws:sts::123456789012:assumed-role/Execution/SageMaker  # <-",
        "aws-pattern",
        "arn:aws:iam::123456789012:role/Execution",
    ),
    (
        "role_arn: arn:aws:iam::123456789012:role/arn:aws:iam::123456789012:role/mine  # <-",
        "aws-pattern",
        "write arn:aws:iam::123456789012:role/mine",
    ),
    ("role_arn: 'arn:aws:iam::123456789012:role/mine '  # <-", "aws-pattern", "delete the space"),
    # the image, its registry and its region
    ("image: pytorch/pytorch:2.8.0  # <-", "image-registry", "copy it to a repository of yours"),
    ("image: pytorch-2.5-cpu  # <-", "image-registry", "for AWS's own write image: {framework: pytorch, version: 2."),
    ("image: registry.example.com:5000/team/train:1  # <-", "image-registry", "training_repository_access_mode: Vpc"),
    ("image: 1234567890.dkr.ecr.eu-west-1.amazonaws.com/mine:1  # <-", "image-registry", "accounts have 12"),
    (f"image: {MINE}/MyImage:1  # <-", "image-registry", "write 'myimage'"),
    (f"image: https://{MINE}/mine:1  # <-", "image-uri", f"write {MINE}/mine:1"),
    ("image: arn:aws:ecr:eu-west-1:123456789012:repository/mine  # <-", "image-uri", f"write {MINE}/mine:TAG"),
    ("image: arn:aws:sagemaker:eu-west-1:123456789012:algorithm/a  # <-", "image-uri", "write algorithm_name"),
    (f"image: '{MINE}/mine:1 '  # <-", "image-uri", f"write {MINE}/mine:1"),
    (f"image: {AWS}/pytorch-training  # <-", "image-tag", "pytorch-training:2.10-cpu-py313"),
    (f"image: {AWS}/pytorch-inference:2.6.0-cpu-py312  # <-", "image-for-inference", "-training in place of"),
    ("region: us-east-1\nimage: " + MINE + "/mine:1  # <-", "image-region", "write the image of us-east-1"),
    ("region: eu-west1  # <-", "region-name", "did you mean eu-west-1?"),
    ("region: eu-west-1b  # <-", "region-name", "write eu-west-1"),
    (
        "region: cn-north-1\nimage: 123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/mine:1\n"
        "role_arn: arn:aws:iam::123456789012:role/mine  # <-",
        "region-partition",
        "write a role of aws-cn",
    ),
    (
        "image: 123456789012.dkr.ecr.cn-north-1.amazonaws.com/mine:1  # <-\n"
        "role_arn: arn:aws-cn:iam::123456789012:role/mine",
        "region-partition",
        "write 123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/",
    ),
    # the place of data in S3
    (train("s3_uri: s3://s3://bucket/train/  # <-"), "s3-uri-place", "write 's3://bucket/train/'"),
    (train("s3_uri: s3://arn:aws:s3:::bucket/train/  # <-"), "s3-uri-place", "write 's3://bucket/train/'"),
    (train("s3_uri: s3:/bucket/train/  # <-"), "aws-pattern", "write s3://bucket/train/"),
    (train("s3_uri: s3//bucket/train/  # <-"), "aws-pattern", "write s3://bucket/train/"),
    (train("s3_uri: arn:aws:s3:::bucket/train/  # <-"), "aws-pattern", "write s3://bucket/train/"),
    (train("s3_uri: ./data/train  # <-"), "aws-pattern", "copy it to S3"),
    (
        train("s3_uri: https://eu-west-1.console.aws.amazon.com/s3/buckets/bucket?region=eu-west-1&prefix=train/  # <-"),
        "s3-uri-place",
        "write s3://bucket/train/",
    ),
    (train("s3_uri: https://example.com/iris.csv  # <-"), "s3-uri-place", "copy it there"),
    (train("s3_uri: s3://My_Bucket/train/  # <-"), "s3-bucket-name", "such as my-bucket"),
    (train("s3_uri: s3://b/train/  # <-"), "s3-bucket-name", "write 3 to 63 lower-case letters"),
    (train("source: S3Connector", "s3_uri: s3://My_Bucket/train/  # <-"), "s3-bucket-name", "such as my-bucket"),
    (train("s3_uri: s3://<your-bucket>/train/  # <-"), "s3-bucket-name", "write your bucket's name"),
    (train("s3_uri: s3://bucket/shared//train/  # <-"), "channel-double-slash", "write 's3://bucket/shared/train/'"),
    (train("s3_uri: s3://bucket/train/*.csv  # <-"), "s3-uri-literal", "write the folder, 's3://bucket/train/'"),
    (train("s3_uri: 's3://bucket/train/ '  # <-"), "s3-uri-literal", "delete the space"),
    ("channels:\n  train: s3://bucket  # <-", "channel-whole-bucket", "add the folder"),
    (train("s3_uri: s3://b--use1-az4--x-s3/train  # <-"), "channel-directory-bucket-folder", "train/'"),
    (train("source: S3Connector", "s3_uri: s3://b--use1-az4--x-s3/train  # <-"), "channel-directory-bucket-folder", "train/'"),
    ("output_data_config:\n  s3_output_path: bucket/out  # <-", "aws-pattern", "write s3://bucket/out"),
    ("output_data_config: s3://bucket/out/  # <-", "wrong-type", "write {s3_output_path: ...}"),
    (
        "debug_hook_config:\n  s3_output_path: https://s3-eu-west-1.amazonaws.com/bucket/debug/  # <-",
        "debugger-s3-uri",
        "write s3://bucket/debug/",
    ),
    (train("s3_uri: https://s3.eu-west-1.amazonaws.com/bucket/train/  # <-"), "s3-uri-https", "write 's3://bucket/train/'"),
    ("output_data_config:\n  s3_output_path: https://bucket.s3.amazonaws.com/out/  # <-", "s3-uri-https", "'s3://bucket/out/'"),
    ("checkpoint_config:\n  s3_uri: https://s3.amazonaws.com/bucket/a/  # <-", "s3-uri-https", "write 's3://bucket/a/'"),
    ("output_data_config:\n  s3_output_path: s3://bucket/out/\n  kms_key_id: my-key-alias  # <-", "kms-key-form",
     "write 'alias/my-key-alias'"),
    # how a channel is delivered
    (train("s3_uri: s3://bucket/train/", "input_mode: fastfile  # <-"), "aws-enum", "did you mean FastFile?"),
    (train("s3_uri: s3://bucket/train/", "compression_type: Gzip  # <-"), "channel-gzip-needs-pipe", "use Pipe"),
    (train("s3_uri: s3://bucket/train/", "shuffle_config: {seed: 1}  # <-"), "shuffle-needs-pipe", "input_mode: Pipe"),
    (train("s3_uri: s3://bucket/train", "input_mode: FastFile").replace("train\n    i", "train  # <-\n    i"),
     "channel-fast-file-folder", "end it with '/'"),
    (
        "enable_network_isolation: true\n" + train("source: S3Connector  # <-", "s3_uri: s3://bucket/train/"),
        "connector-needs-network",
        "use source: S3",
    ),
    (EFS.replace("  train:", "  train:  # <-").replace(VPC, "") + "fs-0123456789abcdef0", "file-system-needs-vpc", "add vpc_"),
    (EFS + "fs-12345  # <-", "aws-min", "such as fs-0123456789abcdef0"),
    (EFS + "fs-0123456789abcdef0.efs.eu-west-1.amazonaws.com  # <-", "aws-max", "write fs-0123456789abcdef0"),
    (EFS + "fsap-0123456789abcdef0  # <-", "aws-max", "an access point"),
    (EFS.replace("/data", "data  # <-") + "fs-0123456789abcdef0", "directory-path-absolute", "write '/data'"),
    (EFS.replace("EFS", "FSxLustre").replace("/data", "/fsx/data  # <-") + "fs-0123456789abcdef0", "fsx-mount-name", "MountName"),
    (EFS.replace("EFS", "FSxLustre").replace("/data", "/train  # <-") + "fs-0123456789abcdef0", "fsx-mount-name",
     "write '/MOUNTNAME/train'"),
    (EFS.replace("EFS", "FSxLustre").replace("/data", "train  # <-") + "fs-0123456789abcdef0", "directory-path-absolute",
     "write '/MOUNTNAME/train'"),
    (EFS.replace("EFS", "FSx  # <-") + "fs-0123456789abcdef0", "unknown-source", "did you mean FSxLustre?"),
    ("channels:\n  my train data: s3://bucket/train/  # <-", "aws-pattern", "hyphens"),
    ("channels:\n  train: s3://bucket/a/\n  train: s3://bucket/b/  # <-", "duplicate-key", "delete one"),
    ("channels:\n  train: [s3://bucket/a/, s3://bucket/b/]  # <-", "wrong-type", "a channel for each"),
    ("channels:\n" + "".join(f"  c{n}: s3://bucket/c{n}/\n" for n in range(20)) + "  more: s3://bucket/more/  # <-",
     "channels-at-most-20", "S3Connector"),
    ("training_input_mode: pipe  # <-\nchannels: {a: s3://bucket/a/, b: s3://bucket/b/}", "aws-enum", "did you mean Pipe?"),
    ("output_data_config:\n  s3_output_path: s3:///out/  # <-", "aws-pattern", "write the bucket, too"),
    # machines, time and money
    (MACHINE.replace("ml.m5.large", "m5.large  # <-"), "aws-enum", "did you mean ml.m5.large?"),
    (MACHINE.replace("ml.m5.large", "ml.m5.larg  # <-"), "aws-enum", "add --ignore aws-enum"),
    (MACHINE.replace("ml.m5.large", "local_gpu  # <-"), "aws-enum", "add --local"),
    (MACHINE.replace("count: 1", "count: 0  # <-"), "instance-count-positive", "at least 1"),
    (MACHINE.replace("50", "53687091200  # <-"), "volume-size-over-16-tb", "write 50"),
    (MACHINE.replace("50", "50 GiB  # <-"), "wrong-type", "such as 50, 100GB"),
    ("resource_config: ml.m5.large  # <-", "wrong-type", "write {instance_type: ..."),
    ("stopping_condition:\n  max_runtime_in_seconds: 24  # <-", "max-runtime-short", "write 24h for hours"),
    ("stopping_condition:\n  max_runtime_in_seconds: 24 h  # <-", "wrong-type", "write 24h"),
    ("stopping_condition:\n  max_runtime_in_seconds: 86400000  # <-", "max-runtime-28-days", "write 2419200 or less"),
    (
        "stopping_condition:\n  max_runtime_in_seconds: 60\n  max_wait_time_in_seconds: 60  # <-",
        "max-wait-needs-spot",
        "enable_managed_spot_training: true",
    ),
    (
        SPOT + "stopping_condition:\n  max_runtime_in_seconds: 7200\n  max_wait_time_in_seconds: 3600  # <-",
        "spot-needs-max-wait",
        "write 7200 or more",
    ),
    (SPOT.replace("true", "true  # <-"), "spot-needs-max-wait", "max_wait_time_in_seconds"),
    (
        "checkpoint_config:\n  s3_uri: s3://bucket/checkpoints/\n  local_path: /opt/ml/model  # <-",
        "checkpoint-folder",
        "write /opt/ml/checkpoints",
    ),
    ("checkpoint_config:  # <-\n  local_path: /opt/ml/checkpoints", "aws-required", "write s3_uri: s3://"),
    (
        "tensor_board_output_config:\n  s3_output_path: s3://bucket/tb/\n  local_path: /opt/ml/tb  # <-",
        "tensor-board-path",
        "/tensorboard",
    ),
    # the network
    ("vpc_config:  # <-\n  security_group_ids: [sg-0123456789abcdef0]", "aws-required", "write subnets: [subnet-"),
    (VPC.replace("sg-0123456789abcdef0", "default").strip() + "  # <-", "vpc-config-id-form", "such as sg-"),
    (VPC.replace("subnet-0123456789abcdef0", "eu-west-1a").strip() + "  # <-", "vpc-config-id-form", "such as subnet-"),
    (VPC.replace("[subnet-0123456789abcdef0]", "'subnet-01234567,subnet-89abcdef'").strip() + "  # <-", "wrong-type",
     "such as [subnet-01234567, subnet-89abcdef]"),
    # settings of a script or an algorithm
    ("debug_hook_config:\n  s3_output_path: s3://bkt/d/\n  collection_configurations:  # <-\n    collection_name: losses",
     "wrong-type", "such as [{collection_name: ...}]"),
    ("debug_hook_config:\n  s3_output_path: s3://bkt/d/\n  collection_configurations:\n    - collection_name: losses\n"
     "      collection_parameters:\n        losses: {save_interval: 10}  # <-", "wrong-type", "a single text"),
    ("metric_definitions: {name: loss, regex: '(.)'}  # <-", "wrong-type", "such as [{name: ..., ...}]"),
    ("metric_definitions:\n  - name: loss\n    regex: 'loss=[0-9.]+'  # <-", "metric-regex-group", "parentheses"),
    ("metric_definitions:\n  - name: loss\n    regex: 'loss=([0-9.]+'  # <-", "metric-regex", "missing )"),
    ("metric_definitions:  # <-\n  loss: loss=([0-9.]+)", "wrong-type", "such as [{name: loss, regex: ...}]"),
    ("tags:  # <-\n  - {Key: team, Value: vision}", "wrong-type", "write {team: ...}"),
    ("environment:  # <-\n  - {name: LEVEL, value: secret}", "wrong-type", "write {LEVEL: ...}"),
    ("environment:\n  MY-LEVEL: info  # <-", "aws-pattern", "underscores"),
    (f"environment:\n  TOKEN: {'x' * 600}  # <-", "aws-max", "at most 512 characters; put it in a file in a channel"),
    ("hyperparameters:  # <-\n" + "".join(f"  p{n}: 1\n" for n in range(101)), "aws-max", "some of them in a file in a channel"),
    ("container_entrypoint: sh -c train  # <-", "wrong-type", "such as [sh, -c, train]"),
    (
        "hyperparameters:\n  sagemaker_program: train.py\n  sagemaker_submit_directory: s3://bucket/code/  # <-",
        "submit-directory-archive",
        "URI of a .tar.gz",
    ),
    (
        XGBOOST + "hyperparameters:\n  num_round: 10\n  objective: '\"reg:squarederror\"'  # <-\n"
        + train("s3_uri: s3://bucket/train/", "content_type: text/csv"),
        "built-in-hyperparameter-quotes",
        "delete them",
    ),
    (
        XGBOOST + "hyperparameters: {num_round: 10}\n"
        + train("s3_uri: s3://bucket/train/", "content_type: text/csv").replace("train:", "training:")
        .replace("channels:", "channels:  # <-"),
        "built-in-channel-missing",
        "rename training",
    ),
    ("code: {entry_point: train.py, directory: 's3://bucket/code/'}  # <-", "code-places", "write a local folder"),
    # names of the request's members and of the SDK's arguments
    ("role_arn: null\nRoleArn: arn:aws:iam::123456789012:role/mine  # <-", "unknown-key", "write role_arn"),
    ("image: null\nAlgorithmSpecification: {TrainingImage: mine}  # <-", "unknown-key", "launch import"),
    ("base_name: null\nTrainingJobName: mine  # <-", "unknown-key", "write training_job_name"),
    ("channels: null\nInputDataConfig: [{ChannelName: train}]  # <-", "unknown-key", "write channels: {train:"),
    ("lr: 1e-3  # <-", "unknown-key", "write a setting of the script under hyperparameters"),
    ("instance_typ: ml.g5.xlarge  # <-", "unknown-key", "did you mean instance_type under resource_config?"),
    ("stopping_condition: null\nmax_run: 3600  # <-", "unknown-key", "write stopping_condition: {max_runtime_in_seconds: ...}"),
    ("output_data_config: null\noutput_path: s3://bucket/out/  # <-", "unknown-key", "write output_data_config: {s3_output_path"),
    ("use_spot_instances: true  # <-", "unknown-key", "write enable_managed_spot_training"),
    ("image: null\nimage_uri: mine  # <-", "unknown-key", "write image"),
    (train("DataSource: {S3DataSource: {S3Uri: s3://bucket/train/}}  # <-"), "unknown-key", "in the channel itself"),
    (VPC + train("data_source: {file_system_data_source: {file_system_id: a}}  # <-"), "unknown-key", "in the channel itself"),
    (train("file_system_id: fs-0123456789abcdef0  # <-"), "unknown-key", "it needs source: EFS or FSxLustre"),
    ("channels:  # <-\n  - {channel_name: train, s3_uri: s3://bucket/train/}", "wrong-type", "under its name"),
    (MACHINE + "  max_wait_time_in_seconds: 3600  # <-", "unknown-key", "it belongs under stopping_condition"),
    (MACHINE + "  max_wait_time_in_secs: 3600  # <-", "unknown-key", "its keys are instance_type, "),
    (train("s3_uri: s3://bucket/a/", "subnets: []  # <-"), "unknown-key", "its keys are source, "),
    ("source_code: {source_dir: src, entry_script: train.py}  # <-", "unknown-key", "write code: {directory:"),
    ("resource_config: null\ncompute: {instance_type: ml.m5.large}  # <-", "unknown-key", "write resource_config: {instance_type"),
    ("networking: {subnets: [a]}  # <-", "unknown-key", "write vpc_config: {security_group_ids"),
    ("distributed: {process_count_per_node: 4}  # <-", "unknown-key", "write code: {command: torchrun train.py}"),
    ("distribution: {torch_distributed: {enabled: true}}  # <-", "unknown-key", "write code: {command: torchrun train.py}"),
    ("warm_pool: 600  # <-", "unknown-key", "write resource_config: {keep_alive_period_in_seconds"),
    ("volume_size_gb: 100  # <-", "unknown-key", "write resource_config: {volume_size_in_gb"),
    ("max_run_time: 3600  # <-", "unknown-key", "write stopping_condition: {max_runtime_in_seconds"),
    ("input_mode: FastFile  # <-", "unknown-key", "write training_input_mode"),
    ("sagemaker_session: null  # <-", "unknown-key", "region and profile"),
    ("args: [--lr, '1']  # <-", "unknown-key", "write hyperparameters"),
    (MACHINE.replace("instance_count", "count").replace("count: 1", "count: 1  # <-"), "unknown-key", "write instance_count"),
    ("code:\n  directory: src\n  script: train.py  # <-", "unknown-key", "write entry_point"),
    ("output_data_config:\n  s3_uri: s3://bucket/out/  # <-", "unknown-key", "write s3_output_path"),
    ("checkpoint_config:\n  path: s3://bucket/out/  # <-", "unknown-key", "write s3_uri"),
    # keys and members that are in the wrong place or stand for others
    ("request: {TrainingImage: a}  # <-", "aws-unknown-member", "it belongs under AlgorithmSpecification"),
    ("request: {MetricDefinitions: []}  # <-", "aws-unknown-member", "it belongs under AlgorithmSpecification"),
    ("request: {TrainingJobStatus: Completed}  # <-", "aws-unknown-member", "read-only"),
    ("request: {CreateTrainingJobRequest: {RoleArn: a}}  # <-", "aws-unknown-member", "write its members in its place"),
    (train("s3_uri: s3://bucket/train/", "mode: Pipe  # <-"), "unknown-key", "write input_mode"),
    (train("s3_uri: s3://bucket/train/", "type: S3  # <-"), "unknown-key", "write source"),
    (train("s3_uri: s3://bucket/train/", "input_mode: Pipe", "seed: 1  # <-"), "unknown-key", "write shuffle_config: {seed: 1}"),
    (train("s3_uri: s3://bucket/train/", "shuffle_seed: 1  # <-"), "unknown-key", "write shuffle_config: {seed: 1}"),
    (train("path: s3://bucket/train/  # <-"), "unknown-key", "write s3_uri: s3://"),
    (train("bucket: mine  # <-"), "unknown-key", "write s3_uri: s3://"),
    (VPC + train("source: EFS", "directory_path: /a", "fs_id: fs-1  # <-"), "unknown-key", "write file_system_id"),
    ("training_plan: arn  # <-", "unknown-key", "training_plan_arn"),
    ("note: the first run  # <-", "unknown-key", "begins with #"),
    ("use_spot: true  # <-", "unknown-key", "write enable_managed_spot_training"),
    ("metrics: []  # <-", "unknown-key", "write metric_definitions"),
    ("framework: pytorch  # <-", "unknown-key", "write image: {framework"),
    ("region: us-east-1\nimage: {framework: pytorch, version: 2.1.2}  # <-", "image-unknown", "of pytorch there is 2.1.0"),
    # several effects of one mistake
    (IMAGE + MACHINE.replace("ml.m5.large", "m5.large  # <-"), "aws-enum", "did you mean ml.m5.large?"),
    (MACHINE + "  keep_alive_period_in_seconds: 7h  # <-", "aws-max", "at most 21,600"),
    ("resource_config:\n  instance_groups: {a: {instance_type: ml.m5.large}}  # <-", "wrong-type", "[{instance_group_name: a"),
    ("extends: {a: 1}  # <-\nrole_arn: null", "wrong-type", "such as [base.yaml]"),
    ("extends: s3://bucket/base.yaml  # <-", "spec-layer", "s3://bucket/base.yaml is not a local file"),
    ("hyperparameters:\n  conf: |  # <-\n    {\"a\": 1,\n     \"b\": 2}", "aws-pattern", "write it on one line"),
    ("hyperparameters:\n  conf: |  # <-\n    one", "aws-pattern", "write |-"),
    # numbers and durations in other forms
    ("stopping_condition:\n  max_runtime_in_seconds: 12 hours  # <-", "wrong-type", "write 12h"),
    ("stopping_condition:\n  max_runtime_in_seconds: 1.5h  # <-", "wrong-type", "write 1h30m"),
    ("stopping_condition:\n  max_runtime_in_seconds: 1:30:00  # <-", "wrong-type", "write 1h30m"),
    ("enable_network_isolation: 1  # <-", "wrong-type", "write true"),
    ("environment: [LEVEL=secret]  # <-", "wrong-type", "write {LEVEL: ...}"),
    (train("s3_uri: s3://bucket/train/", "input_mode: Pipe", "shuffle_config:", "  seed: 9999999999999999999  # <-"),
     "aws-max", "at most 9,223,372,036,854,775,807"),
    (train("s3_uri: s3://bucket/train/", "input_mode: Pipe", "shuffle_config:", "  seed: 18446744073709551615  # <-"),
     "wrong-type", "9,223,372,036,854,775,807"),
    # a mistake whose consequences are not reported
    ("enable_managed_spot_training: yes  # <-\ncheckpoint_config: {s3_uri: s3://bucket/checkpoints/}\n"
     "stopping_condition: {max_runtime_in_seconds: 60, max_wait_time_in_seconds: 60}", "wrong-type", "write true"),
    (train("s3_uri: s3://bucket/train/", "input_mod: Pipe  # <-", "compression_type: Gzip"), "unknown-key", "input_mode?"),
    ("training_input_mode: Pipe\nchannels:\n  a: s3://bucket/a/\n  a_0: s3://bucket/b/  # <-", "channel-names-collide", "FIFO"),
    (train("s3_uri: s3://bucket/train/", "input_mode: pipe  # <-", "compression_type: Gzip"), "aws-enum", "mean Pipe?"),
    ("vpc_conf: {subnets: [subnet-0123456789abcdef0]}  # <-\n" + EFS.replace(VPC, "") + "fs-0123456789abcdef0", "unknown-key",
     "vpc_config?"),
    ("vpc_config: subnet-0123456789abcdef0  # <-\n" + EFS.replace(VPC, "") + "fs-0123456789abcdef0", "wrong-type",
     "security_group_ids"),
    ("resource_config: {instance_type: ml.m5.large, instance_count: one, volume_size_in_gb: 9}  # <-\n"
     + train("s3_uri: s3://bucket/train/", "s3_data_distribution_type: ShardedByS3Key"), "wrong-type", "a whole number"),
    ("code: {entry_point: entrypoints/train.py}\nchannels:\n"
     + "".join(f"  c{n}: s3://bucket/c{n}/\n" for n in range(20)) + "  more: s3://bucket/more/  # <-",
     "channels-at-most-20", "S3Connector"),
    # the region of the image's registry
    (
        "resource_config:\n  instance_type: ml.p5.48xlarge\n  instance_count: 1\n"
        "  training_plan_arn: arn:aws:sagemaker:us-west-2:123456789012:training-plan/mine  # <-",
        "resource-region-of-image",
        "the image is in eu-west-1",
    ),
    (
        MACHINE + "  volume_kms_key_id: arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab  # <-",
        "resource-region-of-image",
        "the image is in eu-west-1",
    ),
]  # fmt: skip
