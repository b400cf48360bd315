"""`launch cost SPEC`: what the job will cost per hour and at most."""

from __future__ import annotations

import os
from typing import Any

import launcher
from launcher.commands.card import Command
from launcher.commands.options import SPEC, SpecOptions, flag, open_account
from launcher.console import print_line, say
from launcher.cost import table
from launcher.cost.estimate import Estimate, estimate, why_not
from launcher.cost.show import as_data, as_text
from launcher.cost.table import Price
from launcher.errors import RefusedError
from launcher.request.image_uris import image_region

_Change = tuple[str, dict[str, Any]]  # a line for people, and data for `--json`


class Cost(SpecOptions, Command):
    """Estimate what a spec's job costs, per hour and at most.

    Estimate the cost of the job of SPEC, from a bundled table in which each price has its source and date.

    The estimate is an upper bound, since the duration of a training is not known in advance. It needs no account and no
    network, except with --online.
    """

    example = "cost job.yaml"

    spec: str = SPEC
    online: bool = flag(help="Ask AWS's price API for today's prices, and show what has changed.")

    def run(self) -> int:
        plan = self.plan(self.spec)
        found, changes = _ask(plan) if self.online else (_estimated(plan, _region(plan)), [])
        if self.as_json:
            online_data = {"online": [data for _, data in changes]} if self.online else {}
            self.print_json(as_data(found) | online_data)
            return 0
        name = plan.spec.base_name or plan.spec.training_job_name or plan.request["TrainingJobName"]
        print_line("\n".join([*as_text(found, name), *(line for line, _ in changes)]))
        if found.unknown and not self.online:
            say("`--online` asks AWS for the prices missing from the table", "yellow")
        return 0


def _region(plan: launcher.Plan) -> str | None:
    """Return the region if it is known without boto3; an ECR image is stored in the region of its job."""
    image = plan.request.get("AlgorithmSpecification", {}).get("TrainingImage", "")
    configured = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return plan.spec.region or configured or image_region(image)


def _ask(plan: launcher.Plan) -> tuple[Estimate, list[_Change]]:
    """Return the estimate by today's prices, and the differences from the table. Raises AwsError."""
    from launcher.cost.online import API_REGION, ask_prices

    region = plan.spec.region or open_account(None, plan.spec.profile).region
    names = _estimated(plan, region).instance_types
    asked = ask_prices(open_account(API_REGION, plan.spec.profile), names, region)
    found = _estimated(plan, region, lambda name, _: asked.get(name))
    return found, [_change(name, asked.get(name), region) for name in names]


def _estimated(plan: launcher.Plan, region: str | None, lookup: table.Lookup = table.instance_price) -> Estimate:
    """Return the estimate. Raises RefusedError if the job is not billed by the instance hour."""
    found = estimate(plan.request, region, lookup)
    if found is None:
        raise RefusedError(f"no estimate is possible: {why_not(plan.request)}")
    return found


def _change(name: str, today: Price | None, region: str) -> _Change:
    known = table.instance_price(name, region)
    if known is not None and known.region != region:
        known = None
    data = {
        "instance_type": name,
        "usd": None if today is None else float(today.usd),
        "table": known.as_data() if known else None,
    }
    if today is None:
        return f"AWS has no on-demand price for training on {name} in {region} today", data
    if known is None:
        return f"the table has no price for {name} in {region}", data
    if known.usd == today.usd:
        return f"the table has the same price for {name} ({known})", data
    percent = (today.usd / known.usd - 1) * 100
    return f"the table has ${known.usd:f} for {name} ({known}); AWS's price differs by {percent:+.2f} %", data
