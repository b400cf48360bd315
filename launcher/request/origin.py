"""Where a member of the request is written in its spec: under a key, or under `request:`, which replaces what keys say.

Three names of one thing: a `member` is its place in the request (`("InputDataConfig", 0, "InputMode")`), a `key` is where the
spec's own keys say it (`("channels", "train", "input_mode")`), and its place is where this spec says it
(`("request", "InputDataConfig", 0, "InputMode")`, if that is so).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from launcher.errors import SpecPath
from launcher.request.view import ALGORITHM
from launcher.spec.channels import KINDS
from launcher.spec.channels.base import BaseChannel
from launcher.spec.model import aws_name, spec_name

# Keys whose member is not at the top of the request, or has a name of its own.
_MEMBERS: dict[str, tuple[str, ...]] = {
    "image": (ALGORITHM, "TrainingImage"),
    "algorithm_name": (ALGORITHM, "AlgorithmName"),
    "training_input_mode": (ALGORITHM, "TrainingInputMode"),
    "container_entrypoint": (ALGORITHM, "ContainerEntrypoint"),
    "container_arguments": (ALGORITHM, "ContainerArguments"),
    "metric_definitions": (ALGORITHM, "MetricDefinitions"),
    "enable_sage_maker_metrics_time_series": (ALGORITHM, "EnableSageMakerMetricsTimeSeries"),
    "training_image_config": (ALGORITHM, "TrainingImageConfig"),
    "hyperparameters": ("HyperParameters",),
    "channels": ("InputDataConfig",),
    "tags": ("Tags",),
    "environment": ("Environment",),
}
_KEYS: dict[SpecPath, SpecPath] = {member: (key,) for key, member in _MEMBERS.items()}
_LISTS = {"channels": "ChannelName", "tags": "Key"}  # keys whose member is a list -> the name of its items
_VERBATIM = ("hyperparameters", "environment")  # the names below these are the user's own
_LEFT_OUT = {"DataSource", *(kind.MEMBER for kind in KINDS.values())}  # members of an entry that no key names


def member_of(key: str) -> tuple[str, ...]:
    """Return the member of one of a spec's top-level keys."""
    return _MEMBERS.get(key, (aws_name(key),))


@dataclass
class Origin:
    """The way between the members of one request and the places of its spec. Made by `build_request`."""

    request: Mapping[str, Any]
    keys: dict[SpecPath, SpecPath]
    """Members that were made from a key of another name."""
    overlaid: dict[SpecPath, bool]
    """Members under `request:` -> whether they replace what keys say, rather than being merged with it."""

    def place(self, member: SpecPath) -> SpecPath:
        """Return where a member is written, or would be if it is missing."""
        replaced = any(self.overlaid.get(member[:end]) for end in range(1, len(member) + 1))
        return ("request", *member) if replaced or member in self.overlaid else self.key(member)

    def place_of_key(self, key: SpecPath) -> SpecPath:
        """Return where the spec sets a key's member: at the key, or under `request:`."""
        place = self.place(self.member(key)) if key and self.overlaid else key
        return place if place[:1] == ("request",) else key

    def key(self, member: SpecPath) -> SpecPath:
        """Return the spec key that sets a request member, even if the spec sets it under `request:`."""
        end = next((end for end in range(len(member), 0, -1) if member[:end] in self._keys), 0)
        known, rest = self._keys.get(member[:end], ()), member[end:]
        if known[:1] == ("tags",) or known == ("channels",) or rest == ("ChannelName",):
            return known
        if known and known[0] in _VERBATIM:
            return (*known, *rest)
        names = (spec_name(part) if isinstance(part, str) else part for part in rest if part not in _LEFT_OUT)
        return (*known, *names)

    def member(self, key: SpecPath) -> SpecPath:
        """Return the path of the request member that a spec key sets, even if the request lacks it."""
        first, *rest = key
        if first == "request":
            return tuple(rest)
        names = rest if first in _VERBATIM else [aws_name(part) if isinstance(part, str) else part for part in rest]
        if first not in _LISTS or not rest:
            return (*member_of(str(first)), *names)
        item = next((member for member, named in self._items.items() if named == key[:2]), None)
        if item is None:
            return member_of(first)
        if first == "tags" or len(rest) < 2:
            return item
        kind = next((kind for kind in KINDS.values() if kind.MEMBER and rest[1] in kind.model_fields), BaseChannel)
        return (*item, *kind.place(str(rest[1])), *names[2:])

    @cached_property
    def _items(self) -> dict[SpecPath, SpecPath]:
        """The key of each channel and tag by its member."""
        found: dict[SpecPath, SpecPath] = {}
        for key, name in _LISTS.items():
            (member,) = member_of(key)
            items = self.request.get(member)
            for index, item in enumerate(items if isinstance(items, list) else ()):
                if isinstance(item, dict) and isinstance(item.get(name), str):
                    found[member, index] = (key, item[name])
        return found

    @cached_property
    def _keys(self) -> dict[SpecPath, SpecPath]:
        return {**_KEYS, **self.keys, **self._items}
