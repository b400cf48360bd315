"""A request as it may be shown: with the values of environment variables as the spec writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.errors import SpecPath
from launcher.request.origin import Origin
from launcher.request.view import leaves
from launcher.spec.variables import Variables

MaskedMembers = Mapping[SpecPath, str]  # member of the request -> the text to show in its place


def masked_members(request: dict[str, Any], origin: Origin, variables: Variables) -> MaskedMembers:
    """Return the members that have values of environment variables, each with the text to show instead."""
    texts = leaves(request) if variables.values else ()
    shown = ((path, value, _shown(path, value, origin.place(path), variables)) for path, value in texts)
    return {path: str(text) for path, value, text in shown if text != value}


def _shown(path: SpecPath, value: Any, place: SpecPath, variables: Variables) -> Any:
    # These two are made from more than the text at their place.
    is_made = path == ("TrainingJobName",) or (path[0] == "Environment" and place[0] == "channels")
    is_name = path[0] == "Tags" and path[-1] == "Key"
    if place in variables.written and not is_made and not is_name:
        return variables.written[place]
    return variables.masked(value, place if is_made else ()) if isinstance(value, str) else value


def with_members(request: Any, masked: MaskedMembers, path: SpecPath = ()) -> Any:
    if isinstance(request, dict):
        return {name: with_members(item, masked, (*path, name)) for name, item in request.items()}
    if isinstance(request, list):
        return [with_members(item, masked, (*path, index)) for index, item in enumerate(request)]
    return masked.get(path, request)
