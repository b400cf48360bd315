"""The constants of the model, from constants.yaml, which has the unit, source and date of each."""

from __future__ import annotations

from typing import NamedTuple

from launcher.tables import read_table


class Constant(NamedTuple):
    """One constant; its meaning is part of its unit."""

    value: float
    unit: str
    source: str
    date: str

    @property
    def is_derived(self) -> bool:
        """Whether it was derived from AWS's benchmark."""
        return self.source.startswith("derived from ")


CONSTANTS: dict[str, Constant] = {
    name: Constant(known["value"] / known.get("per", 1), known["unit"], group["source"], str(group["date"]))
    for group in read_table(__file__, "constants")
    for name, known in group["constants"].items()
}
VALUES: dict[str, float] = {name: each.value for name, each in CONSTANTS.items()}
