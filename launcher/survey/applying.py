"""Writing advice into a spec: all of it or nothing, and only if the new spec plans and means what was advised."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.advice.editing import drop_key, set_key
from launcher.api import plan
from launcher.aws.account import Account
from launcher.errors import InputError, RefusedError, SpecError
from launcher.lists.files import replace_files, stamp
from launcher.parsing.parser import parse_spec
from launcher.preflight.runner import subject_of
from launcher.spec.channels import KINDS
from launcher.survey.channels import Channel, channels_of
from launcher.survey.findings import Findings, reshard_command

_MODES = ("File", "FastFile", "Pipe")
_EXAMPLES = {"EFS": "efs", "FSxLustre": "fsx-lustre"}
_Way = tuple[str, str | None]  # way, and the style that it needs


def apply(file: Path, findings: Mapping[str, Findings]) -> list[str]:
    """Write the advised ways into a spec, and return the changes.

    Raises:
        RefusedError: A way cannot be written without the user; or the new spec would be wrong, or the file cannot be
            replaced. The file is then as it was.
    """
    reasons = [f"channels.{name}: {why}" for name, each in findings.items() if (why := _why_not(each))]
    if reasons:
        one = "; nothing is changed, and --channel NAME applies the advice on one channel" if len(findings) > 1 else ""
        raise RefusedError("; ".join(reasons) + one)
    try:
        before, old = stamp(file), file.read_bytes().decode()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    text, ways = old, {name: _advised(each) for name, each in findings.items()}
    changed = {name: way for name, way in ways.items() if _present(findings[name].channel, way) != way}
    messages = []
    for name, (way, style) in changed.items():
        text, removed = _edited(text, name, findings[name].channel.present, way)
        text = set_key(text, ("channels", name, "style"), style) if style else text
        styled = f", style {style}" if style else ""
        messages.append(
            f"channels.{name} is now read by {way}{styled}" + f", without {' and '.join(removed)}" * bool(removed)
        )
    if not changed:
        return []
    try:
        new = plan(parse_spec(text, str(file), environ=os.environ))
    except SpecError as error:
        raise RefusedError(f"{file} is not changed, since the new spec would be wrong: {error}") from None
    now = {each.name: each for each in channels_of(subject_of(new, Account()))[0]}
    if wrong := [name for name, way in changed.items() if name not in now or _present(now[name], way) != way]:
        raise RefusedError(f"{file} is not changed: channels.{wrong[0]} is written in a way that only you can change")
    replace_files({}, {file: text.removesuffix("\n").split("\n")}, {file: before})
    return messages


def _advised(found: Findings) -> _Way:
    assert found.advice is not None
    way = found.advice.best.way
    return way, "map" if way == "S3Connector" and found.use.random_access else None


def _present(channel: Channel, wanted: _Way) -> tuple[str | None, str | None]:
    """Return the way of a channel, with its style if one is wanted."""
    return channel.present, channel.style if wanted[1] else None


def _why_not(found: Findings) -> str | None:
    """Return why the advice cannot be written into the spec, and what to do; None if it can."""
    if found.advice is None:
        return "there is no advice on it"
    if found.inventory and not found.inventory.is_complete:
        return "not all of its data were listed, and another way may be best for all of them: pass --full"
    best, present = found.advice.best, found.channel.present
    if best.shards:
        output = f"{str(found.channel.place).rstrip('/')}-shards/shards/"
        command = reshard_command(found.channel, best.shards)
        return f"reshard first (`{command}`), then write s3_uri: {output} and ask for advice again"
    if best.way == "S3Express":
        return "S3Express needs a directory bucket: copy the data there, write its s3_uri, and ask for advice again"
    if best.way in _EXAMPLES and present != best.way:
        keys = "source, file_system_id, directory_path and vpc_config"
        return f"{best.way} needs a file system that you create; write {keys} as in `launch --example {_EXAMPLES[best.way]}`"
    return None


def _edited(text: str, name: str, present: str | None, way: str) -> tuple[str, list[str]]:
    """Return the text in which a channel has another way, and the keys that it lost."""
    removed: list[str] = []
    here, kind = ("channels", name), "S3" if way in _MODES else way
    if kind != ("S3" if present in _MODES else present):
        text = set_key(text, (*here, "source"), kind)
        for key in _keys_of_others(kind):
            if (shorter := drop_key(text, (*here, key))) != text:
                text = shorter
                removed.append(key)
    return (set_key(text, (*here, "input_mode"), way) if way in _MODES else text), removed


def _keys_of_others(kind: str) -> Iterator[str]:
    """Yield the keys of channels that a kind of channel does not have."""
    known = {key for each in KINDS.values() for key in each.model_fields}
    yield from sorted(known - KINDS[kind].model_fields.keys())
