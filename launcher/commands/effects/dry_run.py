"""`--dry-run`: print the request."""

from __future__ import annotations

import launcher
from launcher.commands.card import Effect, GetAccount, print_code_summary
from launcher.commands.options import flag
from launcher.console import print_line, say
from launcher.errors import dotted
from launcher.request.serialization import as_json, as_yaml


class DryRun(Effect):
    """Print the CreateTrainingJob request."""

    chosen_by = "dry_run"
    example = "job.yaml --dry-run"
    summary = "print the request"

    dry_run: bool = flag(help="Print the CreateTrainingJob request and do nothing else.")

    def carry_out(self, plan: launcher.Plan, account: GetAccount) -> int:
        shown = plan.request if self.show_secrets else plan.masked_request()
        print_line((as_json(shown) if self.as_json else as_yaml(shown)).removesuffix("\n"))
        if plan.masked and not self.show_secrets:
            names = ", ".join(map(dotted, plan.masked))
            say(f"warning: {names}: masked, so this is not the request to send; --show-secrets prints that", "yellow")
        print_code_summary(plan)
        return 0
