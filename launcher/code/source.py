"""What is known of Python source without running it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_PERHAPS = (ast.If, ast.Match, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def last_name(node: ast.AST | None) -> str:
    """Return the last name of `a.b.name` or `name`; empty for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def functions(tree: ast.Module) -> dict[str, _Function]:
    """Return the functions and methods whose name no other one in the file has."""
    found = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    count = Counter(node.name for node in found)
    return {node.name: node for node in found if count[node.name] == 1}


def surely_run(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes that are run whenever the file is: none below a condition, a loop or a handler, or called only there."""
    own, found, pending = functions(tree), set[ast.AST](), [*_to_an_end(tree.body)]
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        if isinstance(node, _Function):
            pending += [*node.decorator_list, *node.args.defaults]
        elif isinstance(node, ast.If) and "__name__" in map(last_name, ast.walk(node.test)):
            pending += _to_an_end(node.body)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            pending.append(node.test)
        elif isinstance(node, ast.For):
            pending.append(node.iter)
        elif isinstance(node, ast.BoolOp):
            pending.append(node.values[0])
        elif not isinstance(node, _PERHAPS) and not getattr(node, "handlers", None):
            pending += ast.iter_child_nodes(node)
        for name in (
            {last_name(each) for each in (node.func, *node.args)} & own.keys() if isinstance(node, ast.Call) else ()
        ):
            pending += _to_an_end(own[name].body)
    return found


def _to_an_end(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield statements up to one that may return or exit, after which the others may not be run."""
    for each in body:
        yield each
        if not isinstance(each, _Function | ast.ClassDef) and any(
            isinstance(inner, ast.Return)
            or (isinstance(inner, ast.Call) and last_name(inner.func) in ("exit", "_exit"))
            for inner in ast.walk(each)
        ):
            return
