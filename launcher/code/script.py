"""What a training script says of its job, found without running it: its syntax, its arguments, and the channels that it reads.

The arguments are judged by argparse itself, with a parser made of the script's `add_argument` calls. A script whose parser is not
all in its file, or not all literal, is not judged: a warning must be right.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from launcher.errors import Problem, SpecPath, did_you_mean, first_names, nearest
from launcher.spec.own_keys import Code
from sagemaker_channels import contract
from sagemaker_channels.job.hyperparameters import command_line_arguments, decoded
from sagemaker_channels.start.command import Command, command_files

_VARIABLE = re.compile(r"SM_CHANNEL_([\w-]+)")
_TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "bool": bool}
_LITERAL = ("action", "nargs", "const", "dest", "required")  # what has to be known of an argument
_HARMLESS = ("add_help", "allow_abbrev", "description", "epilog", "formatter_class", "prog", "usage")  # of a parser
_REFUSAL = re.compile(
    r"(?:argument (?P<of>[^:]+): )?(?P<what>[^:']*)"
)  # argparse's, up to a value, which can be a secret
_PARSING = ("parse_args", "parse_known_args", "parse_intermixed_args")
_FALSE = ("0", "false", "no", "none")


def script_of(code: Code) -> str | None:
    """Return the Python script that is run, as far as the spec tells."""
    scripts = [code.entry_point] if code.entry_point is not None else command_files(code.command or ())
    scripts = [each for each in scripts if each.endswith(".py")]
    return scripts[0] if len(scripts) == 1 else None


def script_problems(code: Code, name: str, text: str, request: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what a script and the rest of its job do not agree on.

    Args:
        code: The spec's section.
        name: What `script_of` returned for it.
        text: The script's source.
        request: The request, whose members may be missing or wrong.
    """
    at: SpecPath = ("code", "entry_point" if code.command is None else "command")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:  # a NUL; brackets in brackets in brackets
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        yield Problem(at, f"{name}{line} is no Python: {reason}; correct it", "script-syntax")
        return
    given, variables = (
        each if isinstance(each, dict) else {} for each in map(request.get, ("HyperParameters", "Environment"))
    )
    entries = [each for each in request.get("InputDataConfig") or () if isinstance(each, dict)]
    channels = [str(each["ChannelName"]) for each in entries if "ChannelName" in each]
    yield from _missing_channels(name, tree, at, channels, variables)
    words, arguments = _words_after(name, code.command), _arguments_of(tree)
    if words is not None and arguments is not None and code.arguments != "name=value":
        passed = {
            key: command_line_arguments({key: decoded(value)}, code.argument_style, code.arguments)
            for key, value in given.items()
        }
        yield from arguments.problems(name, at, {key: each for key, each in passed.items() if each}, words)


def _words_after(name: str, command: Command | None) -> list[str] | None:
    """Return a script's own arguments in a command; None if only a shell knows them."""
    if command is None:
        return []
    words = [*command] if not isinstance(command, str) else command.replace('"$@"', " ").split()
    if isinstance(command, str) and re.search(r"[$`;&|<>()'\"\\#*?~]", " ".join(words)):
        return None
    return words[words.index(name) + 1 :]


def _missing_channels(
    name: str, tree: ast.Module, at: SpecPath, channels: Collection[str], variables: Collection[str]
) -> Iterator[Problem]:
    """Yield the variables of channels that the job does not have, if the script surely needs them, or they mean another one."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    needed = [
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and _last(node.value) == "environ" and isinstance(node.slice, ast.Constant)
    ]
    wanted = {found[1]: found[0] for text in dict.fromkeys(texts) if (found := _VARIABLE.fullmatch(text))}
    unread = [
        channel
        for channel in channels
        if channel.upper() not in wanted
        and not any(text == channel or f"{contract.DATA_DIR}/{channel}" in text for text in texts)
    ]
    for upper, variable in wanted.items():
        if variable in variables or upper in {channel.upper() for channel in channels}:
            continue
        meant = nearest(upper.lower(), unread)
        if meant or needed.count(variable) == texts.count(variable):  # else a default or a test beside it
            remedy = f"rename channel {meant}, or correct the script" if meant else "add it, or correct the script"
            message = f"{name} reads {variable}, but there is no channel {upper.lower()}; {remedy}"
            yield Problem(at, message, "script-channel")


class _RefusedError(Exception):
    """What argparse would print before it ends the script."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)


