"""The code that SageMaker's SDK, or `launch` itself, has packed for a job -> `code:` of a spec."""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import re
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from launcher.code.git import COMMIT, DIRTY
from launcher.spec.model import value_at
from sagemaker_channels import contract
from sagemaker_channels.job.hyperparameters import TOOLKIT_PREFIX, decoded

_CHANNELS = {"code", "sm_drivers"}
# What SDK v3 ignores if nothing else is written.
_IGNORED = {".env", ".git", "__pycache__", ".DS_Store", ".cache", ".ipynb_checkpoints"}
_TORCHRUN = "sagemaker_torch_distributed_enabled"
_TEXT = re.compile(r"""["']([^"'\\\n]{1,200})\\?["']""")  # also within a notebook's JSON


class Uploads(NamedTuple):
    """What a script has uploaded, and where its own files are."""

    folder: Path  # s3://bucket/key is bucket/key
    start: Path  # the folder in which the script's relative paths begin
    texts: set[str]  # those that it names: the files that it has sent are some of them, or below

    def at(self, uri: object) -> Path:
        """Return the file or folder of a URI in S3."""
        return self.folder / str(uri).removeprefix("s3://")


def uploads_of(script: Path, arguments: Sequence[str], folder: Path) -> Uploads:
    """Return what a script that has run has uploaded to a folder."""
    start = script.parent if script.suffix == ".ipynb" else Path()
    texts = {*_TEXT.findall(script.read_text(encoding="utf-8", errors="replace")), *arguments}
    return Uploads(folder, start, {text for text in texts if len(text) < 200})


def packed_code(request: Mapping[str, Any], uploads: Uploads | None = None) -> tuple[dict[str, Any], str]:
    """Return `code:` for the code that an SDK has packed, empty if it cannot be named, and a note. Other requests have neither."""
    parameters, channels = request.get("HyperParameters"), _uris(request)
    settings = {name: decoded(value) for name, value in parameters.items()} if isinstance(parameters, dict) else {}
    program = str(settings.get("sagemaker_program", "train.py"))
    if isinstance(place := settings.get("sagemaker_submit_directory"), str):
        code = _of_toolkit(place, program, settings, uploads)
        drop, copy = "the hyperparameters sagemaker_*", f"mkdir -p src && aws s3 cp {place} - | tar xz -C src"
    elif channels.keys() >= _CHANNELS:
        place = channels["code"]
        code = _of_drivers(channels["sm_drivers"], uploads, has_settings=bool(settings)) if uploads else {}
        drop = "the channels code and sm_drivers, container_entrypoint and container_arguments"
        copy = f"aws s3 cp --recursive {place} src"
    else:
        return {}, ""
    if code:
        get = "" if uploads else f"Get the code: {copy}. If it has a requirements.txt, name it in `code:`. "
        return code, f"{get}`code:` takes the place of {drop}"
    write = f"write code: {{directory: src, entry_point: {program}}} in place of {drop}"
    if uploads:
        return {}, f"The script's upload of its code was recorded, not sent; if its folder is src, {write}"
    return {}, f"The code is {place}; to change it: {copy}, and {write}"


def uploaded_data(request: Mapping[str, Any], uploads: Uploads) -> str:
    """Return a note on the channels whose data the script has uploaded, for which nothing is in S3; empty without such channels."""
    names = [name for name, uri in _uris(request).items() if name not in _CHANNELS and uri and uploads.at(uri).exists()]
    return f"Upload the data of {', '.join(names)}: the script's own upload was recorded, not sent" if names else ""


