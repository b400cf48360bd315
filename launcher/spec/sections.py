"""The mappings inside a spec: one class for each structure of the CreateTrainingJob request that a person may write.

Each key is the AWS member in snake_case and means what AWS's documentation says of it, so only what that does not say is said
here. `channels/` has those of the channels, `spec` the whole.
"""

from launcher.spec.model import Section
from launcher.spec.values import Boolean, Gigabytes, Integer, Seconds, Setting, Text


class Image(Section):
    """One of AWS's own images, by its contents: framework, versions, Python."""

    framework: Text | None = None
    """pytorch, tensorflow, huggingface, sklearn, xgboost, ..."""
    algorithm: Text | None = None
    """A built-in algorithm, in place of `framework`: image-classification, linear-learner, ..."""
    version: Text | None = None
    py_version: Text | None = None
    """The newest that the version has, unless said; such as py312."""
    base_framework_version: Text | None = None
    """For huggingface, the framework below it, such as pytorch2.8.0."""


class InstanceGroup(Section):
    """One group of a heterogeneous cluster."""

    instance_group_name: Text | None = None
    instance_type: Text | None = None
    instance_count: Integer | None = None


class InstancePreference(Section):
    """One of the instance types that will do, in the order of preference."""

    instance_type: Text | None = None
    instance_count: Integer | None = None
    training_plan_arns: tuple[Text, ...] | None = None


class PlacementSpecification(Section):
    """Instances on one UltraServer."""

    ultra_server_id: Text | None = None
    instance_count: Integer | None = None


class InstancePlacementConfig(Section):
    """Where the instances of UltraServers are placed."""

    enable_multiple_jobs: Boolean | None = None
    placement_specifications: tuple[PlacementSpecification, ...] | None = None


class ResourceConfig(Section):
    """The machines."""

    instance_type: Text | None = None
    instance_count: Integer | None = None
    instance_groups: tuple[InstanceGroup, ...] | None = None
    instance_preferences: tuple[InstancePreference, ...] | None = None
    instance_placement_config: InstancePlacementConfig | None = None
    volume_size_in_gb: Gigabytes | None = None
    volume_kms_key_id: Text | None = None
    keep_alive_period_in_seconds: Seconds | None = None
    """How long the machines are kept warm for the next job."""
    training_plan_arn: Text | None = None


class StoppingCondition(Section):
    """How long the job may run and wait."""

    max_runtime_in_seconds: Seconds | None = None
    max_wait_time_in_seconds: Seconds | None = None
    """Running and waiting for spot capacity together."""
    max_pending_time_in_seconds: Seconds | None = None


class OutputDataConfig(Section):
    """Where the outputs go: `<s3_output_path>/<job name>/output/model.tar.gz`."""

    s3_output_path: Text | None = None
    kms_key_id: Text | None = None
    compression_type: Text | None = None
    """GZIP, or NONE for plain files."""


class CheckpointConfig(Section):
    """Where the checkpoints are kept while the job runs, and restored from when it starts again."""

    s3_uri: Text | None = None
    local_path: Text | None = None
    """Where the script finds them; /opt/ml/checkpoints where absent."""


class VpcConfig(Section):
    """The network the job runs in."""

    security_group_ids: tuple[Text, ...] | None = None
    subnets: tuple[Text, ...] | None = None


class MetricDefinition(Section):
    """A metric, read from the log by a regular expression with one group."""

    name: Text | None = None
    regex: Text | None = None


class TrainingRepositoryAuthConfig(Section):
    """How a private registry lets the job in."""

    training_repository_credentials_provider_arn: Text | None = None


class TrainingImageConfig(Section):
    """Where the image is pulled from: Platform (ECR) or Vpc (a private registry)."""

    training_repository_access_mode: Text | None = None
    training_repository_auth_config: TrainingRepositoryAuthConfig | None = None


class RetryStrategy(Section):
    """How often a job that failed by an internal error is tried again."""

    maximum_retry_attempts: Integer | None = None


class CollectionConfiguration(Section):
    """A collection of tensors that the debugger keeps."""

    collection_name: Text | None = None
    collection_parameters: dict[Text, Text] | None = None


class DebugHookConfig(Section):
    """What the debugger keeps, and where."""

    s3_output_path: Text | None = None
    local_path: Text | None = None
    hook_parameters: dict[Text, Text] | None = None
    collection_configurations: tuple[CollectionConfiguration, ...] | None = None


class RuleConfiguration(Section):
    """A rule of the debugger or the profiler, evaluated while the job runs."""

    rule_configuration_name: Text | None = None
    rule_evaluator_image: Text | None = None
    local_path: Text | None = None
    s3_output_path: Text | None = None
    instance_type: Text | None = None
    volume_size_in_gb: Gigabytes | None = None
    rule_parameters: dict[Text, Text] | None = None


class TensorBoardOutputConfig(Section):
    """Where TensorBoard's files are kept."""

    s3_output_path: Text | None = None
    local_path: Text | None = None


class ProfilerConfig(Section):
    """What is profiled, and how often."""

    s3_output_path: Text | None = None
    profiling_interval_in_milliseconds: Integer | None = None
    profiling_parameters: dict[Text, Setting] | None = None
    disable_profiler: Boolean | None = None


class ExperimentConfig(Section):
    """The experiment that the job belongs to."""

    experiment_name: Text | None = None
    trial_name: Text | None = None
    trial_component_display_name: Text | None = None
    run_name: Text | None = None


class RemoteDebugConfig(Section):
    """Whether the running container can be entered."""

    enable_remote_debug: Boolean | None = None


class InfraCheckConfig(Section):
    """Whether the machines are checked before the start."""

    enable_infra_check: Boolean | None = None


class SessionChainingConfig(Section):
    """Whether the job's session tags are passed on."""

    enable_session_tag_chaining: Boolean | None = None


class ServerlessJobConfig(Section):
    """A fine-tuning or evaluation that SageMaker runs without machines of the job's own."""

    base_model_arn: Text | None = None
    accept_eula: Boolean | None = None
    job_type: Text | None = None
    customization_technique: Text | None = None
    peft: Text | None = None
    evaluation_type: Text | None = None
    evaluator_arn: Text | None = None
    sequence_length: Text | None = None


class MlflowConfig(Section):
    """The MLflow server that the job reports to."""

    mlflow_resource_arn: Text | None = None
    mlflow_experiment_name: Text | None = None
    mlflow_run_name: Text | None = None


class ModelPackageConfig(Section):
    """The group of model packages that the trained model joins."""

    model_package_group_arn: Text | None = None
    source_model_package_arn: Text | None = None
