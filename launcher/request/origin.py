"""Where each member of a request is written in its spec: under a key, or under `request:`, which replaces what keys say."""

from __future__ import annotations

from dataclasses import dataclass, field

from launcher.errors import SpecPath
from launcher.spec.model import aws_name, spec_name
from launcher.spec.structures import OF_NO_MEMBERS, members

_VERBATIM = ("request", "hyperparameters", "environment")  # the names below these are AWS's or the user's own


@dataclass(frozen=True)
class Origin:
    """The places of a spec that a request was made from. `build_request` makes it."""

    written: dict[SpecPath, SpecPath] = field(
        default_factory=lambda: {place: (key,) for key, place in members().items()}
    )
    """Members of the request, each with its place in the spec. What is below a member is below its place, by its key."""
    replaced: dict[SpecPath, SpecPath] = field(default_factory=dict)
    """Places in the spec whose members `request:` sets or deletes, each with the place below it."""

    def place(self, path: SpecPath) -> SpecPath:
        """Return where a member is written, or would be if it is missing; for a key of the spec, itself or what replaces it."""
        if path and str(path[0])[:1].islower():  # a key of the spec: a member begins with a capital
            places = map(self.place_of_member, self.set_by(path))
            return next((place for place in places if place[0] == "request"), path)
        return self.place_of_member(path)

    def place_of_member(self, path: SpecPath) -> SpecPath:
        """Return where a member is written, whatever its name: one that `request:` misspells may begin like a key."""
        end = next((end for end in range(len(path), 0, -1) if path[:end] in self.written), 0)
        known, rest = self.written.get(path[:end], ()), path[end:]
        if known and known[0] in OF_NO_MEMBERS and rest[:1] and isinstance(rest[0], int):
            return known  # an item without a name
        verbatim = known and known[0] in _VERBATIM
        return (*known, *(part if verbatim or isinstance(part, int) else spec_name(part) for part in rest))

    def set_by(self, place: SpecPath) -> list[SpecPath]:
        """Return the members that a place of the spec sets, whether the request has them or not."""
        key = str(place[0])
        for end in range(len(place), 0, -1):
            found = [member for member, written in self.written.items() if written == place[:end]]
            if end == 1 and not found and key in members():
                found = [members()[key]]  # which `request:` sets instead
            if found:
                is_item = end == 1 and key in OF_NO_MEMBERS  # one without a member, since it is wrong or missing
                rest = place[end:] if key in _VERBATIM else () if is_item else tuple(map(_member, place[end:]))
                return [(*member, *rest) for member in found]
        return [tuple(map(_member, place))]

    def overlay(self, member: SpecPath) -> None:
        """Note that `request:` sets or deletes a member, and with it what is below."""
        place = ("request", *member)
        for below in [each for each in self.written if each[: len(member)] == member]:
            self.replaced[self.written.pop(below)] = place
        self.written[member] = place


def _member(part: str | int) -> str | int:
    return part if isinstance(part, int) else aws_name(part)
