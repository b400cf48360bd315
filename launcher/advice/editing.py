"""Setting and removing keys of a spec's text: every other character of it, comments included, stays as it is.

PyYAML states where each value begins and ends, and only these characters are replaced; writing the whole file again, by any
library, would change its formatting elsewhere. The caller parses the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

from launcher.errors import RefusedError, dotted


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
