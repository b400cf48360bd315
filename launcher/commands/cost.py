"""`launch cost SPEC`: what the job costs per hour and at most, before it is paid for."""

from __future__ import annotations

import json
import os
from typing import Any

import click

import launcher
from launcher.commands.options import json_option, open_account, spec_options
from launcher.console import say, tell
from launcher.cost import table
from launcher.cost.estimate import Estimate, estimate, why_not
from launcher.cost.show import as_data, as_text
from launcher.cost.table import Price
from launcher.errors import RefusedError
from launcher.request.images import image_region

_Change = tuple[str, dict[str, Any]]  # a line for people, and data for `--json`


@click.command("cost", short_help="Estimate what a spec's job costs, per hour and at most.")
@click.argument("spec", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--online", is_flag=True, help="Ask AWS's price API for today's prices, and show what has changed.")
@spec_options
@json_option
def command(spec: str, online: bool, as_json: bool, sets: tuple[str, ...], **reading: Any) -> None:
    """Estimate the cost of the job of SPEC, from a bundled table in which each price has its source and date.

    It is an estimate: nobody knows before how long a training takes. Needs no account and no network, but for --online.
    """
    plan = launcher.plan(launcher.load(spec, sets=sets), **reading)
    for warning in plan.warnings:
        tell(warning)
    if online:
        found, changes = _ask(plan)
    else:
        found, changes = _estimated(plan, _region(plan)), []
    if as_json:
        online_data = {"online": [data for _, data in changes]} if online else {}
        click.echo(json.dumps(as_data(found) | online_data, indent=2))
        return
    name = plan.spec.base_name or plan.spec.training_job_name or plan.request["TrainingJobName"]
    click.echo("\n".join([*as_text(found, name), *(line for line, _ in changes)]))
    if found.unknown and not online:
        say("`--online` asks AWS for the prices that the table does not have", "yellow")


def _region(plan: launcher.Plan) -> str | None:
    """The region as far as it is known without asking boto3; an image of ECR's lies where the job runs."""
    image = plan.request.get("AlgorithmSpecification", {}).get("TrainingImage", "")
    told = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return plan.spec.region or told or image_region(image)


def _ask(plan: launcher.Plan) -> tuple[Estimate, list[_Change]]:
    """The estimate by today's prices, and what differs from the table. Raises AwsError."""
    from launcher.cost.online import API_REGION, ask_prices

    region = plan.spec.region or open_account(None, plan.spec.profile).region
    names = _estimated(plan, region).instance_types
    asked = ask_prices(open_account(API_REGION, plan.spec.profile), names, region)
    found = _estimated(plan, region, lambda name, _: asked.get(name))
    return found, [_change(name, asked.get(name), region) for name in names]


def _estimated(plan: launcher.Plan, region: str | None, lookup: table.Lookup = table.instance_price) -> Estimate:
    """The estimate. Raises RefusedError where a price per hour is not what the job is paid by."""
    found = estimate(plan.request, region, lookup)
    if found is None:
        raise RefusedError(f"no estimate can be made: {why_not(plan.request)}")
    return found


def _change(name: str, today: Price | None, region: str) -> _Change:
    """A line, and data, on how today's price differs from the table's."""
    known = table.instance_price(name, region)
    if known is not None and known.region != region:
        known = None
    data = {"instance_type": name, "usd": _number(today), "table": known.as_data() if known else None}
    if today is None:
        return f"AWS has no on-demand price for training on {name} in {region} today", data
    if known is None:
        return f"the table has no price for {name} in {region}", data
    if known.usd == today.usd:
        return f"the table has the same for {name} ({known})", data
    percent = (today.usd / known.usd - 1) * 100
    return f"the table has ${known.usd:f} for {name} ({known}): AWS's price is {percent:+.2f} % from it", data


def _number(price: Price | None) -> float | None:
    return None if price is None else float(price.usd)