def with_own_code(spec: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the spec of a job that `launch` has submitted, with `code:` in place of what that became, and a note on it."""
    channels, words = dict(spec.get("channels") or {}), spec.get("container_arguments")
    if not (channel := channels.pop(contract.CODE_CHANNEL, None)) or not words:
        return spec, ""
    place = str(channel if isinstance(channel, str) else channel["s3_uri"])
    boot = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    boot.add_argument("entry_point", nargs="?")
    for option in ("--requirements", "--argument-style", "--arguments"):
        boot.add_argument(option)
    boot.add_argument("--command", nargs=argparse.REMAINDER, default=argparse.SUPPRESS)
    code = {"directory": "src", **vars(boot.parse_args(words))}
    if "command" in code:
        code["command"] = json.loads("".join(code["command"]))
    parent = place.rstrip("/").rpartition("/")[0]
    if parent != f"{value_at(spec, ('output_data_config', 's3_output_path'))}".rstrip("/") + "/code":
        code["s3_uri"] = parent
    tags = {name: value for name, value in (spec.get("tags") or {}).items() if name not in (COMMIT, DIRTY)}
    own = {"container_entrypoint": None, "container_arguments": None, "channels": channels, "tags": tags, "code": code}
    again = {name: value for name, value in {**spec, **own}.items() if value or name not in own}
    get = f"mkdir -p src && aws s3 cp {place}{contract.CODE_ARCHIVE} - | tar xz -C src --exclude {contract.BUNDLE_DIR}"
    return again, f"Get the code: {get}"


def _uris(request: Mapping[str, Any]) -> dict[str, Any]:
    entries = request.get("InputDataConfig")
    found = [each for each in (entries if isinstance(entries, list) else ()) if isinstance(each, dict)]
    return {str(each.get("ChannelName")): value_at(each, ("DataSource", "S3DataSource", "S3Uri")) for each in found}


def without_packed_code(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without what an SDK adds for its code. Texts that SDK v2 has written as JSON are plain again."""
    kept = dict(request)
    parameters, algorithm = request.get("HyperParameters") or {}, request.get("AlgorithmSpecification")
    if "sagemaker_submit_directory" in parameters:
        own = {name: text for name, text in parameters.items() if not name.startswith(TOOLKIT_PREFIX)}
        kept["HyperParameters"] = {name: _plain(text) for name, text in own.items()}
    else:
        entries = request["InputDataConfig"]
        kept["InputDataConfig"] = [each for each in entries if str(value_at(each, ("ChannelName",))) not in _CHANNELS]
        if isinstance(algorithm, dict):
            own = {name: value for name, value in algorithm.items() if not name.startswith("Container")}
            kept["AlgorithmSpecification"] = own
    empty = [name for name in ("HyperParameters", "InputDataConfig", "Environment") if kept.get(name) in ({}, [])]
    return {name: value for name, value in kept.items() if name not in empty}


def _plain(text: str) -> str:
    """Return a hyperparameter's text without JSON's quotes, unless it would then be read as something else."""
    value = decoded(text)
    return value if isinstance(value, str) and decoded(value) == value else text


def _of_toolkit(place: str, program: str, settings: Mapping[str, Any], uploads: Uploads | None) -> dict[str, Any]:
    """Return the code of SDK v2, which the image's toolkit starts; empty if it does so by more than python or torchrun."""
    launchers = {name for name, value in settings.items() if name.startswith(TOOLKIT_PREFIX) and value is True}
    start = {"command": f"torchrun {program}"} if launchers else {"entry_point": program}
    if not launchers <= {_TORCHRUN} or "sagemaker_program" not in settings:
        return {}
    if uploads is None:
        return {"directory": "src", **start}
    try:
        with tarfile.open(uploads.at(place)) as archive:
            sent = {posixpath.normpath(each.name) for each in archive if not each.isdir()}
    except (OSError, tarfile.TarError):
        return {}
    if "requirements.txt" in sent:
        start["requirements"] = "requirements.txt"
    folders, others = [], []
    for path in sorted((uploads.start / text for text in uploads.texts), key=lambda path: (_is_file(path), path)):
        if found := _sent_files(path, "", sent):
            folders.append(os.path.relpath(path))
        elif found := _sent_files(path, f"{path.name}/", sent):
            others.append(os.path.relpath(path))
        sent -= found
    if sent or len(folders) > 1:
        return {}
    return {**({"directory": folders[0]} if folders else {}), **({"dependencies": others} if others else {}), **start}


def _sent_files(path: Path, prefix: str, sent: set[str]) -> set[str]:
    """Return the files of a folder under their names in an archive; none if one of them is not among those sent."""
    if _is_file(path):
        return {path.name} & sent if prefix else set()
    found = set()
    for file in path.rglob("*"):
        if _is_file(file):
            name = prefix + file.relative_to(path).as_posix()
            if name not in sent:
                return set()
            found.add(name)
    return found


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - a text of the script may name what this user may not look at


def _of_drivers(place: object, uploads: Uploads, *, has_settings: bool) -> dict[str, Any]:
    """Return the code of SDK v3, which its own drivers start; empty if they do so by more than a command or torchrun."""
    drivers = uploads.at(place)
    try:
        source, launcher = (
            json.loads((drivers / name).read_text()) for name in ("sourcecode.json", "distributed.json")
        )
        is_torchrun = "torchrun_driver.py" in (drivers / "sm_train.sh").read_text() and not launcher.get("smp")
    except (OSError, ValueError):
        return {}
    folder, program = uploads.start / str(source.get("source_dir")), source.get("entry_script")
    if not folder.is_dir() or (launcher and not is_torchrun):
        return {}
    code: dict[str, Any] = {"directory": os.path.relpath(folder)}
    if source.get("requirements"):
        code["requirements"] = source["requirements"]
    if ignored := [each for each in source.get("ignore_patterns") or () if each not in _IGNORED]:
        code["exclude"] = ignored
    if source.get("command"):
        words = [source["command"], *(shlex.quote(str(each)) for each in source.get("args") or ())]
        return {**code, "command": " ".join(words), "arguments": "none"}
    count = launcher.get("process_count_per_node")
    torchrun = f"torchrun{f' --nproc-per-node {count}' if count else ''} {program}"
    code |= {"command": torchrun} if is_torchrun else {"entry_point": program}
    return {**code, "argument_style": "json"} if has_settings else code
