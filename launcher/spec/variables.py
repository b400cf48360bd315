"""The places at which a spec names environment variables. Their values may be secrets, so they are shown as they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from launcher.errors import Problem, SpecPath

_WORD = 4  # characters; a shorter value is masked only as a whole word, since it occurs in others by chance
_LONG = 12  # characters; a shorter value can be a word of AWS (`FastFile`), so it is masked only where it was written
_QUOTED = 60  # characters; messages quote no more of a long value


@dataclass(frozen=True)
class Variables:
    """The texts of a spec in which `${NAME}` was replaced."""

    written: dict[SpecPath, str] = field(default_factory=dict)
    """The text as written, by its place in the spec; of a setting that is a list or mapping, its JSON."""
    values: dict[SpecPath, dict[str, str]] = field(default_factory=dict)
    """The values of the variables in it -> `${NAME}`, as written."""

    def masked(self, text: str, *places: SpecPath) -> str:
        """Return a text without the values: those of `places`, those of places below or around them, and all long ones."""
        if not self.values:
            return text
        found: dict[str, str] = {}
        for written, values in self.values.items():
            is_own = any(written[: len(place)] == place[: len(written)] for place in places if place)
            found |= {value: shown for value, shown in values.items() if is_own or len(value) >= _LONG}
        for value in sorted(found, key=len, reverse=True):
            text = _without(text, value, found[value])
        return text

    def mask_problems(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Yield the problems with masked messages."""
        for problem in problems:
            yield problem._replace(message=self.masked(problem.message, problem.path))


def _without(text: str, value: str, shown: str) -> str:
    for form in dict.fromkeys((value, repr(value)[1:-1], json.dumps(value)[1:-1])):
        if len(form) < _WORD:
            text = re.sub(rf"(?<![\w$]){re.escape(form)}(?!\w)", lambda _: shown, text)
            continue
        text = text.replace(form, shown)
        if "..." in text:  # a long value is quoted up to there
            begin = next((at for at in range(min(len(form), _QUOTED), _WORD, -1) if f"{form[:at]}..." in text), None)
            text = text if begin is None else text.replace(f"{form[:begin]}...", f"{shown}...")
    return text
