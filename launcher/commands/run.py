"""`launch SPEC`: plan a spec, and carry out one effect with it."""

from __future__ import annotations

from launcher.commands.card import Command
from launcher.commands.effects import EFFECTS
from launcher.commands.options import SPEC, SpecOptions, open_account, option


class Run(SpecOptions, Command):
    """Plan a spec, and show it, run it here or submit it (you can omit `run`).

    Plan SPEC, a YAML file or - for standard input, and submit it, or only show, check or locally run it.
    """

    exit_codes = (0, 2, 3, 4, 5)
    effects = EFFECTS
    example = "job.yaml --dry-run"

    spec: str = SPEC
    name: str | None = option(help="The job's full name, instead of the spec's.")

    def run(self) -> int:
        plan = self.plan(self.spec, self.name)
        return self.effect.carry_out(plan, lambda: open_account(plan.spec.region, plan.spec.profile))
