"""What the rules see of a request that has errors already: nothing of a wrong type, and a note of what they asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.errors import SpecPath


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


def without(value: Any, paths: list[SpecPath]) -> Any:
    """A copy of a request without what stands at `paths`, which has the wrong type, so that the rules can rely on the types."""
    if not paths:
        return value
    wrong = {path[0] for path in paths if len(path) == 1}
    below = {key: [path[1:] for path in paths if path[0] == key] for key in {path[0] for path in paths} - wrong}
    if isinstance(value, list):
        return [without(item, below.get(index, [])) for index, item in enumerate(value) if index not in wrong]
    return {key: without(item, below.get(key, [])) for key, item in value.items() if key not in wrong}
