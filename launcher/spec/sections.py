"""The mappings inside a spec: one class for each structure of the CreateTrainingJob request.

Each key is the AWS member in snake_case, with the meaning of AWS's documentation. The docstrings of classes and fields
become the descriptions of the JSON schema. The channels' classes are in `channels/`, the whole spec is in `job`.
"""

from launcher.spec.model import Section
from launcher.spec.values import Boolean, Gigabytes, Integer, Seconds, Setting, Text


class Image(Section):
    """One of AWS's own images, looked up by framework or algorithm and versions."""

    framework: Text | None = None
    """The framework: pytorch, tensorflow, huggingface, sklearn, xgboost, ..."""
    algorithm: Text | None = None
    """A built-in algorithm, in place of `framework`: image-classification, linear-learner, ..."""
    version: Text | None = None
    """The version of the framework or algorithm, such as '2.13'."""
    py_version: Text | None = None
    """The version of Python, such as py312; by default the newest that the framework's version has."""
    base_framework_version: Text | None = None
    """For huggingface, the framework that it is built on, such as pytorch2.9.0."""


class InstanceGroup(Section):
    """One group of instances of the same type in a heterogeneous cluster."""

    instance_group_name: Text | None = None
    """The group's name, which channels and the training script refer to."""
    instance_type: Text | None = None
    instance_count: Integer | None = None


class InstancePreference(Section):
    """One of several acceptable instance types, in the order of preference."""

    instance_type: Text | None = None
    instance_count: Integer | None = None
    training_plan_arns: tuple[Text, ...] | None = None


class PlacementSpecification(Section):
    """The number of instances to place on one UltraServer."""

    ultra_server_id: Text | None = None
    instance_count: Integer | None = None


class InstancePlacementConfig(Section):
    """The placement of instances on UltraServers."""

    enable_multiple_jobs: Boolean | None = None
    placement_specifications: tuple[PlacementSpecification, ...] | None = None


class ResourceConfig(Section):
    """The instances that the job runs on, and their storage."""

    instance_type: Text | None = None
    """The instance type, such as ml.g5.xlarge."""
    instance_count: Integer | None = None
    """The number of instances; each is one host of the training."""
    instance_groups: tuple[InstanceGroup, ...] | None = None
    """The groups of a heterogeneous cluster, in place of `instance_type` and `instance_count`."""
    instance_preferences: tuple[InstancePreference, ...] | None = None
    """Acceptable instance types in the order of preference, in place of `instance_type`."""
    instance_placement_config: InstancePlacementConfig | None = None
    volume_size_in_gb: Gigabytes | None = None
    """The EBS volume of each instance: a number of GB, or a size such as 100GB or 2TB."""
    volume_kms_key_id: Text | None = None
    """The KMS key that encrypts the EBS volumes."""
    keep_alive_period_in_seconds: Seconds | None = None
    """How long the instances are kept in a warm pool for the next job: seconds, or a duration such as 30m."""
    training_plan_arn: Text | None = None
    """The training plan whose reserved capacity the job uses."""


class StoppingCondition(Section):
    """How long the job may run and wait."""

    max_runtime_in_seconds: Seconds | None = None
    """How long the job may run, at most 28 days: seconds, or a duration such as 90m or 12h."""
    max_wait_time_in_seconds: Seconds | None = None
    """How long a spot job may wait for capacity and run together: seconds, or a duration such as 24h."""
    max_pending_time_in_seconds: Seconds | None = None
    """How long a job may wait for GPU or other accelerator capacity: seconds, or a duration such as 2d."""


class OutputDataConfig(Section):
    """The destination of the model: `<s3_output_path>/<job name>/output/model.tar.gz`."""

    s3_output_path: Text | None = None
    """The S3 folder for the outputs of jobs, such as s3://bucket/output/."""
    kms_key_id: Text | None = None
    """The KMS key that encrypts the outputs."""
    compression_type: Text | None = None
    """GZIP for model.tar.gz, or NONE for separate files."""


