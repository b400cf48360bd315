"""`launch SPEC`: plan a spec, and carry out one effect with it."""

from __future__ import annotations

from launcher.commands.effects import PlanningCommand
from launcher.commands.options import SPEC, option


class Run(PlanningCommand):
    """Plan a spec, and show it, run it here or submit it (you can omit `run`).

    Plan SPEC, a YAML file or - for standard input, and submit it, or only show, check or locally run it.
    """

    example = "job.yaml --dry-run"

    spec: str = SPEC
    name: str | None = option(help="The job's full name, instead of the spec's.")

    def run(self) -> int:
        return self.carry_out(self.plan(self.spec, self.name))
