"""YAML text -> plain dicts and lists with the place of everything in them.

Built from the parser's events rather than with `yaml.load`, because load forgets places, takes the last of two equal keys
without a word, turns `012` into 10, and falls over on deep nesting. Scalars stay as written (`launcher.values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from launcher.errors import Location, Path, Problem, SpecError
from launcher.values import Plain

MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_VALUES = 100_000  # after aliases are followed: nine lines of YAML can stand for a billion values
_NULLS = {"", "~", "null", "Null", "NULL"}
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "map", "seq", "timestamp")}
_MERGE = "<<"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 8 times as fast where PyYAML was built with libyaml


@dataclass
class Tree:
    """A document: its value, and where each key and list item stands."""

    file: str
    value: Any = None
    places: dict[Path, Location] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)  # of keys: twice the same, or none at all
    lines: list[str] = field(default_factory=list, repr=False)

    def location(self, place: tuple[int, int]) -> Location:
        """A place of this document's own text."""
        line, column = place
        return Location(self.file, line, column, self.lines[line - 1] if line <= len(self.lines) else "")

    def locate(self, path: Path) -> Location | None:
        """The place of `path`, or of the nearest thing around it that was written."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path) or Location(self.file, 1, 1)


@dataclass
class _Node:
    """A value with its place; `value` is None, a string, a list of nodes, or a list of pairs of nodes."""

    kind: str  # scalar | sequence | mapping
    value: Any
    place: tuple[int, int]


def read_tree(text: str | bytes, file: str) -> Tree:
    """Parse one document. Raises SpecError where it is not YAML; what is wrong with keys is in the tree's problems."""
    tree = Tree(file)
    decoded = _decoded(text, file)
    tree.lines = decoded.splitlines()
    try:
        root = _compose(decoded, file)
        tree.places[()] = tree.location(root.place)
        tree.value = _plain(root, (), tree, iter(range(MAX_VALUES)))
    except SpecError as error:
        raise SpecError([_with_line(problem, tree.lines) for problem in error.problems]) from None
    return tree


def _with_line(problem: Problem, lines: list[str]) -> Problem:
    at = problem.location
    if at is None or not 0 < at.line <= len(lines):
        return problem
    return replace(problem, location=replace(at, text=lines[at.line - 1]))


def _decoded(source: str | bytes, file: str) -> str:
    """The text as UTF-8, checked for what no parser should see."""
    if len(source) > MAX_BYTES:
        raise _refused(file, (1, 1), f"is larger than {MAX_BYTES:,} bytes; a spec is a page", "yaml-too-large")
    if isinstance(source, str):
        text = source
    else:
        try:
            text = source.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            before = source[: error.start]
            place = (before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
            raise _refused(file, place, "is not UTF-8; save the file as UTF-8", "yaml-encoding") from None
    if found := re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]", text):
        message = f"holds the character U+{ord(found[0]):04X}, which YAML does not allow; delete it"
        raise _refused(file, _place_of(text, found.start()), message, "yaml-character")
    return text


