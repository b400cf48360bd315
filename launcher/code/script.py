"""What a training script says of its job, found without running it: its syntax, its arguments, and the channels that it reads."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from launcher.code.script_arguments import arguments_of
from launcher.code.source import last_name, surely_run
from launcher.errors import Problem, SpecPath, nearest
from launcher.spec.model import mapping_at
from launcher.spec.own_keys import Code
from sagemaker_channels import contract
from sagemaker_channels.job.hyperparameters import command_line_arguments, decoded
from sagemaker_channels.start.command import Command, command_files

_MOST = 500_000  # characters, which are read in a few seconds; people write less
_ENCODING = re.compile(r"(.*\n)?[ \t\f]*#.*coding[:=]")  # in one of the first two lines, as Python finds it
_VARIABLE = re.compile(r"SM_CHANNEL_([\w-]+)")


def script_of(code: Code) -> str | None:
    """Return the script that is run, in Python or for a shell, as far as the spec tells: also of `python -m package.module`."""
    scripts = [code.entry_point] if code.entry_point is not None else command_files(code.command or ())
    if not scripts:
        words = code.command.split() if isinstance(code.command, str) else code.command or ()
        modules = [name for option, name in pairwise(words) if option == "-m"]
        scripts = [f"{name.replace('.', '/')}.py" for name in modules[-1:]]  # the others are launchers
    return scripts[0] if len(scripts) == 1 and scripts[0].endswith((".py", ".sh")) else None


def script_problems(code: Code, name: str, text: str, request: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what a script and the rest of its job do not agree on; `name` is what `script_of` returned for the code.

    Members of the request may be missing or wrong.
    """
    if len(text) > _MOST:
        return
    at: SpecPath = ("code", "entry_point" if code.command is None else "command")
    if name.endswith(".sh"):
        if "\r\n" in text:
            number = text[: text.index("\r\n")].count("\n") + 1
            message = (
                f"{name}:{number} ends in CR LF, as on Windows, of which a shell takes CR for a part of the command"
            )
            yield Problem(at, f"{message}; save it with LF alone", "script-syntax")
        return
    if re.search(r"[\udc80-\udcff]", text):
        if not _ENCODING.match(text):
            yield Problem(at, f"{name} is not UTF-8, which Python expects; save it as UTF-8", "script-syntax")
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes such as "\d"
            tree = ast.parse(text)
    except (RecursionError, MemoryError):  # brackets in brackets in brackets
        return
    except (SyntaxError, ValueError) as error:  # a NUL
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        yield Problem(at, f"{name}{line} is no Python {python}: {reason}; correct it", "script-syntax")
        return
    given, variables = (mapping_at(request, (member,)) for member in ("HyperParameters", "Environment"))
    inputs = request.get("InputDataConfig")
    entries = [each for each in inputs if isinstance(each, dict)] if isinstance(inputs, list) else []
    channels = [str(each["ChannelName"]) for each in entries if "ChannelName" in each]
    passed = [*map(str, (*given.values(), *variables.values())), str(code.command)]
    run = surely_run(tree)
    for message in _missing_channels(tree, run, channels, variables, passed):
        yield Problem(at, f"{name} {message}", "script-channel")
    words, arguments = _words_after(name, code.command), arguments_of(tree, run)
    if words is not None and arguments is not None and code.arguments != "name=value":
        options = {
            key: command_line_arguments({key: decoded(value)}, code.argument_style, code.arguments)
            for key, value in given.items()
        }
        yield from arguments.problems(name, at, {key: each for key, each in options.items() if each}, words)


def _words_after(name: str, command: Command | None) -> list[str] | None:
    """Return a script's own arguments in a command; None if only a shell knows them."""
    if command is None:
        return []
    word = name if name in command else name.removesuffix(".py").replace("/", ".")  # a module
    if not isinstance(command, str):
        return [*command[command.index(word) + 1 :]]
    before, _, after = command.strip().partition(word)
    after = after.replace(' "$@"', " ")
    return None if re.search(r"[$`;&|<>()'\"\\#*?~\[{\n]", before + after) else after.split()


def _missing_channels(
    tree: ast.Module,
    run: Collection[ast.AST],
    channels: Collection[str],
    variables: Collection[str],
    passed: Collection[str],
) -> Iterator[str]:
    """Yield the variables of channels that the job does not have, if the script surely needs them, or they mean another one."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and last_name(node.value) == "environ"]
    needed = [
        node.slice.value
        for node in reads
        if isinstance(node.slice, ast.Constant) and isinstance(node.ctx, ast.Load) and node in run
    ]
    wanted = {found[1]: found[0] for text in dict.fromkeys(texts) if (found := _VARIABLE.fullmatch(text))}
    # A channel's path can be made of parts, or be an argument.
    is_open = any(contract.DATA_DIR in text for text in passed) or any(
        text in (contract.DATA_DIR, f"{contract.DATA_DIR}/", "SM_CHANNELS", "SM_INPUT_DIR", "SM_CHANNEL_")
        for text in texts
    )
    unread = [
        channel
        for channel in channels
        if not is_open
        and channel.upper() not in map(str.upper, wanted)
        and not any(text == channel or f"{contract.DATA_DIR}/{channel}" in text for text in texts)
    ]
    for upper, variable in wanted.items():
        if variable in variables or upper.upper() in {channel.upper() for channel in channels}:
            continue
        meant = nearest(upper.lower(), unread)
        if meant or needed.count(variable) == texts.count(variable):  # else a default or a test beside it
            remedy = f"rename channel {meant}, or correct the script" if meant else "add it, or correct the script"
            yield f"reads {variable}, but there is no channel {upper.lower()} with a folder; {remedy}"
