"""What a command does with a plan: one card per module, and one row in this table.

Here: asking AWS, asking for agreement, printing results. Not here: parsing (`commands`), and the work itself (`launcher.api`).
"""

from __future__ import annotations

import launcher
from launcher.commands.card import Command, Effect
from launcher.commands.effects import check, dry_run, local, submit
from launcher.commands.options import SpecOptions, open_account

# The last is what a command does if no flag chooses another.
EFFECTS: tuple[type[Effect], ...] = (dry_run.DryRun, check.Check, local.Local, submit.Submit)


class PlanningCommand(SpecOptions, Command):
    """A command that plans a job, and carries out the chosen effect with the plan."""

    exit_codes = (0, 2, 3, 4, 5)
    effects = EFFECTS

    def carry_out(self, plan: launcher.Plan) -> int:
        """Do it in the account of the spec, and return the exit code."""
        return self.effect.carry_out(plan, lambda: open_account(plan.spec.region, plan.spec.profile))
