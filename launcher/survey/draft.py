"""A first spec for a user's folder, with a comment for each key: what `launch init` writes.

What the layers below a spec give, the SDK's configuration and the team's files, is not repeated in it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from launcher import bundled
from launcher.console import counted, human_bytes, plain
from launcher.importing.from_request import escaped
from launcher.parsing.layers import Sets, assign
from launcher.parsing.tree import tree_of
from launcher.request.image_support import versions_of_framework
from launcher.request.instance_types import instance_type
from launcher.request.serialization import as_yaml
from launcher.rules.channels.content_types import MIME_TYPES
from launcher.survey.folder import Folder, mode_of

if TYPE_CHECKING:
    from launcher.advice.facts import Inventory

READS_ALL = "entrypoints/read_channels.py"  # the bundled script that reports what it has read
# Formats of an inventory -> the channel's content type; an object of another format, such as .npz, which is a zip, is one sample.
_TYPES = {name: content_type for name, content_type in MIME_TYPES.items() if name != "zip"}
Places = Mapping[str, tuple[str | None, "Inventory | None"]]
Answers = Mapping[str, str | None]  # region, instance_type, role and bucket; None if the layers below the spec give it


def notes_on(folder: Path, found: Folder, places: Places, others: Sequence[str]) -> list[str]:
    """Return what the user should know of a folder and its channels beside its spec; `others` are folders in S3 in no channel."""
    mixed, csv = [], []
    for name, (_, inventory) in places.items():
        usual, *rest = inventory.formats if inventory and inventory.formats else ("",)
        if usual == "csv":
            csv.append(
                f"channel {name}: text/csv is read as lines, column names among them; if the files begin with names, read rows by"
                f" ChannelDataset({name!r}, format='csv; header=present')"
            )
        if rest and usual in _TYPES:
            mixed.append(
                f"channel {name} has {', '.join(rest)} beside {usual}; remove these files, or they are read as {usual}"
            )
    lists = f"lists of images: {', '.join(map(str, found.lists))}; `launch lst check` checks them"
    no_script = f"no training script was found in {folder}: the job runs {READS_ALL}"
    no_script += "; name yours, by code: {directory: ..., entry_point: ...}"
    left_over = others or [*map(str, found.left_over)]
    remedy = (
        "add a channel for what the script reads" if others else "move files of one split into a folder named for it"
    )
    beside = f"in no channel: {', '.join(left_over[:3])}{', ...' * bool(left_over[3:])}; {remedy}"
    return [lists] * bool(found.lists) + [beside] * bool(left_over) + mixed + csv + [no_script] * (found.script is None)


def draft(
    found: Folder, folder: Path, target: Path, answers: Answers, places: Places, below: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a spec, and for each key and channel a comment.

    Paths in the spec start at `target`, its file. `places` has URI and inventory of each channel; without a URI, the data are to be
    copied below the bucket. `below` has the values of the layers below the spec.
    """
    base = re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-")[:40].strip("-") or "job"
    output = (below.get("output_data_config") or {}).get("s3_output_path", "")
    bucket = answers["bucket"] or f"{str(output).rstrip('/')}/"
    code, why = _code(found, folder, target)
    resources = _resources(answers, places, below.get("resource_config") or {})
    image = {"framework": "pytorch", "version": versions_of_framework("pytorch")[-1].version}
    outputs = {"s3_output_path": f"{bucket}{base}/out/"} if answers["bucket"] else None
    rows = {
        "base_name": (base, "the job's name begins so"),
        "region": (answers["region"], "where the job and its bucket are"),
        "image": (None if "image" in below else image, "AWS's image, for CPUs or GPUs by the instance type"),
        "role_arn": (answers["role"], "the role that the job runs as"),
        "code": (code, why),
        "resource_config": (resources, "the machine; `launch cost` estimates its price"),
        "stopping_condition": (
            None if "stopping_condition" in below else {"max_runtime_in_seconds": "1d"},
            "the job is stopped after this time",
        ),
        "output_data_config": (outputs, "gets the model and the outputs"),
    }
    values = {key: value for key, (value, _) in rows.items() if value}
    comments = {key: comment for key, (_, comment) in rows.items()}
    values["channels"] = channels = {}
    for name, (uri, inventory) in (places or dict.fromkeys(found.reads or ["train"], (None, None))).items():
        channels[name], what = _channel(uri or f"{bucket}{base}/{name}/", inventory)
        comments[f"channels.{name}"] = f"{'' if uri else 'to be copied there: '}{what}"
    return values, comments


