"""SageMaker's config files and variables as frozen dataclasses.

Three files below `input/config` and a few variables describe the job's hosts and channels; nothing is read at import. The
dataclasses hold plain dicts and tuples, so that they pickle for workers that are started by spawn.

The files differ by their age and author. A missing value gets the sagemaker-training toolkit 5.1.4's default; a damaged file is a
`ConfigError` that names it.
Source: AWS developer guide, "How Amazon SageMaker provides training information"; toolkit 5.1.4, `environment.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.job.channel_settings import attribute_names, host_shards, shuffled_channels
from sagemaker_channels.job.hyperparameters import decoded

MODES = ("File", "FastFile", "Pipe")
S3_CONNECTOR = "S3Connector"  # our own mode: read through s3torchconnector, without an InputDataConfig entry


@dataclass(frozen=True)
class Channel:
    """A channel, as the container sees it."""

    name: str
    mode: str  # File | FastFile | Pipe | S3Connector
    content_type: str | None
    distribution: str  # FullyReplicated | ShardedByS3Key
    record_wrapper: str  # None | RecordIO, as strings
    path: Path  # <root>/input/data/<name>; exists under File and FastFile only
    s3_uri: str | None = None  # only S3Connector has this and the next five
    style: str | None = None  # map | iterable
    max_objects: int | None = None  # read only N of the objects, evenly spaced
    region: str | None = None  # of the bucket; None: that of the variables
    endpoint: str | None = None  # the store's URL; None: that of the variables, or AWS
    named: int = 0  # how often its URI or folder had been named in this process, outside of a job: it is listed again
    # This host's index among those that receive the channel, and their number; None: all do.
    host_shard: tuple[int, int] | None = None
    attribute_names: tuple[str, ...] = ()  # of an augmented manifest's lines, in order, if they are known
    hosts: int | None = None  # hosts that receive the channel; None if that is unknown
    shuffled: bool = False  # a Pipe that is in another order after each start of the job

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder that the script has named, and no channel of a job."""
        return "/" in self.name and self.s3_uri is None

    @property
    def identity(self) -> str:
        """Its name in states, which for a folder outside of a job is its path: scripts and notebooks write that differently."""
        return os.path.realpath(self.path) if self.is_folder else self.name


@dataclass(frozen=True)
class InstanceGroup:
    """A group of hosts of one instance type; a homogeneous cluster is one group."""

    name: str
    instance_type: str
    hosts: tuple[str, ...]  # ordered as `Environment.hosts`


class _Below:
    """A path below an Environment's root."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, environment: Environment, owner: type) -> Path:
        return environment.root / self._name


@dataclass(frozen=True)
class Environment:
    """The job's settings, as SageMaker passes them to a container, and the container's paths."""

    root: Path
    job_name: str | None  # None outside a job
    hyperparameters: Mapping[str, Any]  # each value parsed as JSON, or the text if it is not JSON
    channels: Mapping[str, Channel]  # by name, in the files' order; without the channel of our code
    hosts: tuple[str, ...]  # by number, so that algo-10 follows algo-9; hosts[0] is the master
    current_host: str
    current_instance_type: str  # "local" if the file does not have it
    current_group: str
    instance_groups: tuple[InstanceGroup, ...]  # empty if the file is older than instance groups
    network_interface_name: str
    resource_config: Mapping[str, Any]  # the whole file; empty if there is none
    input_data_config: Mapping[str, Any]  # the whole file without the channel of our code; empty if there is none

    input_dir = _Below(contract.INPUT_DIR)
    config_dir = _Below(contract.CONFIG_DIR)
    data_dir = _Below(contract.DATA_DIR)
    model_dir = _Below(contract.MODEL_DIR)  # becomes model.tar.gz
    code_dir = _Below(contract.CODE_DIR)
    output_dir = _Below(contract.OUTPUT_DIR)
    output_data_dir = _Below(contract.OUTPUT_DATA_DIR)  # becomes output.tar.gz
    intermediate_dir = _Below(contract.INTERMEDIATE_DIR)
    failure_file = _Below(contract.FAILURE_FILE)  # its beginning becomes FailureReason
    checkpoint_dir = _Below(contract.CHECKPOINT_DIR)  # SageMaker keeps it equal to CheckpointConfig.S3Uri.

    @property
    def host_rank(self) -> int:
        """This host's index in `hosts`, from 0."""
        return self.hosts.index(self.current_host)


