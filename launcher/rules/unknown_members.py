"""The request as rules see it if it has errors: without wrong types, and noting which unknown members a rule reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.errors import SpecPath


class _Watched(dict[str, Any]):
    """A mapping in which some members are unknown; it notes which of these are read."""

    def __init__(self, known: dict[str, Any], unknown: Mapping[Any, SpecPath], read: set[SpecPath]) -> None:
        super().__init__(known)
        self._unknown, self._read = unknown, read

    def __contains__(self, member: object) -> bool:
        if member in self._unknown:
            self._read.add(self._unknown[member])
        return super().__contains__(member)

    def __getitem__(self, member: str) -> Any:
        self.__contains__(member)
        return super().__getitem__(member)

    def get(self, member: str, default: Any = None) -> Any:
        return super().get(member, default) if member in self else default


def watched(value: Any, unknown: Mapping[SpecPath, SpecPath], read: set[SpecPath]) -> Any:
    """Return a copy of a request, or of a part of it, that notes in `read` the keys of unknown members that are read.

    `unknown` has each member whose value is missing or wrong because of an error, with its key in the spec.
    """
    below: dict[str | int, dict[SpecPath, SpecPath]] = {}
    for place, written in unknown.items():
        below.setdefault(place[0], {})[place[1:]] = written
    if isinstance(value, list):
        return [
            watched(item, below[at], read) if at in below and () not in below[at] else item
            for at, item in enumerate(value)
        ]
    inner = {key for key, places in below.items() if () not in places and isinstance(value.get(key), dict | list)}
    copy = {key: watched(item, below[key], read) if key in inner else item for key, item in value.items()}
    return _Watched(copy, {key: next(iter(places.values())) for key, places in below.items() if key not in inner}, read)


def follows(place: SpecPath, unknown: SpecPath) -> bool:
    """Return whether a finding at `place` of a rule that read the unknown one may follow from it.

    A finding about one channel does not follow from another channel.
    """
    return not (_channel(place) and _channel(unknown)) or _channel(place) == _channel(unknown)


def _channel(place: SpecPath) -> SpecPath:
    """Return the place of the channel that a place is in; an empty one if it is in none."""
    return place[:2] if place[:1] == ("channels",) else place[:3] if place[:2] == ("request", "InputDataConfig") else ()


def without(value: Any, paths: list[SpecPath]) -> Any:
    """Return a copy of a request without the members at `paths`, whose type is wrong, so that rules can rely on types."""
    if not paths:
        return value
    wrong = {path[0] for path in paths if len(path) == 1}
    below = {key: [path[1:] for path in paths if path[0] == key] for key in {path[0] for path in paths} - wrong}
    if isinstance(value, list):
        return [without(item, below.get(index, [])) for index, item in enumerate(value) if index not in wrong]
    return {key: without(item, below.get(key, [])) for key, item in value.items() if key not in wrong}