@dataclass
class _Arguments:
    """The arguments of a script, of which none is required by the parser: each hyperparameter is parsed alone."""

    parser: argparse.ArgumentParser
    takes_all: bool  # by parse_known_args
    known: dict[str, dict[str, Any]] = field(default_factory=dict)  # option -> its settings
    required: dict[str, str] = field(default_factory=dict)  # the attribute -> the option

    def add(self, names: Sequence[str], settings: dict[str, Any]) -> None:
        """Add an argument. Raises TypeError or ValueError if argparse does not accept it."""
        is_option, needs = names[0].startswith("-"), settings.pop("required", False)
        if not is_option:
            needs = settings.get("nargs") not in ("?", "*", "...") and settings.get("action", "store") == "store"
            settings["nargs"] = settings.get("nargs") if settings.get("nargs") in ("*", "...") else "?"
        action = self.parser.add_argument(*names, **settings)
        self.known |= dict.fromkeys(names, settings)
        if needs:
            self.required[action.dest] = names[0]

    def problems(
        self, name: str, at: SpecPath, hyperparameters: Mapping[str, Sequence[str]], words: Sequence[str]
    ) -> Iterator[Problem]:
        given = set[str]()
        try:
            given |= vars(self.parser.parse_known_args([*words])[0]).keys()
        except _RefusedError:
            return  # The words of a command are the user's own.
        for key, passed in hyperparameters.items():
            option, _, value = passed[0].partition("=") if len(passed) == 1 else (passed[0], "", passed[1])
            reason = ""
            try:
                found, rest = self.parser.parse_known_args([*passed])
            except _RefusedError as error:
                refused = _REFUSAL.match(str(error))
                of, what = (refused["of"] or "", refused["what"]) if refused else ("", "")
                given |= {dest for dest, needs in self.required.items() if needs in of.split("/")}
                reason = f"would refuse {option} ({what.strip()}); correct the value"
            else:
                given |= vars(found).keys()
                if rest and not self.takes_all and rest[0] == passed[0]:
                    near = did_you_mean(option, self.known) or "; delete it, or add the argument to the script"
                    reason = f"has no argument {option}{near}"
                elif rest and not self.takes_all:
                    reason = f"has a flag {option}, which takes no value; let it take one, such as type=int"
                elif self.known.get(option, {}).get("type") is bool and value.lower() in _FALSE:
                    reason = f"takes it for True, as type=bool does with any text but ''; use another type for {option}"
            if reason:
                yield Problem(("hyperparameters", key), f"{name} {reason}", "script-arguments")
        if missing := [option for dest, option in self.required.items() if dest not in given]:
            message = f"{name} requires {first_names(missing)}; add hyperparameters.{missing[0].lstrip('-')}"
            yield Problem(at, message, "script-arguments")


def _arguments_of(tree: ast.Module) -> _Arguments | None:
    """Return the arguments of a script with one parser; None if they are not all known."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = [call for call in calls if _last(call.func) == "ArgumentParser"]
    parsing = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in _PARSING]
    called = [call.func for call in calls]
    if (
        len(made) != 1
        or not parsing
        or made[0].args
        or any(each.arg not in _HARMLESS for each in made[0].keywords)
        or any(isinstance(each, ast.List | ast.Tuple) for call in parsing for each in call.args)
        or any(_last(call.func) in ("add_subparsers", "set_defaults") for call in calls)
        or any(_last(node) == "add_argument" and node not in called for node in ast.walk(tree))
        or _leaves_the_file(tree, calls, made[0])
    ):
        return None
    takes_all = any(_last(call.func) == "parse_known_args" for call in parsing)
    abbreviated = next((each.value for each in made[0].keywords if each.arg == "allow_abbrev"), ast.Constant(True))
    parser = _Parser(
        add_help=False,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=not (isinstance(abbreviated, ast.Constant) and abbreviated.value is False),
    )
    arguments = _Arguments(parser, takes_all)
    try:
        for call in calls:
            if _last(call.func) == "add_argument":
                names = [ast.literal_eval(each) for each in call.args]
                arguments.add(names, _settings(call))
    except (ValueError, TypeError, LookupError, argparse.ArgumentError):
        return None
    return arguments


def _settings(call: ast.Call) -> dict[str, Any]:
    """Return the settings of an `add_argument` that decide what it accepts. Raises ValueError if one is not literal."""
    found: dict[str, Any] = {}
    for each in call.keywords:
        if each.arg is None:
            raise ValueError("**")
        if each.arg == "type":
            name = _last(each.value)
            found["type"] = _TYPES.get(name, str) if isinstance(each.value, ast.Name) else str
        elif _last(each.value) in ("BooleanOptionalAction", "REMAINDER", "SUPPRESS"):
            found[each.arg] = getattr(argparse, _last(each.value))
        elif each.arg in _LITERAL:
            found[each.arg] = ast.literal_eval(each.value)
        elif each.arg == "choices" and isinstance(each.value, ast.List | ast.Tuple | ast.Set):
            found["choices"] = ast.literal_eval(each.value)
    custom = any(each.arg == "type" and _last(each.value) not in _TYPES for each in call.keywords)
    if custom:
        found.pop("choices", None)
    found.pop("help", None)
    found.pop("default", None)
    return found


def _leaves_the_file(tree: ast.Module, calls: Sequence[ast.Call], made: ast.Call) -> bool:
    """Return whether the parser is given to code elsewhere, which may add arguments."""
    own = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    makers = {name for name, node in own.items() if any(each is made for each in ast.walk(node))}
    names = {
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and (node.value is made or (isinstance(node.value, ast.Call) and _last(node.value.func) in makers))
        for target in node.targets
    }
    for call in calls:  # Functions of the file that get the parser know it by a name of their own.
        if _last(call.func) in own and _gets(call, names):
            names |= {each.arg for each in own[_last(call.func)].args.args}
    return any(_gets(call, names) and _last(call.func) not in own for call in calls)


def _gets(call: ast.Call, names: Collection[str]) -> bool:
    return any(ast.unparse(each) in names for each in (*call.args, *(each.value for each in call.keywords)))


def _last(node: ast.AST) -> str:
    """Return the last name of `a.b.name` or `name`; empty for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
