"""The spec: what a person may write about a training job.

Only shape and types are settled here. What AWS requires, and its enums, patterns and bounds, come from botocore's service
model (`aws_model`); what fields mean to each other is in `checks`. So no field is required here, and a spec with holes
can still be looked at for all its other problems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import PrivateAttr

from launcher.channels import Channel
from launcher.errors import Location, Path
from launcher.part import Part
from launcher.values import Boolean, Integer, Setting, Text


class Code(Part):
    """The training code that travels with the job."""

    directory: Text | None = None
    """The folder to send; relative to the spec's file. Without it only the bundled scripts travel."""
    entry_point: Text | None = None
    """A `.py` or `.sh` file of that folder, or a bundled script: `entrypoints/train.py`, `entrypoints/read_channels.py`."""
    requirements: Text | None = None
    """A requirements file of that folder, installed before the start."""
    launcher: Literal["python", "torchrun"] = "python"
    """`python`, or `torchrun` to run torch's launcher across all hosts."""
    delivery: Literal["auto", "channel", "submit_directory"] = "auto"
    """`channel`: a channel of its own; `submit_directory`: by the toolkit in the image; `auto`: a channel while one is free."""
    s3_uri: Text | None = None
    """Where the code is uploaded; `<s3_output_path>/code` where absent."""


class InstanceGroup(Part):
    """One group of a heterogeneous cluster."""

    instance_group_name: Text | None = None
    instance_type: Text | None = None
    instance_count: Integer | None = None


class ResourceConfig(Part):
    """The machines."""

    instance_type: Text | None = None
    instance_count: Integer | None = None
    instance_groups: tuple[InstanceGroup, ...] | None = None
    volume_size_in_gb: Integer | None = None
    volume_kms_key_id: Text | None = None
    keep_alive_period_in_seconds: Integer | None = None
    training_plan_arn: Text | None = None


class StoppingCondition(Part):
    """How long the job may run and wait."""

    max_runtime_in_seconds: Integer | None = None
    max_wait_time_in_seconds: Integer | None = None
    max_pending_time_in_seconds: Integer | None = None


class OutputDataConfig(Part):
    """Where the outputs go: `<s3_output_path>/<job name>/output/model.tar.gz`."""

    s3_output_path: Text | None = None
    kms_key_id: Text | None = None
    compression_type: Text | None = None


class CheckpointConfig(Part):
    """Where the checkpoints are kept while the job runs, and restored from when it starts again."""

    s3_uri: Text | None = None
    local_path: Text | None = None


class VpcConfig(Part):
    """The network the job runs in."""

    security_group_ids: tuple[Text, ...] | None = None
    subnets: tuple[Text, ...] | None = None


class MetricDefinition(Part):
    """A metric, read from the log by a regular expression with one group."""

    name: Text | None = None
    regex: Text | None = None


class RetryStrategy(Part):
    """How often a job that failed by an internal error is tried again."""

    maximum_retry_attempts: Integer | None = None


class JobSpec(Part):
    """One training job, as written."""

    training_job_name: Text | None = None
    """Used as it is."""
    base_name: Text | None = None
    """The job's name begins with it; the time and a few random characters follow."""
    image: Text | None = None
    """The container image (TrainingImage)."""
    algorithm_name: Text | None = None
    """An algorithm resource or a Marketplace algorithm, in place of `image`."""
    role_arn: Text | None = None
    region: Text | None = None
    """For what talks to AWS; a dry run never needs it."""
    profile: Text | None = None
    """The profile of the AWS configuration to use."""
    code: Code | None = None
    training_input_mode: Text | None = "File"
    """The mode of the channels that name none."""
    container_entrypoint: tuple[Text, ...] | None = None
    container_arguments: tuple[Text, ...] | None = None
    hyperparameters: dict[Text, Setting] | None = None
    environment: dict[Text, Setting] | None = None
    resource_config: ResourceConfig | None = None
    stopping_condition: StoppingCondition | None = None
    output_data_config: OutputDataConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    vpc_config: VpcConfig | None = None
    metric_definitions: tuple[MetricDefinition, ...] | None = None
    enable_sage_maker_metrics_time_series: Boolean | None = None
    enable_network_isolation: Boolean | None = None
    enable_inter_container_traffic_encryption: Boolean | None = None
    enable_managed_spot_training: Boolean | None = None
    retry_strategy: RetryStrategy | None = None
    tags: dict[Text, Setting] | None = None
    channels: dict[Text, Channel] | None = None

    _folder: str = PrivateAttr(default=".")
    _locate: Callable[[Path], Location | None] | None = PrivateAttr(default=None)

    def locate(self, path: Path) -> Location | None:
        """Where `path`, or the nearest thing around it, stands in the file this spec was read from."""
        return self._locate(path) if self._locate else None

    @property
    def folder(self) -> str:
        """The folder that the spec's relative paths start from: its file's."""
        return self._folder

    @property
    def all_channels(self) -> Mapping[str, Channel]:
        """The channels by name, in the file's order."""
        return self.channels or {}
