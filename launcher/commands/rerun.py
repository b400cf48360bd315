"""`launch rerun NAME`: the request of an earlier job, submitted again under a new name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

import launcher
from launcher.commands import options
from launcher.commands.submit import Submission, carry_out, submit_options
from launcher.console import say
from launcher.importing.from_request import import_request
from launcher.jobs.lookup import describe, tags_of
from launcher.masking import settings_to_hide
from launcher.spec.variables import Variables
from sagemaker_channels.mask import HIDDEN


@options.command("rerun", "rerun digits-1 --set hyperparameters.epochs=7 --dry-run", exit_codes=(0, 2, 3, 4, 5))
@options.job_argument
@click.option("--name", "new_name", metavar="NAME", help="The new job's full name.")
@options.queue_option
@options.spec_options
@options.account_options
@submit_options
def rerun(
    name: str,
    new_name: str | None,
    queue: str | None,
    reading: options.SpecOptions,
    where: options.AccountOptions,
    doing: Submission,
) -> int:
    """Submit a job's request again, under a new name.

    It is the request of the training job NAME, with the changes of --set. The job's code is used as it is in S3. The environment
    and hyperparameters named like secrets (token, key, password) are shown as ***, unless you pass --show-secrets.
    """
    account, reading = where.open(), reading.in_queue(queue)
    job = describe(account, name)
    tags = tags_of(account, job, lambda text: say(f"warning: {text}; the new job gets no tags", "yellow"))
    spec = import_request({**job, "Tags": tags or []})
    variables = _hide(spec, job)
    parsed = launcher.parse_spec(spec, f"<{name}>", sets=reading.sets, environ={**os.environ, **variables})
    ours = {f"${{{variable}}}": HIDDEN for variable in variables}
    written = {place: ours.get(text, text) for place, text in parsed.variables.written.items()}
    values = {
        place: {value: ours.get(shown, shown) for value, shown in found.items()}
        for place, found in parsed.variables.values.items()
    }
    parsed._variables = Variables(written, values)
    return carry_out(reading.plan(parsed, new_name), reading, doing, lambda: account)


def _hide(spec: dict[str, Any], job: Mapping[str, Any]) -> dict[str, str]:
    """Replace the spec's secret values by variables, as a user's own spec would, and return the variables."""
    variables: dict[str, str] = {}
    for number, ((member, name), value) in enumerate(settings_to_hide(job).items()):
        for settings in (spec.get(member.lower()), (spec.get("request") or {}).get(member)):
            if isinstance(settings, dict) and name in settings:
                variable = f"HIDDEN_OF_THE_JOB_{number}"
                settings[name], variables[variable] = f"${{{variable}}}", value
    return variables
