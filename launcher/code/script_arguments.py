"""The arguments of a training script, as its `add_argument` calls state them, judged by argparse itself.

A script whose parser is not all in its file, or not all literal, or perhaps not used, is not judged: a warning must be right.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NoReturn

from launcher.code.source import functions, last_name
from launcher.errors import Problem, SpecPath, did_you_mean, first_names

_TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "bool": bool}
_LITERAL = ("action", "nargs", "const", "dest", "required")  # what has to be known of an argument
_DECISIVE = ("add_help", "allow_abbrev")  # of a parser, beside what only its help shows
_HARMLESS = {*_DECISIVE, "description", "epilog", "formatter_class", "prog", "usage"}
# argparse's, up to a value, which can be a secret
_REFUSAL = re.compile(r"(?:argument (?P<of>[^:]+): )?(?P<what>[^:']*)")
_PARSING = ("parse_args", "parse_known_args", "parse_intermixed_args")
_GROUPS = ("add_argument_group", "add_mutually_exclusive_group")
_METHODS = {*_PARSING, *_GROUPS, "add_argument", "error", "exit", "format_help", "print_help", "print_usage"}
_FALSE = ("0", "false", "no", "none")


class _RefusedError(Exception):
    """What argparse would print before it ends the script."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _RefusedError(message or "prints what it asks for, and ends")

    def _print_message(self, message: str, file: object = None) -> None:
        pass


@dataclass
class Arguments:
    """The arguments of a script, of which none is required by the parser: each hyperparameter is parsed alone."""

    parser: argparse.ArgumentParser
    takes_all: bool  # by parse_known_args
    known: dict[str, dict[str, Any]] = field(default_factory=dict)  # option -> its settings
    required: dict[str, str] = field(default_factory=dict)  # the attribute -> the option
    has_positional: bool = False

    def add(self, names: Sequence[str], settings: dict[str, Any], *, is_sure: bool) -> None:
        """Add an argument, which is required only if it is surely added. Raises TypeError or ValueError if argparse does."""
        needs, nargs = settings.pop("required", False), settings.get("nargs")
        if nargs == argparse.REMAINDER or (self.takes_all and not is_sure):
            raise ValueError("whether it is refused depends on other arguments, or on whether this one is added")
        if not names[0].startswith("-"):
            self.has_positional = True
            needs = nargs not in ("?", "*") and settings.get("action", "store") == "store"
            settings["nargs"] = "?"
        if settings.get("action") == "version":
            settings["version"] = ""  # else argparse looks for the parser's own
        action = self.parser.add_argument(*names, **settings)
        self.known |= dict.fromkeys(names, settings)
        if needs and is_sure and action.dest != "local_rank":  # which deepspeed and older launchers pass
            self.required[action.dest] = max(names, key=len)

    def problems(
        self, name: str, at: SpecPath, hyperparameters: Mapping[str, Sequence[str]], words: Sequence[str]
    ) -> Iterator[Problem]:
        """Yield what the script would refuse of a job's hyperparameters, each given as its arguments, after a command's words."""
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
                one_spelling = any(each.replace("_", "-") == option.replace("_", "-") for each in self.known)
                if rest and rest[0] == passed[0] and (one_spelling or not self.takes_all):
                    near = did_you_mean(option, self.known) or "; delete it, or add the argument to the script"
                    reason = f"has no argument {option}{near}"
                elif rest and not self.takes_all and not self.has_positional:
                    reason = f"has a flag {option}, which takes no value; let it take one, such as type=int"
                elif self.known.get(option, {}).get("type") is bool and value.lower() in _FALSE:
                    reason = f"takes it for True, as type=bool does with any text but ''; use another type for {option}"
            if reason:
                yield Problem(("hyperparameters", key), f"{name} {reason}", "script-arguments")
        if missing := [option for dest, option in self.required.items() if dest not in given]:
            first = missing[0].lstrip("-")
            remedy = f"add hyperparameters.{first}" if first != missing[0] else "write it in code.command"
            yield Problem(at, f"{name} requires {first_names(missing)}; {remedy}", "script-arguments")


