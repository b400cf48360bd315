"""From YAML text to plain dicts and lists, with the location of each key and item.

Built from the parser's events rather than with `yaml.load`, which loses locations, silently uses the last of two equal
keys, turns `012` into 10, and fails on deep nesting. Scalars stay as written (`launcher.spec.values`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from launcher.errors import Location, Problem, SpecError, SpecPath, without_repetitions
from launcher.parsing.spec_text import SMART_QUOTES, checked_text, lines_of, refused
from launcher.spec.values import BOOLEANS, INTEGER, Plain
from launcher.tables import Loader

MAX_DEPTH = 50
MAX_VALUES = 5_000  # some five times what AWS allows; with aliases, nine lines of YAML can stand for a billion
NULLS = {"", "~", "null", "Null", "NULL"}
_YAML = "tag:yaml.org,2002:"
_UNQUOTED = {  # tags whose text is treated as unquoted -> the pattern that it has to match
    _YAML + "int": INTEGER.pattern,
    _YAML + "float": r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?",
    _YAML + "bool": "|".join(BOOLEANS),
}
_TAGS = {**dict.fromkeys([_YAML + "str", *_UNQUOTED], "scalar"), _YAML + "map": "mapping", _YAML + "seq": "sequence"}
_MERGE = "<<"
_Place = tuple[int, int]  # line and column, counted from 1
_CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029]"
_NO_SPACE = r"([\w.-]{1,60}):([^\s:/].{0,20})"


@dataclass
class Tree:
    """A document: its value, and the location of each key and list item."""

    file: str
    value: Any = None
    places: dict[SpecPath, Location] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)  # of keys, and of texts with misleading characters
    lines: list[str] = field(default_factory=list, repr=False)
    aliased: bool = False  # whether it has aliases, so that one written value can occur several times
    below: dict[SpecPath, Location] = field(default_factory=dict)  # texts that begin on a line below their key

    def location(self, place: _Place) -> Location:
        line, column = place
        return Location(self.file, line, column, self.lines[line - 1] if line <= len(self.lines) else "")

    def locate(self, path: SpecPath) -> Location:
        """Return the location of `path`, or of the innermost key around it that was written."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path) or Location(self.file, 1, 1)

    def report(self, path: SpecPath, message: str, code: str, place: _Place) -> None:
        """Add a problem with which the rest of the document can still be read."""
        self.problems.append(Problem(path, message, code, location=self.location(place)))

    def refused(self, place: _Place, message: str, code: str = "yaml-syntax") -> SpecError:
        """Return the error for a problem with which the document cannot be read."""
        return refused(self.file, place, message, code, self.lines)

    def empty(self) -> SpecError:
        return self.refused((1, 1), "is empty; `launch --example s3-file` prints a spec to start from", "yaml-empty")


class _Node:
    def __init__(self, kind: str, value: Any, place: _Place) -> None:
        self.kind = kind  # scalar, sequence or mapping
        self.value = value  # None, a string, a list of nodes, or a list of alternately keys and values
        self.place = place


def read_tree(text: str | bytes, file: str) -> Tree:
    """Parse one document. Raises SpecError if it is not YAML; problems of keys are in the tree's `problems`."""
    tree = Tree(file, lines=lines_of(text))
    try:
        root = _compose(checked_text(text, file), tree)
    except yaml.MarkedYAMLError as error:
        from launcher.parsing.yaml_errors import explained  # only mistakes need it

        place, message = explained(error, tree.lines)
        # libyaml 0.2.6 has a limit of its own, which it meets while it looks ahead.
        if "nesting depth" in str(error.problem):
            raise _too_deep(tree, place) from None
        raise tree.refused(place, message) from None
    if root is None:
        raise tree.empty()
    tree.places[()] = tree.location(root.place)
    tree.value = _plain(root, (), tree, iter(range(MAX_VALUES)))
    tree.problems = without_repetitions(tree.problems)
    return tree


def tree_of(spec: Mapping[str, Any], file: str) -> Tree:
    """Return data that was in no file as a document, whose values have no line."""
    return Tree(file, as_written(spec, file), {(): Location(file, 0, 0)})