class CheckpointConfig(Section):
    """Checkpoints: copied to S3 while the job runs, and back when it restarts."""

    s3_uri: Text | None = None
    """The S3 folder that the checkpoints are copied to."""
    local_path: Text | None = None
    """The checkpoints' folder in the container; by default /opt/ml/checkpoints."""


class VpcConfig(Section):
    """The VPC that the job's instances are connected to."""

    security_group_ids: tuple[Text, ...] | None = None
    subnets: tuple[Text, ...] | None = None


class MetricDefinition(Section):
    """A metric, read from the log by a regular expression whose first group is the value."""

    name: Text | None = None
    regex: Text | None = None


class TrainingRepositoryAuthConfig(Section):
    """The credentials for a private Docker registry."""

    training_repository_credentials_provider_arn: Text | None = None


class TrainingImageConfig(Section):
    """The registry of the image: Platform for ECR, or Vpc for a private one."""

    training_repository_access_mode: Text | None = None
    training_repository_auth_config: TrainingRepositoryAuthConfig | None = None


class RetryStrategy(Section):
    """How often SageMaker retries a job that failed by an internal error."""

    maximum_retry_attempts: Integer | None = None


class CollectionConfiguration(Section):
    """A collection of tensors that the debugger saves."""

    collection_name: Text | None = None
    collection_parameters: dict[Text, Text] | None = None


class DebugHookConfig(Section):
    """The tensors that the debugger saves, and where it saves them."""

    s3_output_path: Text | None = None
    local_path: Text | None = None
    hook_parameters: dict[Text, Text] | None = None
    collection_configurations: tuple[CollectionConfiguration, ...] | None = None


class RuleConfiguration(Section):
    """A rule of the debugger or profiler, evaluated while the job runs."""

    rule_configuration_name: Text | None = None
    rule_evaluator_image: Text | None = None
    local_path: Text | None = None
    s3_output_path: Text | None = None
    instance_type: Text | None = None
    volume_size_in_gb: Gigabytes | None = None
    rule_parameters: dict[Text, Text] | None = None


class TensorBoardOutputConfig(Section):
    """The S3 folder that TensorBoard's files are copied to."""

    s3_output_path: Text | None = None
    local_path: Text | None = None


class ProfilerConfig(Section):
    """The profiler's interval, parameters and output."""

    s3_output_path: Text | None = None
    profiling_interval_in_milliseconds: Integer | None = None
    profiling_parameters: dict[Text, Setting] | None = None
    disable_profiler: Boolean | None = None


class ExperimentConfig(Section):
    """The SageMaker experiment that the job belongs to."""

    experiment_name: Text | None = None
    trial_name: Text | None = None
    trial_component_display_name: Text | None = None
    run_name: Text | None = None


class RemoteDebugConfig(Section):
    """Whether you can open a shell in the running container."""

    enable_remote_debug: Boolean | None = None


class InfraCheckConfig(Section):
    """Whether the instances are checked before the start."""

    enable_infra_check: Boolean | None = None


class SessionChainingConfig(Section):
    """Whether the job's session tags are passed on."""

    enable_session_tag_chaining: Boolean | None = None


class ServerlessJobConfig(Section):
    """A fine-tuning or evaluation for which SageMaker chooses the instances and the image."""

    base_model_arn: Text | None = None
    accept_eula: Boolean | None = None
    job_type: Text | None = None
    customization_technique: Text | None = None
    peft: Text | None = None
    evaluation_type: Text | None = None
    evaluator_arn: Text | None = None
    sequence_length: Text | None = None


class MlflowConfig(Section):
    """The MLflow server and experiment that the job reports to."""

    mlflow_resource_arn: Text | None = None
    mlflow_experiment_name: Text | None = None
    mlflow_run_name: Text | None = None


class ModelPackageConfig(Section):
    """The model package group that the trained model is registered in."""

    model_package_group_arn: Text | None = None
    source_model_package_arn: Text | None = None
