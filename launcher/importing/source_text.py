"""From the text of a file with a request to plain data: JSON, a Python literal, or YAML.

Requests are kept as boto3's arguments in a notebook, as a printed response with `datetime(...)` in it, as JSON for the CLI,
as a JavaScript object (which reads as Python or as YAML), as a Kubernetes resource, or as a template of CloudFormation with its
short forms (`!Ref`). A program that computes a request is refused, with the line that computes.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from launcher.errors import InputError, SpecError, unreadable
from launcher.parsing.tree import read_tree
from launcher.spec.values import Plain

_SHORT_FORMS = "Ref|Sub|GetAtt|Join|ImportValue|Select|Split|If|FindInMap"
_MOST_BYTES = 16_000_000
_JSON_NAMES = {"true": True, "false": False, "null": None}  # JSON with comments or extra commas reads as Python
_PRINT_IT = "write its value there, or print the whole request with json.dumps and import that"


def text_of(path: str | Path) -> str:
    """Return a file's text, or that of standard input for `<stdin>`.

    Raises InputError, also if it has more than a template can have, since a device may never end.
    """
    try:
        with nullcontext(sys.stdin.buffer) if path == "<stdin>" else Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise OSError(None, "it has more than 16 MB, which no request and no template has")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8; save the file as UTF-8") from None


def read_text(text: str, file: str) -> Any:
    """Return a text's data, YAML's unquoted scalars as `Plain`. Raises InputError or SpecError if it is not data."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        not_json = error
    program = _program(text)
    if program is not None and (node := _only_value(program)) is not None:
        return _value(node)
    if program is not None and any(isinstance(each, ast.Import | ast.ImportFrom | ast.Assign) for each in program.body):
        raise InputError("is a program; save it as a *.py file, which `launch import` runs to record its request")
    if re.search(rf"[:-] +!({_SHORT_FORMS})\s", text):
        return _template(text)
    try:
        tree = read_tree(text, file)
    except SpecError:
        if text.lstrip()[:1] not in ("{", "["):
            raise
        raise InputError(f"is not JSON: {not_json}; save the request as JSON") from None
    if tree.problems:
        raise SpecError(tree.problems)
    return tree.value


def is_script(path: Path) -> bool:
    """Return whether a file is a notebook, or a Python program that imports something, rather than a request as a literal.

    Raises InputError for a broken notebook.
    """
    try:
        text = path.read_text(encoding="utf-8-sig") if path.suffix in (".py", ".ipynb") else ""
    except (OSError, UnicodeDecodeError):
        return False
    if path.suffix == ".ipynb":
        try:
            return bool(json.loads(text)["cells"][0]["cell_type"])
        except (ValueError, LookupError, TypeError):
            raise InputError(f"{path}: is not a notebook of format 4; open it in Jupyter and save it") from None
    program = _program(text)
    if program is None:  # such as one with a notebook's `!pip`; Python shows the line
        return re.search(r"^\s*(import|from)\s+\w", text, re.MULTILINE) is not None
    return any(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.walk(program))


class _Template(yaml.BaseLoader):
    """YAML with CloudFormation's short forms: `!Ref Role` is {"Ref": "Role"}, `!Sub x` is {"Fn::Sub": "x"}."""

    def construct_scalar(self, node: Any) -> str:
        text = str(super().construct_scalar(node))
        return text if node.style else Plain(text)

    def long_form(self, name: str, node: Any) -> dict[str, Any]:
        """Return a short form's mapping."""
        if node.id == "scalar":
            inner: Any = self.construct_scalar(node)
        else:
            build = self.construct_sequence if node.id == "sequence" else self.construct_mapping
            inner = build(node, deep=True)
        return {name if name == "Ref" else f"Fn::{name}": inner}


_Template.add_multi_constructor("!", _Template.long_form)


def _template(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Template)  # a BaseLoader makes only texts, lists and mappings
    except yaml.YAMLError as error:
        raise InputError(f"is not YAML: {' '.join(str(error).split())}; correct it") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as dict. Raises InputError for a repeated name, of which json would silently use the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise InputError(f"has {twice!r} twice in one object; delete one of them")
    return found


def _program(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns even about text that is not Python
            return ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _only_value(program: ast.Module) -> ast.expr | None:
    """Return the dict or the call that is the whole program, assigned to a name or not; None for other programs."""
    if len(program.body) != 1 or not isinstance(statement := program.body[0], ast.Expr | ast.Assign):
        return None
    return statement.value if isinstance(statement.value, ast.Dict | ast.Call) else None


def _value(node: ast.expr) -> Any:
    """Return the value of an expression of literals. Raises InputError for any other expression."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Dict() if None not in node.keys:
            return _object([(_key(key), _value(item)) for key, item in zip(node.keys, node.values, strict=True) if key])
        case ast.List() | ast.Tuple():
            return [_value(item) for item in node.elts]
        case ast.Name(id=name) if name in _JSON_NAMES:
            return _JSON_NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.BinOp(op=ast.Mult()):  # 24 * 60 * 60
            left, right = _value(node.left), _value(node.right)
            if isinstance(left, int) and isinstance(right, int):
                return left * right
        case ast.Call(func=ast.Name(id="datetime") | ast.Attribute(attr="datetime")):
            return None  # a time in a response, which no request has
        case ast.Call(args=[]) if node.keywords and all(each.arg for each in node.keywords):
            return {each.arg: _value(each.value) for each in node.keywords}
    raise InputError(f"line {node.lineno}: {_quoted(node)} is not a plain value; {_PRINT_IT}")


def _key(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id  # JavaScript's keys need no quotes
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise InputError(f"line {node.lineno}: {_quoted(node)} is not a member's name; {_PRINT_IT}")


def _quoted(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return f"`{text}`" if len(text) <= 50 else f"`{text[:47]}...`"
