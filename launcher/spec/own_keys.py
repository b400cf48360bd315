"""The keys of a spec that are ours: no member of the request has their name, today or when AWS adds one."""

from __future__ import annotations

from typing import Any, Literal

from launcher.spec.model import Section
from launcher.spec.values import AccountId, Boolean, Dollars, Integer, Seconds, Text
from sagemaker_channels.start.command import name_of


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
    git: Boolean = True
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
    """The keys that have no member; if AWS adds one of such a name, it is written under `request:`."""

    base_name: Text | None = None
    """The beginning of the job's name; the time and a few random characters are added."""
    queue: Queue | None = None
    """The queue that decides when the job starts: `{name: gpu, share: vision, priority: 10}`. A local run ignores it."""
    region: Text | None = None
    """The AWS region; by default that of the AWS configuration. A dry run needs it only to look up an image."""
    profile: Text | None = None
    """The profile of the AWS configuration to use."""
    code: Code | None = None
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
