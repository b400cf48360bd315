"""The values of `${NAME}` in a spec: environment variables, which may be secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


def variables_in(value: Any, environ: Mapping[str, str]) -> Variables:
    """Return the texts of a spec that name variables, and the values of these."""
    variables = Variables(dict(_texts_with_variables(value, ())))
    for place, written in variables.written.items():
        used = {environ.get(found[2]) or found[4]: found[0] for found in _VARIABLE.finditer(written) if found[2]}
        variables.values[place] = {value: shown for value, shown in used.items() if value}
    return variables


def resolved(value: Any, path: SpecPath, tree: Tree, environ: Mapping[str, str]) -> Any:
    """Return the value with every `${NAME}` and `${NAME:-default}` replaced, and `$${` as `${`; references to secrets stay.

    A variable in place of a whole mapping of settings stays unresolved: its value cannot be one, and may be a secret.
    """
    if path in _WHOLE and not isinstance(value, dict):
        return value
    if isinstance(value, dict):
        return {key: resolved(item, (*path, key), tree, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, (*path, index), tree, environ) for index, item in enumerate(value)]
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


def _texts_with_variables(value: Any, path: SpecPath) -> Iterator[tuple[SpecPath, str]]:
    """Yield the place of each text that names a variable, and the text as written."""
    is_whole = path in _WHOLE and not isinstance(value, dict)
    if path[:-1] in _SETTINGS and isinstance(value, dict | list):
        value = as_text(value)
    if isinstance(value, dict) or (isinstance(value, list) and not is_whole):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts_with_variables(item, (*path, key))
    elif isinstance(value, str) and not is_whole and any(found[2] for found in _VARIABLE.finditer(value)):
        yield path, str(value)
