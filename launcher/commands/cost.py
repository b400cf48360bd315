"""`launch cost SPEC`: what the job will cost per hour and at most."""

from __future__ import annotations

from pathlib import Path

import launcher
from launcher.commands import options
from launcher.commands.agreement import known_region, show_excess
from launcher.console import print_line, say
from launcher.cost.estimate import Estimate, estimate, why_not
from launcher.cost.prices import API_REGION, Lookup, ask_prices, instance_price
from launcher.cost.show import as_data, as_text
from launcher.errors import InputError, RefusedError
from launcher.parsing.spec_text import is_spec


@options.command("cost", "cost job.yaml")
@options.spec_argument
@options.flag("--online", help="Ask AWS's price API for today's prices.")
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
    found = _ask(plan) if online else _estimated(plan, known_region(plan))
    if not as_json:
        name = plan.spec.base_name or plan.spec.training_job_name or plan.request["TrainingJobName"]
        print_line("\n".join(as_text(found, name)))
        if found.unknown and not online:
            say("`--online` asks AWS for the prices missing from the table", "yellow")
    show_excess([plan])  # before JSON, since its errors are JSON, too
    if as_json:
        options.print_json(as_data(found))


def _ask(plan: launcher.Plan) -> Estimate:
    """Return the estimate by today's prices. Raises AwsError."""
    region = plan.spec.region or options.open_account(None, plan.spec.profile).region
    names = [each.instance_type for each in _estimated(plan, region).instances]
    asked = ask_prices(options.open_account(API_REGION, plan.spec.profile), names, region)
    return _estimated(plan, region, lambda name, _: asked.get(name) or instance_price(name, region))


def _estimated(plan: launcher.Plan, region: str | None, lookup: Lookup = instance_price) -> Estimate:
    """Raises RefusedError if the job is not billed by the instance hour."""
    found = estimate(plan.request, region, lookup)
    if found is None:
        raise RefusedError(f"no estimate is possible: {why_not(plan.request)}")
    return found
