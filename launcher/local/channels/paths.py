"""Channels whose data the command line names: `--channel NAME=PATH` for a folder, a file or a manifest.

Each such channel gets its own bucket or file system in the local run's request, so its data never mixes with the data of the
spec's URIs; providers, the embedded server and the connector treat it like any other channel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launcher.console import shown_path
from launcher.errors import InputError, LaunchError, did_you_mean, did_you_mean_path, has_folder
from launcher.planning import Plan
from launcher.request.build import connector_variables
from launcher.request.view import file_system_source, s3_source, with_source
from launcher.s3.walk import holds_files
from sagemaker_channels import contract


@dataclass(frozen=True)
class ChannelPaths:
    """The plan in which the channels are read from their paths, and the folders that are their buckets or file systems."""

    plan: Plan
    paths: Mapping[str, Path]  # by channel
    folders: Mapping[str, Path]  # by the name of the bucket, which is also the id of the file system

    def named(self, text: str) -> str:
        """Return a message in which the files of these channels have their own paths, not those of buckets and links."""
        for name, path in self.paths.items():
            folder = shown_path(path if path.is_dir() else path.parent)
            for ours in (f"s3://{_own(name)}", str(self.folders[_own(name)])):
                text = text.replace(f"{ours}/", f"{folder}/")
        return text

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Let errors name the files of these channels by their own paths."""
        try:
            yield
        except LaunchError as error:
            error.args = (self.named(str(error)), *error.args[1:])
            raise


def with_channel_paths(plan: Plan, texts: Sequence[str], scratch: Path) -> ChannelPaths:
    """Change the plan so that the channels of `NAME=PATH` texts are read from their paths; the plan passed in stays as it is.

    `scratch` is a folder for links to single files. Raises InputError if a text does not name a channel of the plan, names one
    again, or the path is not data for that channel.
    """
    paths: dict[str, Path] = {}
    for text in texts:
        name, path = _parsed(plan, text)
        if name in paths:
            both = f"{shown_path(paths[name])} and {shown_path(path)}"
            raise InputError(f"--channel {text}: {name} is given twice, as {both}; keep one of them")
        paths[name] = path
    request = dict(plan.request)
    if "InputDataConfig" in request:
        request["InputDataConfig"] = [
            _entry(entry, paths[entry["ChannelName"]]) if entry["ChannelName"] in paths else entry
            for entry in request["InputDataConfig"]
        ]
    environment = dict(request.get("Environment", {}))
    for variable, name in connector_variables(plan.spec).items():
        if name in paths:
            settings = {**json.loads(environment[variable]), contract.CONNECTOR_S3_URI: _uri(name, paths[name])}
            environment[variable] = json.dumps(settings)
    if environment:
        request["Environment"] = environment
    folders = {_own(name): path if path.is_dir() else _linked(path, scratch / name) for name, path in paths.items()}
    return ChannelPaths(replace(plan, request=request), paths, folders)


def _parsed(plan: Plan, text: str) -> tuple[str, Path]:
    name, separator, path = text.partition("=")
    known = [each for each in plan.spec.all_channels if each != contract.CODE_CHANNEL]
    if not separator or not path:
        raise InputError(f"--channel {text}: write NAME=PATH, such as train=./images")
    if name not in known:
        near = did_you_mean(name, known) or f"; it has {', '.join(known) or 'none'}"
        raise InputError(f"--channel {text}: the job has no channel {name!r}{near}")
    found = Path(path).absolute()
    if not has_folder(found) and not found.exists():
        raise InputError(f"--channel {text}: there is no {path}{did_you_mean_path(found) or '; correct the path'}")
    if not found.is_file() and not found.is_dir():
        raise InputError(f"--channel {text}: {path} is neither a file nor a folder; correct the path")
    if found.is_dir() and not holds_files(found):
        raise InputError(f"--channel {text}: {path} holds no files; put the channel's files there")
    return name, found


def _entry(entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the request's entry of a channel, reading from the path."""
    name = entry["ChannelName"]
    if file_system_source(entry):
        if not path.is_dir():
            raise InputError(f"--channel {name}={path}: a channel of a file system needs a folder")
        return with_source(entry, FileSystemId=_own(name), DirectoryPath="/")
    data_type = s3_source(entry)["S3DataType"]
    if path.is_dir() and data_type == "AugmentedManifestFile":
        raise InputError(f"--channel {name}={path}: this channel needs its augmented manifest, which is a file")
    if path.is_dir() or data_type == "S3Prefix":  # FastFile needs a folder: that of the link to a single file
        return with_source(entry, S3DataType="S3Prefix", S3Uri=f"s3://{_own(name)}/")
    return with_source(entry, S3Uri=_uri(name, path))


def _linked(file: Path, folder: Path) -> Path:
    """Return the folder, in which a link to the file is made."""
    folder.mkdir(parents=True)
    (folder / file.name).symlink_to(file)
    return folder


def _uri(name: str, path: Path) -> str:
    """Return the URI of a channel's own bucket, or of the file in it."""
    return f"s3://{_own(name)}/" + ("" if path.is_dir() else path.name)


def _own(name: str) -> str:
    return f"channel-{name}"
