"""What follows a format's name: `csv; header=present; delimiter="|"`, in the way of a content type's parameters.

A format is named by one string, which a spec's `content_type` and inputdataconfig.json can carry and a DataLoader's
workers can be handed; what a format lets one choose is in the same string. Content types bring parameters that are
others' affair (`label_size`, `charset`): these are passed over. Behind a short name a parameter is meant for us, so one
that is not known is an error.

Source: RFC 9110, section 5.6.6; RFC 4180 for CSV's `header`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from entrypoints.errors import ChannelError

F = TypeVar("F")

_PARAMETER = re.compile(r"""\s*([\w-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;"]*)\s*(?:;|$)""", re.DOTALL)


@runtime_checkable
class Configurable(Protocol):
    """A format that lets one choose."""

    @property
    def OPTIONS(self) -> tuple[str, ...]:
        """The names of what can be chosen."""
        ...

    def with_options(self, options: Mapping[str, str], /) -> Any:
        """The format that does as chosen; raises ChannelError for a value that means nothing."""
        ...


def chosen(form: F, text: str) -> F:
    """The format with the parameters that `text`, a content type or a short name, has behind its first semicolon.

    Raises ChannelError for parameters that cannot be read and, behind a short name, for those that the format does not have.
    """
    name, _, rest = text.partition(";")
    known = form.OPTIONS if isinstance(form, Configurable) else ()
    options = parameters(rest, text)
    unknown = [key for key in options if key not in known]
    if unknown and "/" not in name:
        near = difflib.get_close_matches(unknown[0], known, 1)
        raise ChannelError(
            f"format {text!r}: {name.strip()} has no parameter {unknown[0]!r}"
            + (f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known) or 'none'}")
        )
    for key in unknown:
        del options[key]
    if not options or not isinstance(form, Configurable):
        return form
    configured: F = form.with_options(options)
    return configured


def parameters(rest: str, text: str) -> dict[str, str]:
    """`a=1; b="2;3"` as a dict, its names in lower case. Raises ChannelError where a short name's cannot be read."""
    found: dict[str, str] = {}
    place = 0
    while rest[place:].strip(" ;"):
        match = _PARAMETER.match(rest, place)
        if match is None:
            if "/" in text.partition(";")[0]:
                return found  # content types are written by hand, and most of them are not for us
            raise ChannelError(f'format {text!r}: write parameters as name=value or name="value", with ; between')
        value = match[2]
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        found[match[1].lower()] = value if match[2].startswith('"') else value.strip()
        place = match.end()
    return found


def text(name: str, options: Mapping[str, str]) -> str:
    """The opposite: a short name with what was chosen, in the way in which one writes it; what is empty was not."""
    return "; ".join([name, *(f"{key}={_quoted(value)}" for key, value in options.items() if value)])


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w.,-]+", value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def names(value: str) -> tuple[str, ...]:
    """`a, b` as names."""
    return tuple(name.strip() for name in value.split(",") if name.strip())