def load_environment(root: str | Path | None = None, environ: Mapping[str, str] | None = None) -> Environment:
    """Read this container's settings from SageMaker's files and variables. Missing files are no error.

    Args:
        root: The root folder; SAGEMAKER_BASE_DIR or /opt/ml if not given.
        environ: The variables; this process's if not given.

    Raises:
        ConfigError: A file or variable is damaged; the message names it.
    """
    environ = os.environ if environ is None else environ
    root = Path(root or environ.get(contract.BASE_DIR_VARIABLE) or contract.BASE_DIR)
    config_dir = root / contract.CONFIG_DIR
    hyperparameters = _read_object(config_dir / contract.HYPERPARAMETERS_FILE)
    input_data_config = _read_object(config_dir / contract.INPUT_DATA_CONFIG_FILE)
    input_data_config.pop(contract.CODE_CHANNEL, None)
    resource_path = config_dir / contract.RESOURCE_CONFIG_FILE
    resource_config = _read_object(resource_path)
    hosts, current_host, groups = _resources(resource_config, resource_path)
    shards = host_shards(environ, {group.name: group.hosts for group in groups}, current_host)
    attributes, shuffled = attribute_names(environ), shuffled_channels(environ)
    return Environment(
        root=root,
        job_name=environ.get("TRAINING_JOB_NAME"),
        hyperparameters={name: decoded(value) for name, value in hyperparameters.items()},
        channels={
            name: replace(
                channel,
                host_shard=shards.get(name),
                hosts=shards.get(name, (0, len(hosts)))[1],
                attribute_names=attributes.get(name, ()),
                shuffled=name in shuffled,
            )
            for name, channel in _channels(root, input_data_config, environ).items()
        },
        hosts=hosts,
        current_host=current_host,
        current_instance_type=resource_config.get("current_instance_type") or "local",
        current_group=resource_config.get("current_group_name") or contract.HOMOGENEOUS_GROUP,
        instance_groups=groups,
        network_interface_name=resource_config.get("network_interface_name") or "eth0",
        resource_config=resource_config,
        input_data_config=input_data_config,
    )


def host_order(host: str) -> tuple[list[str | int], str]:
    """Return a sort key for names by the numbers in them: SageMaker lists algo-10 before algo-2."""
    # re.split puts text at even and digits at odd indices, so text is compared with text.
    pieces = enumerate(re.split(r"([0-9]+)", host))
    return [int(piece) if index % 2 else piece for index, piece in pieces], host


def _read_object(path: Path) -> dict[str, Any]:
    """Return a file's JSON object in UTF-8; empty if there is no file or it holds null."""
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON in UTF-8: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if content is not None and not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a JSON object, got a {type(content).__name__}")
    return content or {}


def _resources(config: Mapping[str, Any], path: Path) -> tuple[tuple[str, ...], str, tuple[InstanceGroup, ...]]:
    """Return all hosts by number, this host, and the instance groups; only algo-1 if there is no file."""
    try:
        hosts = _by_number(config.get("hosts"))
        groups = tuple(
            InstanceGroup(
                name=group.get("instance_group_name") or contract.HOMOGENEOUS_GROUP,
                instance_type=group.get("instance_type") or "local",
                hosts=_by_number(group.get("hosts")),
            )
            for group in config.get("instance_groups") or []
        )
    except (TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: hosts or instance_groups are not as SageMaker writes them: {error}") from error
    current_host = config.get("current_host") or (hosts[0] if len(hosts) == 1 else None)
    if current_host is None and hosts:
        raise ConfigError(f"{path} has {len(hosts)} hosts but no current_host, so this host is unknown")
    current_host = current_host or "algo-1"
    if hosts and current_host not in hosts:
        raise ConfigError(f"{path}: current_host {current_host!r} is not one of hosts {list(hosts)}")
    return hosts or (current_host,), current_host, groups


def _by_number(hosts: list[str] | None) -> tuple[str, ...]:
    return tuple(sorted(hosts or (), key=host_order))


def _channels(root: Path, input_data_config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Channel]:
    """Return the channels of the file, then those of the launcher's variables."""
    channels = {}
    for name, entry in input_data_config.items():
        channels[name] = Channel(
            name=name,
            mode=_mode(str(entry.get("TrainingInputMode") or "File")),
            content_type=entry.get("ContentType"),
            distribution=entry.get("S3DistributionType") or "FullyReplicated",
            record_wrapper=entry.get("RecordWrapperType") or "None",
            path=root / contract.DATA_DIR / name,
        )
    variables = [name for name in environ if name.startswith(contract.CONNECTOR_VARIABLE)]
    for variable in sorted(variables, key=host_order):
        channel = _connector_channel(root, variable, environ[variable])
        if channel.name in channels:
            raise ConfigError(f"{variable}: a channel {channel.name!r} exists already")
        channels[channel.name] = channel
    return channels


def _mode(mode: str) -> str:
    """Return the mode in AWS's spelling, since local set-ups write `pipe`. An unknown mode is refused by `reader_of`."""
    return next((known for known in MODES if known.lower() == mode.lower()), mode)


def _connector_channel(root: Path, variable: str, text: str) -> Channel:
    try:
        entry = json.loads(text)
        name, s3_uri = entry[contract.CONNECTOR_CHANNEL], entry[contract.CONNECTOR_S3_URI]
        most = entry.get(contract.CONNECTOR_MAX_OBJECTS)
        return Channel(
            name=name,
            mode=entry.get(contract.CONNECTOR_READER, S3_CONNECTOR),
            content_type=entry.get(contract.CONNECTOR_CONTENT_TYPE),
            distribution="FullyReplicated",
            record_wrapper="None",
            path=root / contract.DATA_DIR / name,
            s3_uri=s3_uri,
            style=entry.get(contract.CONNECTOR_STYLE),
            max_objects=None if most is None else int(most),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Without the variable's content, which may be confidential.
        raise ConfigError(f"{variable} does not describe a connector channel: {error!r}") from error