def _place_of(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - (text.rfind("\n", 0, index) + 1) + 1


def _refused(file: str, place: tuple[int, int], message: str, code: str) -> SpecError:
    return SpecError([Problem((), message, code, location=Location(file, *place))])


def _compose(text: str, file: str) -> _Node:
    """The document as nodes, with aliases pointing at the node they name; no recursion, so no depth can break it."""
    try:
        root = _compose_events(text, file)
    except yaml.MarkedYAMLError as error:
        # What was begun and never ended is to be mended where it begins, not where the parser gave up.
        begun = (error.context or "").endswith(("simple key", "quoted scalar")) and error.context_mark is not None
        mark = error.context_mark if begun else error.problem_mark or error.context_mark
        place = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        raise _refused(file, place, _yaml_message(error, text, place[0]), "yaml-syntax") from None
    except yaml.YAMLError as error:
        raise _refused(file, (1, 1), f"is not YAML: {error}", "yaml-syntax") from None
    if root is None:
        raise _refused(file, (1, 1), "is empty; `launch --example s3-file` prints a spec to start from", "yaml-empty")
    return root


def _compose_events(text: str, file: str) -> _Node | None:
    root: _Node | None = None
    stack: list[_Node] = []
    anchors: dict[str, _Node] = {}
    events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
    for event in events:
        place = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise _refused(file, place, "starts a second document; one file is one job", "yaml-documents")
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _refused(file, place, f"*{event.anchor} names no anchor above it", "yaml-alias")
            node = anchors[event.anchor]
            if node in stack:
                raise _refused(file, place, f"*{event.anchor} stands inside what it names", "yaml-alias")
        else:
            node = _node(event, place, file)
            if event.anchor:
                anchors[event.anchor] = node
        if not stack:
            root = node if root is None else root
        else:
            stack[-1].value.append(node if node.place == place else _Node(node.kind, node.value, place))
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(node)
            if len(stack) > MAX_DEPTH:
                raise _refused(file, place, f"is nested deeper than {MAX_DEPTH} levels", "yaml-depth")
    return root


def _node(event: Any, place: tuple[int, int], file: str) -> _Node:
    if event.tag not in (None, "!") and event.tag not in _TAGS:
        message = f"the tag {_short_tag(event.tag)} is not taken here; write the plain value"
        raise _refused(file, place, message, "yaml-tag")
    if isinstance(event, yaml.ScalarEvent):
        plain = event.style in (None, "") and event.tag not in ("!", "tag:yaml.org,2002:str")
        value = (None if event.value in _NULLS else Plain(event.value)) if plain else event.value
        return _Node("scalar", value, place)
    return _Node("mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence", [], place)


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _plain(node: _Node, path: Path, tree: Tree, budget: Iterator[int]) -> Any:
    """A node as dict, list or scalar; notes the place of everything and the problems of keys."""
    if next(budget, None) is None:
        raise _refused(
            tree.file, node.place, f"stands for more than {MAX_VALUES:,} values through its aliases", "yaml-alias"
        )
    if node.kind == "scalar":
        return node.value
    if node.kind == "sequence":
        items = []
        for index, item in enumerate(node.value):
            below: Path = (*path, index)
            tree.places[below] = tree.location(item.place)
            items.append(_plain(item, below, tree, budget))
        return items
    values: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, item in zip(node.value[::2], node.value[1::2], strict=True):
        if key.kind != "scalar" or key.value is None:
            what = "an empty text" if key.kind == "scalar" else f"a {key.kind}"
            tree.problems.append(_problem(path, f"{what} cannot be a key; write a name", "yaml-key", tree, key.place))
        elif isinstance(key.value, Plain) and key.value == _MERGE:
            merged = {**_merged(item, path, tree, budget), **merged}
        else:
            name = str(key.value)
            below = (*path, name)
            if name in values:
                message = f"is written twice, the first time on line {tree.places[below].line}; delete one of them"
                tree.problems.append(_problem(below, message, "duplicate-key", tree, key.place))
                continue
            tree.places[below] = tree.location(key.place)
            values[name] = _plain(item, below, tree, budget)
    return {**merged, **values}


def _merged(node: _Node, path: Path, tree: Tree, budget: Iterator[int]) -> dict[str, Any]:
    """What `<<: *anchor` or `<<: [*one, *two]` brings in; earlier ones win, and the mapping's own keys win over all."""
    merged: dict[str, Any] = {}
    for item in node.value if node.kind == "sequence" else [node]:
        if item.kind != "mapping":
            tree.problems.append(_problem(path, "<< takes a mapping, such as *defaults", "yaml-key", tree, item.place))
            continue
        scratch = Tree(tree.file, lines=tree.lines)  # the problems of what is brought in are told where it stands
        for key, value in _plain(item, path, scratch, budget).items():
            if key not in merged:
                merged[key] = value
                own: Path = (*path, key)
                tree.places.update(
                    {
                        place: at
                        for place, at in scratch.places.items()
                        if place[: len(own)] == own and place not in tree.places
                    }
                )
    return merged


def _problem(path: Path, message: str, code: str, tree: Tree, place: tuple[int, int]) -> Problem:
    return Problem(path, message, code, location=tree.location(place))


def _yaml_message(error: yaml.MarkedYAMLError, text: str, line_number: int) -> str:
    """The parser's complaint in words that name the remedy."""
    lines = text.splitlines()
    line = lines[line_number - 1] if line_number <= len(lines) else ""
    problem = error.problem or ""
    if line[: len(line) - len(line.lstrip())].find("\t") >= 0 or "'\\t'" in problem:
        return "is indented with a tab; YAML takes spaces only"
    if "mapping values are not allowed" in problem:
        return (
            "has a ':' where none can stand; put the text in quotes, check the indentation, and look whether the line above"
            " lacks the space after its ':'"
        )
    if (error.context or "").endswith("simple key"):
        return "has no ': ' between key and value; write `key: value`, with a space"
    if (error.context or "").endswith("quoted scalar"):
        escape = "; in double quotes a backslash is written twice" if "escape" in problem else ""
        return f"has a quoted text that is wrong or never ends ({problem}){escape}; check its quotes"
    if "did not find expected" in problem or "could not find expected" in problem or "found unexpected" in problem:
        context = f" {error.context}" if error.context else ""
        return f"is not YAML:{context} {problem}; check the indentation, quotes and brackets around here"
    if "undefined tag handle" in problem or "cannot start any token" in problem:
        return f"is not YAML: {problem}; put the text in quotes"
    return f"is not YAML: {problem or error}"
