"""`launch cost SPEC`: what the job will cost per hour and at most."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import launcher
from launcher.commands import options
from launcher.console import print_line, say
from launcher.cost.estimate import Estimate, estimate, why_not
from launcher.cost.prices import API_REGION, Lookup, Price, ask_prices, instance_price
from launcher.cost.show import as_data, as_text
from launcher.errors import InputError, RefusedError
from launcher.parsing.spec_text import is_spec
from launcher.request.image_uris import image_region

_Change = tuple[str, dict[str, Any]]  # a line for people, and data for `--json`


@options.command("cost", "cost job.yaml")
@options.spec_argument
@options.flag("--online", help="Ask AWS's price API for today's prices, and show what has changed.")
@options.spec_options
@options.json_option
def cost(spec: str, online: bool, reading: options.SpecOptions, as_json: bool) -> None:
    """Estimate what a spec's job costs, per hour and at most.

    The estimate for the job of SPEC is from a bundled table in which each price has its source and date. It is an upper bound,
    since the duration of a training is not known in advance. It needs no account and no network, except with --online. What a
    job has cost is shown by `launch status`.
    """
    if not is_spec(spec) and not Path(spec).exists():
        raise InputError(f"{spec!r} is not a spec; `launch status {spec}` shows what a job of this name has cost")
    plan = reading.plan(spec)
    found, changes = _ask(plan) if online else (_estimated(plan, _region(plan)), [])
    if as_json:
        options.print_json(as_data(found) | ({"online": [data for _, data in changes]} if online else {}))
        return
    name = plan.spec.base_name or plan.spec.training_job_name or plan.request["TrainingJobName"]
    print_line("\n".join([*as_text(found, name), *(line for line, _ in changes)]))
    if found.unknown and not online:
        say("`--online` asks AWS for the prices missing from the table", "yellow")


def _region(plan: launcher.Plan) -> str | None:
    """Return the region if it is known without boto3; an ECR image is stored in the region of its job."""
    image = plan.request.get("AlgorithmSpecification", {}).get("TrainingImage", "")
    configured = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return plan.spec.region or configured or image_region(image)


def _ask(plan: launcher.Plan) -> tuple[Estimate, list[_Change]]:
    """Return the estimate by today's prices, and the differences from the table. Raises AwsError."""
    region = plan.spec.region or options.open_account(None, plan.spec.profile).region
    names = _estimated(plan, region).instance_types
    asked = ask_prices(options.open_account(API_REGION, plan.spec.profile), names, region)
    found = _estimated(plan, region, lambda name, _: asked.get(name))
    return found, [_change(name, asked.get(name), region) for name in names]


def _estimated(plan: launcher.Plan, region: str | None, lookup: Lookup = instance_price) -> Estimate:
    """Return the estimate. Raises RefusedError if the job is not billed by the instance hour."""
    found = estimate(plan.request, region, lookup)
    if found is None:
        raise RefusedError(f"no estimate is possible: {why_not(plan.request)}")
    return found


def _change(name: str, today: Price | None, region: str) -> _Change:
    known = instance_price(name, region)
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
