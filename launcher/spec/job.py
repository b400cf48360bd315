"""The spec of a training job, as a user writes it.

This module defines keys and types only, and of these only what is ours: all other keys are AWS's members (`structures`). Required
members, enums, patterns and bounds come from botocore's service model, too (`aws_model`), and rules across keys are in `rules`. So
no field is required here, and an incomplete spec can be checked for all its other problems.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, PrivateAttr, Tag, create_model

from launcher.errors import Location, SpecPath
from launcher.spec.aws_model import ALGORITHM, REQUEST
from launcher.spec.channels import Channel
from launcher.spec.model import Section, spec_name
from launcher.spec.structures import fields, members
from launcher.spec.team import Team
from launcher.spec.values import AccountId, Dollars, Integer, Seconds, Setting, Text
from launcher.spec.variables import Variables
from sagemaker_channels.start.command import name_of


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


if TYPE_CHECKING:
    ImageOrUri = Image | str
else:
    ImageOrUri = Annotated[
        Annotated[Image, Tag("image")] | Annotated[Text, Tag("uri")],
        Discriminator(lambda value: "image" if isinstance(value, dict | Image) else "uri"),
    ]


class Code(Section):
    """The training code that is sent with the job."""

    directory: Text | None = None
    """The folder to send, relative to the spec's file. By default only the bundled scripts are sent."""
    include: tuple[Text, ...] | None = None
    """Patterns as in a .gitignore: matching files are sent even if a default or an ignore file excludes them."""
    exclude: tuple[Text, ...] | None = None
    """Patterns as in a .gitignore: matching files are not sent."""
    dependencies: tuple[Text, ...] | None = None
    """Files and folders outside `directory` to send too, each placed beside its files under its base name."""
    entry_point: Text | None = None
    """A `.py` file or program in `directory`, or a bundled script: `entrypoints/train.py`, `entrypoints/read_channels.py`."""
    command: tuple[Text, ...] | Text | None = None
    """In place of `entry_point`, any command, on every host: a line for bash, or a list of a program and its arguments."""
    requirements: Text | None = None
    """A requirements file in `directory`, installed with pip before the start."""
    arguments: Literal["--name value", "--name=value", "name=value", "none"] = "--name value"
    """How hyperparameters are written after the entry point or command; with `none`, only SM_HPS and SM_HP_* have them."""
    argument_style: Literal["toolkit", "json"] = "toolkit"
    """How hyperparameters are passed as arguments and SM_HP_*: in Python's forms as by SDK v2, or as JSON as by SDK v3."""
    delivery: Literal["auto", "channel", "submit_directory"] = "auto"
    """`channel` sends the code in its own channel, `submit_directory` by the image's toolkit; `auto` prefers a channel."""
    s3_uri: Text | None = None
    """The S3 folder that the code is uploaded to; by default `<s3_output_path>/code`."""
    git: bool = True
    """Whether the commit of `directory`'s git repository, if it is in one, is added to the job's tags."""

    @property
    def program(self) -> str:
        """The entry point, or the command in a line."""
        return str(self.entry_point) if self.command is None else name_of(self.command)


class Queue(Section):
    """The AWS Batch queue that the job is submitted to, as a service job."""

    name: Text | None = None
    """The name or ARN of a queue of the type SAGEMAKER_TRAINING."""
    share: Text | None = None
    """The share identifier, which a queue with a fair-share policy requires."""
    quota_share: Text | None = None
    """The quota share's name, which a queue with a quota-share policy requires."""
    priority: Integer | None = None
    """The scheduling priority in the share, 0 to 9999; jobs with a higher one are scheduled first."""
    attempts: Integer | None = None
    """How often Batch starts the job at most, 1 to 10; missing capacity does not count as an attempt."""
    timeout: Seconds | None = None
    """How long an attempt may run before Batch ends it; `max_runtime_in_seconds` holds for each attempt, too."""


class OwnKeys(Section):
    """The keys of a spec that are more than the member of their name, or have none."""

    training_job_name: Text | None = None
    """The job's name, used as it is; it can be used once per account and region."""
    base_name: Text | None = None
    """The beginning of the job's name; the time and a few random characters are added."""
    image: ImageOrUri | None = None
    """The container image: its URI, or `{framework: pytorch, version: ...}` for AWS's own, which needs `region`."""
    queue: Queue | None = None
    """The queue that decides when the job starts: `{name: gpu, share: vision, priority: 10}`. A local run ignores it."""
    region: Text | None = None
    """The AWS region; by default that of the AWS configuration. A dry run needs it only to look up an image."""
    profile: Text | None = None
    """The profile of the AWS configuration to use."""
    code: Code | None = None
    training_input_mode: Text | None = "File"
    """The input mode of channels without `input_mode`."""
    hyperparameters: dict[Text, Setting] | None = None
    """Settings of the training, passed to the script as arguments; numbers are sent as written."""
    environment: dict[Text, Setting] | None = None
    """Environment variables of the container."""
    tags: dict[Text, Setting] | None = None
    channels: dict[Text, Channel] | None = None
    request: dict[Text, Any] | None = None
    """Further members of the request, by their own names; merged last. `null` deletes a member."""
    extends: tuple[Text, ...] | Text | None = None
    """One or more specs to start from, relative to this file; this file's keys replace theirs, and later specs win."""
    ignore: tuple[Text, ...] | None = None
    """Codes of warnings to suppress, or `aws-enum` for a value that the installed botocore does not know."""
    bucket_owners: dict[Text, AccountId] | None = None
    """The account that owns a bucket, by bucket. Those that the job writes to must belong to the role's account by default."""
    max_cost: Dollars | None = None
    """US dollars; a job that may cost more is submitted only if you agree on a terminal. 100 by default, which `--yes` lifts."""

    _variables: Variables = PrivateAttr(default_factory=Variables)
    _locate: Callable[[SpecPath], Location | None] | None = PrivateAttr(default=None)
    _team: Team | None = PrivateAttr(default=None)

    def __repr__(self) -> str:
        """The spec's name and file, without its settings, which may be secret."""
        file = self.locate(())
        return f"<JobSpec of {self.training_job_name or self.base_name}{f' in {file.file}' if file else ''}>"

    def locate(self, path: SpecPath) -> Location | None:
        """Return the location of `path`, or of the innermost key around it, in the file that it was read from."""
        return self._locate(path) if self._locate else None

    def folder_of(self, path: SpecPath) -> str:
        """Return the folder of the file in which `path` is written, from which its relative path starts."""
        location = self.locate(path)
        return str(Path(location.file).parent) if location else "."

    @property
    def variables(self) -> Variables:
        """The texts that name environment variables."""
        return self._variables

    @property
    def team(self) -> Team:
        """The files below the spec, with what they demand; empty if the spec was made without them."""
        return self._team or Team()

    @property
    def all_channels(self) -> Mapping[str, Channel]:
        """The channels by name, in the file's order."""
        return self.channels or {}


if TYPE_CHECKING:
    JobSpec = OwnKeys
else:
    _OF_AWS = fields(REQUEST) | fields(ALGORITHM)
    _KEYS = {key: _OF_AWS[spec_name(place[-1])] for key, place in members().items() if key not in OwnKeys.model_fields}
    JobSpec = create_model("JobSpec", __base__=OwnKeys, __doc__="One training job, as written.", **_KEYS)