def arguments_of(tree: ast.Module, run: Set[ast.AST]) -> Arguments | None:
    """Return the arguments of a script that surely parses its command line, by one parser; None if they are not all known.

    `run` has the nodes that are surely run.
    """
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_name(node.func) == "ArgumentParser"]
    if len(made) != 1 or made[0].args or not _is_of_argparse(made[0].func, tree) or _changes_argv(tree):
        return None
    calls = _calls_on(made[0], tree)
    parsing = [call for method, call in calls if method in _PARSING]
    if run.isdisjoint(parsing) or not all(_is_of_command_line(call, tree) for call in parsing):
        return None
    own = {each.arg: each.value for each in made[0].keywords}
    if not own.keys() <= _HARMLESS:
        return None
    try:
        decisive = {name: ast.literal_eval(own[name]) for name in _DECISIVE if name in own}
        parser = _Parser(argument_default=argparse.SUPPRESS, **decisive)
        arguments = Arguments(parser, takes_all=any(method == "parse_known_args" for method, _ in calls))
        for method, call in calls:
            if method == "add_argument":
                names = [ast.literal_eval(each) for each in call.args]
                arguments.add(names, _settings(call), is_sure=call in run)
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
            found["type"] = _TYPES.get(each.value.id, str) if isinstance(each.value, ast.Name) else str
        elif each.arg in _LITERAL and last_name(each.value) in ("BooleanOptionalAction", "REMAINDER", "SUPPRESS"):
            found[each.arg] = getattr(argparse, last_name(each.value))
        elif each.arg in _LITERAL:
            found[each.arg] = ast.literal_eval(each.value)
        elif each.arg == "choices" and isinstance(each.value, ast.List | ast.Tuple | ast.Set):
            found["choices"] = ast.literal_eval(each.value)
    if any(
        each.arg == "type" and not (isinstance(each.value, ast.Name) and each.value.id in _TYPES)
        for each in call.keywords
    ):
        found.pop("choices", None)  # of what a function of the script returns
    return found


def _is_of_argparse(maker: ast.expr, tree: ast.Module) -> bool:
    """Return whether `ArgumentParser` or `x.ArgumentParser` is argparse's, not that of jsonargparse or simple_parsing."""
    names = {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
        if (node.module if isinstance(node, ast.ImportFrom) else each.name) == "argparse"
    }
    return last_name(getattr(maker, "value", maker)) in names


def _changes_argv(tree: ast.Module) -> bool:
    """Return whether the script does more with `sys.argv` than read a part of it, or its length."""
    nodes = [*ast.walk(tree)]
    read = [node.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
    read += [
        each for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "len" for each in node.args
    ]
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "argv" and node not in read)
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "sys"
            and any(each.name == "argv" for each in node.names)
        )
        for node in nodes
    )


def _is_of_command_line(parsing: ast.Call, tree: ast.Module) -> bool:
    """Return whether a call parses the command line: nothing, None, `sys.argv[1:]` or a parameter that is None by default."""
    given = [*parsing.args[:1], *(each.value for each in parsing.keywords if each.arg != "namespace")]
    text = ast.unparse(given[0]) if given and isinstance(given[0], ast.Name | ast.Subscript | ast.Constant) else ""
    nodes = [*ast.walk(tree)]
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    defaults = {
        name.arg: isinstance(default, ast.Constant) and default.value is None
        for node in nodes
        if isinstance(node, ast.arguments)
        for name, default in zip(reversed(node.args), reversed(node.defaults), strict=False)
    }
    return not given or text in ("None", "sys.argv[1:]") or (defaults.get(text, False) and text not in stored)


def _calls_on(made: ast.Call, tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """Return each call of the methods of a parser and its groups; none if other code gets it, which may add arguments."""
    own = functions(tree)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    loads = defaultdict[str, list[ast.AST]](list)
    for node in parents:
        if isinstance(getattr(node, "ctx", None), ast.Load):
            loads[last_name(node)].append(node)
    calls, held = list[tuple[str, ast.Call]](), list[ast.AST]([made])
    while held:
        node = held.pop()
        parent, new = parents[node], list[str]()
        if isinstance(parent, ast.Attribute):
            call = parents[parent]
            if not isinstance(call, ast.Call) or call.func is not parent or parent.attr not in _METHODS:
                return []
            calls.append((parent.attr, call))
            held += [call] * (parent.attr in _GROUPS)
        elif isinstance(parent, ast.Assign):
            new = [each.id if isinstance(each, ast.Name) else "" for each in parent.targets]
        elif isinstance(parent, ast.AnnAssign | ast.NamedExpr):
            new = [last_name(parent.target)]
        elif isinstance(parent, ast.Call) and node in parent.args and last_name(parent.func) in own:
            takes = [each.arg for each in own[last_name(parent.func)].args.args if each.arg not in ("self", "cls")]
            new = takes[parent.args.index(node) :][:1] or [""]
        elif isinstance(parent, ast.keyword) and last_name(getattr(parents[parent], "func", None)) in own:
            of = own[last_name(getattr(parents[parent], "func", None))].args
            new = [parent.arg or "" if parent.arg in {each.arg for each in (*of.args, *of.kwonlyargs)} else ""]
        elif isinstance(parent, ast.Return):
            while not isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                if parent not in parents:
                    return []  # outside of any function
                parent = parents[parent]
            made_by = [parents[each] for each in loads.pop(parent.name, ())]
            if not all(isinstance(each, ast.Call) and last_name(each.func) == parent.name for each in made_by):
                return []
            held += made_by
        elif not isinstance(parent, ast.Expr):
            return []
        if "" in new:
            return []
        held += [each for name in new for each in loads.pop(name, ())]
    return sorted(calls, key=lambda call: (call[1].lineno, call[1].col_offset))
