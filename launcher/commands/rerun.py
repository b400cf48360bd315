"""`launch rerun NAME`: the request of an earlier job, submitted again under a new name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import launcher
from launcher.aws.masking import HIDDEN, settings_to_hide
from launcher.commands.card import Command
from launcher.commands.effects import EFFECTS, local
from launcher.commands.options import JOB_NAME, AccountOptions, SpecOptions, option
from launcher.console import say
from launcher.importing.from_request import import_request
from launcher.jobs.lookup import describe, tags_of
from launcher.request.serialization import as_yaml
from launcher.spec.variables import Variables

_GENERATED = re.compile(r"-\d{8}-\d{6}-[0-9a-z]{4}$")  # what launcher.spec.names appends to a base name


class Rerun(SpecOptions, AccountOptions, Command):
    """Submit a job's request again, under a new name.

    Submit the request of the training job NAME again, with the changes of --set. The job's code is used as it is in S3. The
    environment and hyperparameters named like secrets (token, key, password) are shown as ***, unless you pass --show-secrets.
    """

    exit_codes = (0, 2, 3, 4, 5)
    # A local run would need the job's code, which is in S3.
    effects = tuple(each for each in EFFECTS if each is not local.Local)
    example = "rerun digits-1 --set hyperparameters.epochs=7 --dry-run"

    name: str = JOB_NAME
    new_name: str | None = option("--name", metavar="NAME", help="The new job's full name.")

    def run(self) -> int:
        account = self.account()
        job = describe(account, self.name)
        tags = tags_of(account, job, lambda text: say(f"warning: {text}; the new job gets no tags", "yellow"))
        spec = import_request({**job, "Tags": tags or []})
        spec.pop("training_job_name", None)
        spec["base_name"] = _GENERATED.sub("", self.name)
        variables = _hide(spec, job)
        known = {**os.environ, **variables}
        parsed = launcher.parse_spec(as_yaml(spec), f"<{self.name}>", sets=self.sets, environ=known)
        ours = {f"${{{variable}}}": HIDDEN for variable in variables}
        written = {place: ours.get(text, text) for place, text in parsed.variables.written.items()}
        values = {
            place: {value: ours.get(shown, shown) for value, shown in found.items()}
            for place, found in parsed.variables.values.items()
        }
        parsed._variables = Variables(written, values)
        return self.effect.carry_out(self.plan(parsed, self.new_name), lambda: account)


def _hide(spec: dict[str, Any], job: Mapping[str, Any]) -> dict[str, str]:
    """Replace the spec's secret values by variables, as a user's own spec would, and return the variables."""
    variables: dict[str, str] = {}
    for number, ((member, name), value) in enumerate(settings_to_hide(job).items()):
        for settings in (spec.get(member.lower()), (spec.get("request") or {}).get(member)):
            if isinstance(settings, dict) and name in settings:
                variable = f"HIDDEN_OF_THE_JOB_{number}"
                settings[name], variables[variable] = f"${{{variable}}}", value
    return variables
