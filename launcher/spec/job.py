"""The spec: what a person may write about a training job.

Only shape and types are settled here. What AWS requires, and its enums, patterns and bounds, come from botocore's service
model (`aws_model`); what fields mean to each other is in `checks`. So no field is required here, and a spec with holes
can still be looked at for all its other problems.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, PrivateAttr, Tag

from launcher.errors import Location, SpecPath
from launcher.spec import sections
from launcher.spec.channels import Channel
from launcher.spec.model import Section
from launcher.spec.values import Boolean, Dollars, Setting, Text

if TYPE_CHECKING:
    ImageOrUri = sections.Image | str
else:
    ImageOrUri = Annotated[
        Annotated[sections.Image, Tag("image")] | Annotated[Text, Tag("uri")],
        Discriminator(lambda value: "image" if isinstance(value, dict | sections.Image) else "uri"),
    ]


class Code(Section):
    """The training code that travels with the job."""

    directory: Text | None = None
    """The folder to send; relative to the spec's file. Without it only the bundled scripts travel."""
    include: tuple[Text, ...] | None = None
    """Patterns as in a .gitignore: what they match travels, even if a default or an ignore file leaves it out."""
    exclude: tuple[Text, ...] | None = None
    """Patterns as in a .gitignore: what they match does not travel."""
    dependencies: tuple[Text, ...] | None = None
    """Files and folders outside of it that travel too, each beside its files under the base name."""
    entry_point: Text | None = None
    """A `.py` file or program of that folder, or a bundled script: `entrypoints/train.py`, `entrypoints/read_channels.py`."""
    requirements: Text | None = None
    """A requirements file of that folder, installed before the start."""
    launcher: Literal["python", "torchrun"] = "python"
    """`python`, or `torchrun` to run torch's launcher across all hosts."""
    argument_style: Literal["toolkit", "json"] = "toolkit"
    """The form of hyperparameters as arguments and SM_HP_*: Python's, as SDK v2 passes them, or `json`, as SDK v3 does."""
    delivery: Literal["auto", "channel", "submit_directory"] = "auto"
    """`channel`: a channel of its own; `submit_directory`: by the toolkit in the image; `auto`: a channel while one is free."""
    s3_uri: Text | None = None
    """Where the code is uploaded; `<s3_output_path>/code` where absent."""


class JobSpec(Section):
    """One training job, as written."""

    training_job_name: Text | None = None
    """Used as it is."""
    base_name: Text | None = None
    """The job's name begins with it; the time and a few random characters follow."""
    image: ImageOrUri | None = None
    """The container image: its URI, or `{framework: pytorch, version: ...}` for AWS's own, which needs `region`."""
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
    resource_config: sections.ResourceConfig | None = None
    stopping_condition: sections.StoppingCondition | None = None
    output_data_config: sections.OutputDataConfig | None = None
    checkpoint_config: sections.CheckpointConfig | None = None
    vpc_config: sections.VpcConfig | None = None
    metric_definitions: tuple[sections.MetricDefinition, ...] | None = None
    enable_sage_maker_metrics_time_series: Boolean | None = None
    enable_network_isolation: Boolean | None = None
    enable_inter_container_traffic_encryption: Boolean | None = None
    enable_managed_spot_training: Boolean | None = None
    retry_strategy: sections.RetryStrategy | None = None
    training_image_config: sections.TrainingImageConfig | None = None
    debug_hook_config: sections.DebugHookConfig | None = None
    debug_rule_configurations: tuple[sections.RuleConfiguration, ...] | None = None
    tensor_board_output_config: sections.TensorBoardOutputConfig | None = None
    profiler_config: sections.ProfilerConfig | None = None
    profiler_rule_configurations: tuple[sections.RuleConfiguration, ...] | None = None
    experiment_config: sections.ExperimentConfig | None = None
    remote_debug_config: sections.RemoteDebugConfig | None = None
    infra_check_config: sections.InfraCheckConfig | None = None
    session_chaining_config: sections.SessionChainingConfig | None = None
    serverless_job_config: sections.ServerlessJobConfig | None = None
    mlflow_config: sections.MlflowConfig | None = None
    model_package_config: sections.ModelPackageConfig | None = None
    tags: dict[Text, Setting] | None = None
    channels: dict[Text, Channel] | None = None
    request: dict[Text, Any] | None = None
    """Whatever else the request shall say, by its own member names; merged last. `null` deletes a member."""
    extends: tuple[Text, ...] | Text | None = None
    """A spec, or several, that this one is laid over; paths start at this file."""
    ignore: tuple[Text, ...] | None = None
    """Codes of warnings, and of values that the installed botocore does not know, to say nothing of."""
    max_cost: Dollars | None = None
    """US dollars. A submission that may cost more needs an agreement: an answer, or `--yes`; 100 where nothing is set."""

    _masked: dict[tuple[str, str], str] = PrivateAttr(default_factory=dict)
    _locate: Callable[[SpecPath], Location | None] | None = PrivateAttr(default=None)

    def locate(self, path: SpecPath) -> Location | None:
        """Where `path`, or the nearest thing around it, stands in the file this spec was read from."""
        return self._locate(path) if self._locate else None

    def folder_of(self, path: SpecPath) -> str:
        """The folder that a relative path at `path` starts from: that of the file in which it is written."""
        location = self.locate(path)
        return str(Path(location.file).parent) if location else "."

    @property
    def masked(self) -> Mapping[tuple[str, str], str]:
        """Settings that name environment variables, as written: (member of the request, name) -> text."""
        return self._masked

    @property
    def all_channels(self) -> Mapping[str, Channel]:
        """The channels by name, in the file's order."""
        return self.channels or {}