def as_written(value: Any, file: str, depth: int = 0) -> Any:
    """Return data as a document has it: numbers and booleans as unquoted scalars. Raises SpecError if it is nested too deeply."""
    if depth > MAX_DEPTH:
        raise _too_deep(Tree(file), (0, 0))
    if isinstance(value, Mapping):
        return {str(key): as_written(item, file, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_written(item, file, depth + 1) for item in value]
    if isinstance(value, str):
        return value if isinstance(value, Plain) else str.__str__(value)  # the text of an enum's member
    if value is None:
        return None
    return Plain(json.dumps(value) if isinstance(value, bool | int | float) else value)


def _compose(text: str, tree: Tree) -> _Node | None:
    """Return the document as nodes, with an alias as the node that it names; not recursive, so depth cannot break it."""
    root: _Node | None = None
    stack: list[_Node] = []
    anchors: dict[str, _Node] = {}
    count = 0
    events: Iterator[Any] = yaml.parse(text, Loader=Loader)
    for event in events:
        place = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            if root is not None:
                message = "starts a second document, but a file describes one job; move it to its own file"
                raise tree.refused(place, message, "yaml-documents")
            if event.tags:
                raise tree.refused((place[0], 1), "is a directive, which no spec needs; delete the line")
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        count += 1
        if count > 2 * MAX_VALUES:  # half of the nodes may be keys
            raise _too_much(tree, place)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                message = f"*{event.anchor} has no anchor above it; put a text that begins with * in quotes"
                raise tree.refused(place, message, "yaml-alias")
            named, tree.aliased = anchors[event.anchor], True
            if named in stack:
                message = f"*{event.anchor} is inside the value that it names; write the values out"
                raise tree.refused(place, message, "yaml-alias")
            node = _Node(named.kind, named.value, place)
        else:
            node = _node(event, place, tree)
            if event.anchor:
                anchors[event.anchor] = node
        if stack:
            stack[-1].value.append(node)
        elif root is None:
            root = node
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(node)
            if len(stack) > MAX_DEPTH:
                raise _too_deep(tree, place)
    return root


def _too_much(tree: Tree, place: _Place) -> SpecError:
    code = "yaml-alias" if tree.aliased else "yaml-too-large"
    return tree.refused(place, f"is one value more than the {MAX_VALUES:,} allowed; shorten the spec", code)


def _too_deep(tree: Tree, place: _Place) -> SpecError:
    return tree.refused(place, f"is nested deeper than {MAX_DEPTH} levels; check the brackets", "yaml-depth")


def _node(event: Any, place: _Place, tree: Tree) -> _Node:
    kind = {yaml.MappingStartEvent: "mapping", yaml.SequenceStartEvent: "sequence"}.get(type(event), "scalar")
    form = _UNQUOTED.get(event.tag) if kind == "scalar" else None
    if event.tag not in (None, "!") and (
        _TAGS.get(event.tag) != kind or (form and not re.fullmatch(form, event.value))
    ):
        tag = re.sub(_CONTROL, "?", event.tag.replace(_YAML, "!!"))
        message = f"the tag {tag} is not supported; write the plain value, or a text that begins with ! in quotes"
        raise tree.refused(place, message, "yaml-tag")
    if kind != "scalar":
        return _Node(kind, [], place)
    if "\0" in event.value:
        raise tree.refused(place, "holds a NUL character, which AWS never accepts; delete it", "yaml-character")
    if event.tag not in _UNQUOTED and (event.style not in (None, "") or event.tag in ("!", _YAML + "str")):
        return _Node(kind, event.value, place)
    return _Node(kind, None if event.value in NULLS else Plain(_without_lookalikes(event, place, tree)), place)


def _without_lookalikes(event: Any, place: _Place, tree: Tree) -> str:
    """Return an unquoted text; characters that only look like YAML's space, quote or dash are reported and removed."""
    text: str = event.value
    for number, line in enumerate(tree.lines[place[0] : event.end_mark.line + 1], place[0] + 1):
        if line.lstrip().startswith("- "):
            message = "continues the text above, since it is indented deeper; align the '-' with the list's others"
            tree.report((), message, "yaml-syntax", (number, len(line) - len(line.lstrip()) + 1))
            return text
    if text.isascii():
        return text
    unseen = "".join({each for each in text if unicodedata.category(each) in ("Zs", "Cf")})  # or like spaces
    message, bare = "", text.strip(unseen)
    if bare != text:
        verb, odd = ("begins", text[0]) if bare == "" or text[0] != bare[0] else ("ends", text[-1])
        name = f"U+{ord(odd):04X} ({unicodedata.name(odd, 'unnamed').lower()})"
        message = f"{verb} with {name}, which is invisible; delete it, or put the text in quotes"
    elif text[0] in SMART_QUOTES:
        message = f"begins with {text[0]}, which is not a quote to YAML; write \" or ', or put it in quotes as well"
        bare = text.strip(SMART_QUOTES)
    elif re.match("[–—−] ", text):
        message = f"begins with {text[0]}, U+{ord(text[0]):04X}; begin an item of a list with '- '"
    if message:
        tree.report((), message, "yaml-character", place)
    return bare or "?"


def _plain(node: _Node, path: SpecPath, tree: Tree, left: Iterator[int], depth: int = 0) -> Any:
    """Return a node as dict, list or scalar, and add its locations and problems to the tree; `left` limits the values."""
    if next(left, None) is None:
        raise _too_much(tree, node.place)
    if depth > MAX_DEPTH:
        raise _too_deep(tree, node.place)
    if node.kind == "scalar":
        return node.value
    if node.kind == "sequence":
        tree.places |= {(*path, index): tree.location(item.place) for index, item in enumerate(node.value)}
        return [_plain(item, (*path, index), tree, left, depth + 1) for index, item in enumerate(node.value)]
    values: dict[str, Any] = {}
    merged: dict[str, Any] | None = None
    for key, item in zip(node.value[::2], node.value[1::2], strict=True):
        if isinstance(key.value, Plain) and key.value == _MERGE:
            if merged is not None:
                tree.report(path, "<< is written twice; write one, <<: [*one, *two]", "duplicate-key", key.place)
            merged = {**_merged(item, path, tree, left, depth + 1), **(merged or {})}
        elif wrong := _why_no_key(key, item):
            tree.report(path, wrong, "yaml-key", key.place)
        else:
            name = str(key.value)
            below = (*path, name)
            if name in values:
                message = f"is written twice, the first time on line {tree.places[below].line}; delete one of them"
                tree.report(below, message, "duplicate-key", key.place)
                continue
            tree.places[below] = tree.location(key.place)
            if item.kind == "scalar" and item.place[0] > key.place[0]:
                tree.below[below] = tree.location(item.place)
            values[name] = _plain(item, below, tree, left, depth + 1)
    return {**(merged or {}), **values}


def _why_no_key(key: _Node, item: _Node) -> str | None:
    if key.kind != "scalar":
        return f"a {'list' if key.kind == 'sequence' else key.kind} cannot be a key; write a name"
    if key.value is None:
        return "null cannot be a key; write a name, in quotes if it is null or ~"
    if not key.value.isprintable() and re.search(_CONTROL, key.value):
        return "a key cannot hold a line break or a control character; write one line of text"
    if isinstance(key.value, Plain) and item.value is None and (found := re.fullmatch(_NO_SPACE, key.value)):
        return f"has no space after its ':'; write `{found[1]}: {found[2]}`"
    return None


def _merged(node: _Node, path: SpecPath, tree: Tree, left: Iterator[int], depth: int) -> dict[str, Any]:
    """Return the keys that `<<: *anchor` or `<<: [*one, *two]` adds; earlier ones win, and the mapping's own keys first."""
    merged: dict[str, Any] = {}
    for item in node.value if node.kind == "sequence" else [node]:
        if item.kind != "mapping":
            tree.report(path, "<< takes a mapping, such as *defaults", "yaml-key", item.place)
            continue
        scratch = Tree(tree.file, lines=tree.lines)
        added = _plain(item, path, scratch, left, depth)
        new = added.keys() - merged.keys()
        merged.update((key, value) for key, value in added.items() if key in new)
        for place, at in scratch.places.items():
            if place[len(path)] in new:
                tree.places.setdefault(place, at)
        tree.problems += scratch.problems
    return merged
