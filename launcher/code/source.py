"""What is known of Python source without running it."""

from __future__ import annotations

import ast
from collections import Counter

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
    own, found, pending = functions(tree), set[ast.AST](), list[ast.AST]([tree])
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        if isinstance(node, _Function):
            pending += [*node.decorator_list, *node.args.defaults]
        elif isinstance(node, ast.If) and "__name__" in map(last_name, ast.walk(node.test)):
            pending += node.body
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
            for each in own[name].body:
                pending.append(each)
                if any(isinstance(inner, ast.Return) for inner in ast.walk(each)):
                    break  # What follows may not be run.
    return found