def _code(found: Folder, folder: Path, target: Path) -> tuple[dict[str, Any], str]:
    """Return `code:`, and in words what it does."""
    if found.script is None:
        why = "a bundled script, which reports what the channels hold: name yours, with its `directory`"
        return {"entry_point": READS_ALL}, why
    code: dict[str, Any] = {"directory": os.path.relpath(folder / found.code, target.parent)}
    script = str(found.script.relative_to(found.code))
    code |= {"command": f"torchrun {shlex.quote(script)}"} if found.needs_torchrun else {"entry_point": script}
    code |= {"requirements": found.requirements.name} if found.requirements else {}
    others = (file.with_name(f"*{file.suffix}") for file in found.left_over)
    # Data, and links that may not be followed.
    left_out = dict.fromkeys((*found.channels.values(), *others, *found.outside))
    inside = [path.relative_to(found.code) for path in left_out if path.is_relative_to(found.code)]
    code |= {"exclude": [f"/{path}" for path in inside if path.parts]} if inside else {}
    return code, "this folder is sent, and the script runs in it"


def _resources(answers: Answers, places: Places, below: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of `resource_config` is not below the spec."""
    machine = answers["instance_type"] or below.get("instance_type")
    if machine is None:  # groups or preferences of instances, which have counts of their own
        return {}
    resources = {"instance_type": answers["instance_type"], "instance_count": 1}
    if instance_type(machine).storage == "EBS":
        size = sum(inventory.bytes for _, inventory in places.values() if inventory)
        resources["volume_size_in_gb"] = max(30, ceil(1.5 * size / 1e9) + 10)
    return {key: value for key, value in resources.items() if value and (key == "instance_type" or key not in below)}


def _channel(uri: str, inventory: Inventory | None) -> tuple[dict[str, Any], str]:
    """Return a channel, and in words what it holds."""
    if inventory is None:
        return {"s3_uri": uri, "input_mode": "FastFile"}, "the data"
    usual = next(iter(inventory.formats), "")
    channel = {"s3_uri": uri, "input_mode": mode_of(inventory)}
    channel |= {"content_type": _TYPES[usual]} if usual in _TYPES else {}
    least = "" if inventory.is_complete else "at least "
    return channel, f"{least}{counted(inventory.objects, 'object')}, {human_bytes(inventory.bytes)}, {usual or 'empty'}"


def draft_text(values: dict[str, Any], comments: Mapping[str, str], sets: Sets) -> str:
    """Return the spec as YAML, with the keys of `--set`. Raises SpecError if one of these is wrong."""
    tree = tree_of(escaped(values), "job.yaml")
    assign(tree, sets)
    lines = [f"{bundled.SCHEMA_LINE}\n"]
    for key, value in tree.value.items():
        if key != "channels" or not isinstance(value, dict):
            lines.append(_commented({key: value}, comments.get(key)))
            continue
        lines.append("channels:\n")
        lines += [
            indent(_commented({name: each}, comments.get(f"channels.{name}")), "  ") for name, each in value.items()
        ]
    return "".join(lines)


def _commented(row: dict[str, Any], comment: str | None) -> str:
    """Return YAML of one key, with a comment at the end of its first line."""
    first, *rest = as_yaml(row).splitlines(keepends=True)
    return "".join([f"{first.rstrip()}  # {plain(comment)}\n" if comment else first, *rest])
