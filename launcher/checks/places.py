"""Where in the spec a rule's finding stands when `request:` said it, and what of a request the rules get to see.

Rules name the places of the spec's own keys. A member that the escape hatch gives lies elsewhere in the file: under the
request's own names, and a channel as one of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.request.build import member_place, said_in_hatch
from launcher.spec.channels import KINDS
from launcher.spec.job import JobSpec
from launcher.spec.model import aws_name

_SOURCES = {kind.MEMBER for kind in KINDS.values() if kind.MEMBER}
_VERBATIM = ("hyperparameters", "environment")  # keys below these are the user's own


def hatch_index(spec: JobSpec) -> dict[tuple[str, str], int]:
    """Where channels and tags stand in the lists of `request:`: (member, name) -> index."""
    index: dict[tuple[str, str], int] = {}
    for member, name in (("InputDataConfig", "ChannelName"), ("Tags", "Key")):
        items = (spec.request or {}).get(member)
        for place, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and isinstance(item.get(name), str):
                index.setdefault((member, item[name]), place)
    return index


def said_at(path: SpecPath, spec: JobSpec, index: dict[tuple[str, str], int]) -> SpecPath:
    """The place below `request` where the member that `path` names was said, or `path` itself; `index` is hatch_index's."""
    hatch = spec.request
    if not hatch or not path or path[0] == "request":
        return path
    key, *rest = path
    if key in ("channels", "tags"):
        member = _item_place("InputDataConfig" if key == "channels" else "Tags", hatch, rest, index)
    else:
        names = rest if key in _VERBATIM else [aws_name(part) if isinstance(part, str) else part for part in rest]
        member = (*member_place(str(key)), *names)
    return ("request", *member) if said_in_hatch(member, path, spec) else path


def _item_place(member: str, hatch: Any, rest: list[str | int], index: dict[tuple[str, str], int]) -> SpecPath:
    """Where a channel or a tag, or a member of it, stands in a list of the hatch; the list where it is not in it."""
    place = index.get((member, str(rest[0]))) if rest else None
    if place is None:
        return (member,)
    if member == "Tags" or len(rest) < 2:
        return (member, place)
    name = aws_name(str(rest[1]))
    for source in _SOURCES:
        inner = _held(hatch[member][place], ("DataSource", source, name))
        if len(inner) == 3:
            return (member, place, *inner)
    return (member, place, name)


def _held(value: Any, path: SpecPath) -> SpecPath:
    """As much of `path` as stands below `value`."""
    for depth, part in enumerate(path):
        known = (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if not known:
            return path[:depth]
        value = value[part]
    return path


class _Watched(dict[str, Any]):
    """A mapping in which some members are unknown; it notes which of these are asked for."""

    def __init__(self, known: dict[str, Any], unknown: Mapping[Any, SpecPath], asked: set[SpecPath]) -> None:
        super().__init__(known)
        self._unknown, self._asked = unknown, asked

    def __contains__(self, member: object) -> bool:
        if member in self._unknown:
            self._asked.add(self._unknown[member])
        return super().__contains__(member)

    def __getitem__(self, member: str) -> Any:
        self.__contains__(member)
        return super().__getitem__(member)

    def get(self, member: str, default: Any = None) -> Any:
        return super().get(member, default) if member in self else default


def watched(value: Any, unknown: Mapping[SpecPath, SpecPath], asked: set[SpecPath]) -> Any:
    """A copy of a request, or of a part of it, that adds to `asked` the unknown places that are looked at.

    `unknown` has each place that holds something else than was meant, with its place in the spec, which `asked` gets.
    """
    below: dict[str | int, dict[SpecPath, SpecPath]] = {}
    for place, written in unknown.items():
        below.setdefault(place[0], {})[place[1:]] = written
    if isinstance(value, list):
        return [
            watched(item, below[at], asked) if at in below and () not in below[at] else item
            for at, item in enumerate(value)
        ]
    inner = {key for key, places in below.items() if () not in places and isinstance(value.get(key), dict | list)}
    copy = {key: watched(item, below[key], asked) if key in inner else item for key, item in value.items()}
    return _Watched(
        copy, {key: next(iter(places.values())) for key, places in below.items() if key not in inner}, asked
    )


def follows(path: SpecPath, unknown: SpecPath) -> bool:
    """Whether a finding at `path` of a rule that asked for the unknown place may follow from it.

    What is not known of one channel says nothing of another.
    """
    return not path[:1] == unknown[:1] == ("channels",) or path[:2] == unknown[:2]


def member_path(path: SpecPath, spec: JobSpec, request: dict[str, Any]) -> SpecPath:
    """The place in the request of a place in the spec's own keys, whether or not anything is there."""
    key, *rest = path
    if key == "request":
        return tuple(rest)
    names = [aws_name(part) if isinstance(part, str) else part for part in rest]
    if key != "channels" or not rest:
        return (*member_place(str(key)), *names)
    entries = request.get("InputDataConfig")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and entry.get("ChannelName") == rest[0]:
            channel = spec.all_channels.get(str(rest[0]))
            above = channel.place(str(rest[1]))[:-1] if channel and len(rest) > 1 else ()
            return ("InputDataConfig", index, *above, *names[1:])
    return ("InputDataConfig",)


def without(value: Any, paths: list[SpecPath]) -> Any:
    """A copy of a request without what stands at `paths`, which has the wrong type, so that the rules can rely on the types."""
    if not paths:
        return value
    wrong = {path[0] for path in paths if len(path) == 1}
    below = {key: [path[1:] for path in paths if path[0] == key] for key in {path[0] for path in paths} - wrong}
    if isinstance(value, list):
        return [without(item, below.get(index, [])) for index, item in enumerate(value) if index not in wrong]
    return {key: without(item, below.get(key, [])) for key, item in value.items() if key not in wrong}
