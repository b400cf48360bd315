"""The places at which a spec names environment variables. Their values may be secrets, so they are shown as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from launcher.errors import Problem, SpecPath
from sagemaker_channels.mask import Mask

_LONG = 12  # characters; a shorter value can be a word of AWS (`FastFile`), so it is masked only where it was written


@dataclass(frozen=True)
class Variables:
    """The texts of a spec in which `${NAME}` was replaced."""

    written: dict[SpecPath, str] = field(default_factory=dict)
    """The text as written, by its place in the spec; of a setting that is a list or mapping, its JSON."""
    values: dict[SpecPath, dict[str, str]] = field(default_factory=dict)
    """The values of the variables in it -> `${NAME}`, as written."""

    def masked(self, text: str, *places: SpecPath) -> str:
        """Return a text without the values: those of `places`, those of places below or around them, and all long ones."""
        mask = Mask()
        for written, values in self.values.items():
            is_own = any(written[: len(place)] == place[: len(written)] for place in places if place)
            for value, shown in values.items():
                if is_own or len(value) >= _LONG:
                    mask.add(value, shown)
        return mask.apply(text)

    def mask_problems(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        for problem in problems:
            yield problem._replace(message=self.masked(problem.message, problem.path))
