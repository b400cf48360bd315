"""What a command does with a plan: one card per module, and one row in this table.

Here: asking AWS, asking for agreement, printing results. Not here: parsing (`commands`), and the work itself (`launcher.api`).
"""

from launcher.commands.card import Effect
from launcher.commands.effects import check, dry_run, local, submit

# The last is what a command does if no flag chooses another.
EFFECTS: tuple[type[Effect], ...] = (dry_run.DryRun, check.Check, local.Local, submit.Submit)
