"""`aws sagemaker create-training-job` commands in a shell file -> their requests; nothing is run.

Understood are quotes, continued lines, comments, assignments of plain texts, and options with texts, JSON, `file://` and the AWS
CLI's shorthand (`Key=Value,Key=[a,b]`). Other variables, and commands in `$(...)` or backquotes, are unknown values. Loops,
conditions and here-documents are not understood: their commands are read as they are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launcher.errors import InputError
from launcher.importing.source_text import text_of
from launcher.importing.unknown import Unknowns
from launcher.spec.values import Plain

_TOKEN = re.compile(
    r"""(?P<comment>(?<![^\s])\#[^\n]*) | (?P<joined>\\\r?\n) | \\(?P<escaped>.) | '(?P<literal>[^']*)'
    | "(?P<quoted>(?:\\.|\$\([^)]*\)|`[^`]*`|[^"\\])*)"
    | (?P<end>\r?\n|;|&&|\|\|?|&) | (?P<space>[ \t]+) | (?P<bare>(?:\$\([^)]*\)|`[^`]*`|[^\s"'\\;&|`])+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_VARIABLE = re.compile(r"\$\(([^)]*)\)|\$\{(\w+)[^}]*\}|\$(\w+)|`[^`]*`")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_GLOBAL = {"region", "profile", "output", "endpoint-url", "query", "cli-input-json", "cli-input-yaml"}
_FLAGS = {"--no-cli-pager", "--debug", "--no-verify-ssl", "--no-paginate"}


def commands_in(text: str, folder: Path, unknowns: Unknowns) -> dict[str, Any]:
    """Return the request of each command, by its number. Raises InputError if there is no command, or a part cannot be read."""
    found: dict[str, Any] = {}
    values: dict[str, str] = {}
    for words in _commands(text, values, unknowns):
        if "sagemaker" in words and words[words.index("sagemaker") + 1 :][:1] == ["create-training-job"]:
            found[f"command {len(found) + 1}"] = _request(words[words.index("create-training-job") + 1 :], folder)
    if not found:
        raise InputError("has no command `aws sagemaker create-training-job`")
    return found


def _commands(text: str, values: dict[str, str], unknowns: Unknowns) -> Iterator[list[str]]:
    """Yield the words of each command; `values` gets the variables that are assigned."""

    def expanded(part: str) -> str:
        def value(used: re.Match[str]) -> str:
            name = used[2] or used[3]
            return values[name] if name in values else unknowns.number(f"${name}" if name else used[0], name or "")

        return _VARIABLE.sub(value, part)

    words: list[str] = []
    word: str | None = None
    for token in [*_TOKEN.finditer(text), None]:
        kind = token.lastgroup if token else "end"
        if kind in ("space", "end", "comment") and word is not None:
            assigned = _ASSIGNMENT.fullmatch(word)
            if assigned and all(map(_ASSIGNMENT.fullmatch, words)):
                values[assigned[1]] = assigned[2]
            else:
                words.append(word)
            word = None
        if kind == "end":
            if words:
                yield words
            words = []
        elif token and kind in ("escaped", "literal", "other"):
            word = (word or "") + token[kind]
        elif token and kind == "quoted":
            word = (word or "") + re.sub(r'\\([\\"`$])', r"\1", expanded(token[kind]))
        elif token and kind == "bare":
            word = (word or "") + expanded(token[kind])


def _request(words: list[str], folder: Path) -> dict[str, Any]:
    """Return the request of a command's options. Options for single members have priority over a file, as in the AWS CLI."""
    given: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--") and word not in _FLAGS:
            name, _, value = word[2:].partition("=")
            given[name] = [value] if value else []
        elif word not in _FLAGS and name:
            given[name].append(word)
    request: dict[str, Any] = {}
    if values := (given.get("cli-input-json") or given.get("cli-input-yaml")):
        request = _value("cli-input-json", values, folder)
    if given.get("region"):
        request["region"] = given["region"][0]
    for option, values in given.items():
        if option in _GLOBAL:
            continue
        if option.removeprefix("no-") in ("enable-network-isolation", "enable-managed-spot-training") or not values:
            request[option.removeprefix("no-").replace("-", "_")] = not option.startswith("no-")
        else:
            request[option.replace("-", "_")] = _value(option, values, folder)
    return request


def _value(option: str, words: list[str], folder: Path) -> Any:
    """Return an option's value: of a file, as JSON, in the shorthand, or a text."""
    if words[0].startswith("file://"):
        path = folder / words[0].removeprefix("file://")
        try:
            words = [text_of(path)]
        except InputError as error:
            raise InputError(f"--{option}: {error}") from None
    if words[0].lstrip()[:1] in ("{", "["):
        try:
            return json.loads(words[0])
        except ValueError as error:
            raise InputError(f"--{option}: is not JSON: {error}; correct it") from None
    if not re.match(r"[A-Za-z]\w*=", words[0]):
        is_list = len(words) > 1
        return [Plain(word) for word in words] if is_list else Plain(words[0])
    parts = []
    for word in words:
        part, end = _structure(option, word, 0)
        if end < len(word):  # a bracket that nothing opens
            raise _unreadable(option, word, end)
        parts.append(part)
    return parts if len(parts) > 1 or option in ("tags", "input-data-config") else parts[0]


def _structure(option: str, text: str, at: int) -> tuple[dict[str, Any], int]:
    """Return the mapping in the shorthand `Key=Value,Key={Key=Value},Key=[a,b]` from a position on, and where it ends."""
    found: dict[str, Any] = {}
    while at < len(text) and text[at] != "}":
        key = re.compile(r"\s*([^=,\s]+)=").match(text, at)
        if key is None:
            raise _unreadable(option, text, at)
        found[key[1]], at = _item(option, text, key.end())
        # `Key=a,b` is a list of two.
        while text[at : at + 1] == "," and not re.compile(r"\s*[\w-]+=").match(text, at + 1):
            item, at = _item(option, text, at + 1)
            found[key[1]] = [*(found[key[1]] if isinstance(found[key[1]], list) else [found[key[1]]]), item]
        at += text[at : at + 1] == ","
    return found, at


def _unreadable(option: str, text: str, at: int) -> InputError:
    return InputError(f"--{option}: cannot be read at {text[at : at + 20] or 'its end'!r}; write it as JSON")


def _item(option: str, text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] == "{":
        inner, at = _structure(option, text, at + 1)
        return inner, at + 1
    if text[at : at + 1] == "[":
        items: list[Any] = []
        at += 1
        while at < len(text) and text[at] != "]":
            item, at = _item(option, text, at)
            items.append(item)
            if text[at : at + 1] not in (",", "]"):
                raise _unreadable(option, text, at)
            at += text[at] == ","
        return items, at + 1
    quoted = re.compile(r"\"((?:\\.|[^\"])*)\"|'([^']*)'|([^,\]}]*)").match(text, at)
    assert quoted is not None  # the last form matches an empty text
    return Plain(quoted[1] or quoted[2] or quoted[3] or ""), quoted.end()
