"""The values of `${NAME}` in a spec: environment variables, which may be secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from launcher.errors import Problem, SpecPath
from launcher.parsing.tree import Tree
from launcher.spec.values import Plain, as_text
from launcher.spec.variables import Variables
from sagemaker_channels import contract

_VARIABLE = re.compile(r"\$(\$(?=\{)|\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-((?:[^}$]|\$(?!\{))*))?\})?)")
_SECRET = re.compile(rf"((?<!\$){contract.SECRET_REFERENCE})")  # which the container reads: no variable of this machine
_NAMES_SECRET = re.compile(r"(?<!\$)\$\{(?:secretsmanager|ssm):[^}]*\}?")
_FORMS = "${secretsmanager:ID}, ${secretsmanager:ID#KEY} or ${ssm:NAME}"
# Mappings of settings: each is one text, as which it is shown.
_SETTINGS: tuple[SpecPath, ...] = (
    *(("environment",), ("hyperparameters",)),
    *(("request", "Environment"), ("request", "HyperParameters")),
)
_WHOLE = {("request",), *_SETTINGS}


def resolved(
    value: Any, path: SpecPath, tree: Tree, environ: Mapping[str, str], variables: Variables | None = None
) -> Any:
    """Return the value with every `${NAME}` and `${NAME:-default}` replaced, and `$${` as `${`; references to secrets stay.

    A variable in place of a whole mapping of settings stays unresolved: its value cannot be one, and may be a secret.
    `variables` gets the texts that name variables, and the values of these.
    """
    if path in _WHOLE and not isinstance(value, dict):
        return value
    if variables is not None and (isinstance(value, str) or path[:-1] in _SETTINGS):
        _note(value, path, environ, variables)
        variables = None  # a setting is one text, whatever is in it
    if isinstance(value, dict):
        return {key: resolved(item, (*path, key), tree, environ, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, (*path, index), tree, environ, variables) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value
    wrong: dict[str, str] = {}  # message -> code
    parts = _SECRET.split(value) if path[:-1] in _SETTINGS else [value]  # odd ones are references to secrets
    if any(found[2] is None and found[1] != "$" for part in parts[::2] for found in _VARIABLE.finditer(part)):
        message = "has a ${ that begins neither ${NAME} nor ${NAME:-text}; write $${ for the characters ${"
        if named := next((found for part in parts[::2] if (found := _NAMES_SECRET.search(part))), None):
            message = "names a secret, which only values of environment and hyperparameters can; write it there"
            if path[:-1] in _SETTINGS:
                message = f"has {named[0]}, but a secret is {_FORMS}, without spaces; correct it"
        tree.problems.append(Problem(path, message, "invalid-value", location=tree.locate(path)))
        return value

    def variable(found: re.Match[str]) -> str:
        name = found[2]
        if name is None:
            return "$"
        # As in a shell, `:-` takes the default for an empty variable too.
        known = environ.get(name) or found[4] if found[3] else environ.get(name)
        if known is None:
            message = f"names the variable {name}, which is not set; export it, or write ${{{name}:-default}}"
            wrong[message] = "variable-not-set"
        elif not known.isascii() and any("\ud800" <= character <= "\udfff" for character in known):
            wrong[f"names the variable {name}, which is not UTF-8; export it as UTF-8"] = "invalid-value"
        return known or ""

    # YAML needs quotes around ${NAME} inside braces, so they do not make the value a text.
    replaced = Plain("".join(part if at % 2 else _VARIABLE.sub(variable, part) for at, part in enumerate(parts)))
    tree.problems += [Problem(path, message, code, location=tree.locate(path)) for message, code in wrong.items()]
    return value if wrong else replaced


def _note(value: Any, path: SpecPath, environ: Mapping[str, str], variables: Variables) -> None:
    """Note a text, or a setting as its text, if it names a variable."""
    written = "" if value is None else as_text(value)
    if used := [found for found in _VARIABLE.finditer(written) if found[2]]:
        variables.written[path] = written
        values = {environ.get(found[2]) or found[4]: found[0] for found in used}
        variables.values[path] = {value: shown for value, shown in values.items() if value}
