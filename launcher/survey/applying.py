"""Writing advice into a spec: all of it or nothing, and only if the new spec plans and means what was advised.

Every other character of the spec, comments included, stays as it is: PyYAML states where each value begins and ends, and only these
characters are replaced. Writing the whole file again, by any library, would change its formatting elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from launcher.account.run import subject_of
from launcher.api import plan
from launcher.aws.account import Account
from launcher.errors import InputError, RefusedError, SpecError, dotted
from launcher.lists.files import replace_files, stamp
from launcher.parsing.parser import parse_spec
from launcher.spec.channels import KINDS
from launcher.survey.channels import Channel, channels_of
from launcher.survey.findings import Findings, reshard_command

_Way = tuple[str, str | None]  # way, and the style that it needs


def apply(file: Path, findings: Mapping[str, Findings]) -> list[str]:
    """Write the advised ways into a spec, and return the changes.

    Raises:
        RefusedError: A way cannot be written without the user; or the new spec would be wrong, or the file cannot be
            replaced. The file is then as it was.
    """
    reasons = [f"channels.{name}: {why}" for name, each in findings.items() if (why := _why_not(each))]
    if reasons:
        one = (
            "; nothing is changed, and the name of a channel after SPEC applies only its advice"
            if len(findings) > 1
            else ""
        )
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
    has_style = "style" in KINDS[_kind_of(way)].model_fields
    return way, "map" if has_style and found.use.random_access else None


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
    kind = KINDS[_kind_of(best.way)]
    if "file_system_id" in kind.model_fields and present != best.way:
        keys = "source, file_system_id, directory_path and vpc_config"
        return f"{best.way} needs a file system that you create; write {keys} as in `launch --example {kind.EXAMPLE}`"
    return None


def _edited(text: str, name: str, present: str | None, way: str) -> tuple[str, list[str]]:
    """Return the text in which a channel has another way, and the keys that it lost."""
    removed: list[str] = []
    here, kind = ("channels", name), _kind_of(way)
    if present is None or kind != _kind_of(present):
        text = set_key(text, (*here, "source"), kind)
        for key in _keys_of_others(kind):
            if (shorter := drop_key(text, (*here, key))) != text:
                text = shorter
                removed.append(key)
    return (set_key(text, (*here, "input_mode"), way) if way in KINDS[kind].PROVIDERS else text), removed


def _kind_of(way: str) -> str:
    """Return the `source` of the channels whose data arrive in a way; S3 for a way that is a place, such as S3Express."""
    return next((source for source, kind in KINDS.items() if way in kind.WAYS), "S3")


def _keys_of_others(kind: str) -> Iterator[str]:
    """Yield the keys of channels that a kind of channel does not have."""
    known = {key for each in KINDS.values() for key in each.model_fields}
    yield from sorted(known - KINDS[kind].model_fields.keys())


def set_key(text: str, path: Sequence[str], value: str) -> str:
    """Return the text with a plain text at a path of keys, which are added where they are missing.

    Raises:
        RefusedError: The place is an alias, or is not in a mapping.
    """
    node = _root(text)
    for depth, name in enumerate(path):
        if isinstance(node, yaml.ScalarNode) and depth == 2:  # `train: s3://...` is short for a mapping
            begin, end = node.start_mark.index, node.end_mark.index
            uri = text[begin:end] if not re.search(r"[][{},]", node.value) else json.dumps(node.value)
            pairs = (("s3_uri", uri), (name, _quoted(text, value)))
            inside = ", ".join(f"{_quoted(text, key)}: {each}" for key, each in pairs)
            return f"{text[:begin]}{{{inside}}}{text[end:]}"
        found = _pairs(node, path).get(name)
        if found is None:
            for inner in reversed(path[depth + 1 :]):
                value = f"{{{_quoted(text, inner)}: {_quoted(text, value)}}}"
            return _added(text, node, name, value)
        key, node = found
        if node.start_mark.index < key.start_mark.index:
            raise _refusal(path, "it is an alias (*), whose value other keys share")
        if text[node.start_mark.index] in "&!":
            raise _refusal(path, "it has an anchor (&) or a tag (!), and other keys may share its value")
    begin, end = node.start_mark.index, node.end_mark.index
    blank = " " * (begin > 0 and text[begin - 1] == ":")
    return f"{text[:begin]}{blank}{_quoted(text, value)}{text[end:]}"


def drop_key(text: str, path: Sequence[str]) -> str:
    """Return the text without a key, as it is if it has none; a comment behind it stays, on its own line."""
    node = key = value = _root(text)
    for name in path:
        node = value
        if not isinstance(node, yaml.MappingNode) or name not in (pairs := _pairs(node, path)):
            return text
        key, value = pairs[name]
    while isinstance(value, yaml.CollectionNode) and value.value and not value.flow_style:  # it ends at the next key
        value = value.value[-1][1] if isinstance(value, yaml.MappingNode) else value.value[-1]
    begin, end = key.start_mark.index, value.end_mark.index
    end = begin + len(text[begin:end].rstrip())
    if not node.flow_style:
        line, line_end, rest = text[end:].partition("\n")
        if line.lstrip().startswith("#"):
            return text[:begin] + line.lstrip() + line_end + rest
        return text[: text.rfind("\n", 0, begin) + 1] + rest
    if behind := re.match(r"\s*,\s*", text[end:]):
        return text[:begin] + text[end + behind.end() :]
    return re.sub(r"\s*,\s*$", "", text[:begin]) + text[end:]


def _root(text: str) -> Any:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise RefusedError(
            f"a key cannot be set there: {' '.join(str(error).split())}; edit the spec yourself"
        ) from None


def _pairs(node: Any, path: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    if not isinstance(node, yaml.MappingNode):
        raise _refusal(path, "the spec has no mapping there")
    return {key.value: (key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def _added(text: str, node: Any, name: str, value: str) -> str:
    """Return the text with a key at the beginning of a mapping."""
    name, value = _quoted(text, name), value if value.startswith("{") else _quoted(text, value)
    if node.flow_style:
        begin = node.start_mark.index + 1
        return f"{text[:begin]}{name}: {value}{', ' * bool(node.value)}{text[begin:]}"
    begin = node.value[0][0].start_mark.index
    line_end = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:begin]}{name}: {value}{line_end}{' ' * node.start_mark.column}{text[begin:]}"


def _quoted(text: str, value: str) -> str:
    """Return a name or text as JSON if the spec is JSON."""
    return json.dumps(value) if text.lstrip().startswith("{") and not value.startswith("{") else value


def _refusal(path: Sequence[str], why: str) -> RefusedError:
    return RefusedError(f"{dotted(tuple(path))}: cannot be set: {why}; edit the spec yourself")
