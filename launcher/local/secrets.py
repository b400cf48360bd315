"""The secrets that a job's settings name, for a local run: from the user's environment, or read with the user's credentials."""

from __future__ import annotations

import os

from launcher.aws.account import Account
from launcher.errors import RefusedError
from launcher.local.workspace import LocalRun
from sagemaker_channels.start.references import SecretError, parts, read_with, references_in, region_of


def local_secrets(run: LocalRun) -> dict[str, str]:
    """Return the value of each reference, and say where it is from: the variable of the first setting's name, or AWS.

    Raises:
        RefusedError: You cannot read one.
    """
    secrets: dict[str, str] = {}
    for member in ("Environment", "HyperParameters"):
        for name, value in run.plan.request.get(member, {}).items():
            for reference in references_in([value]):
                if reference in secrets:
                    continue
                if value == reference and os.environ.get(name):
                    secrets[reference], origin = os.environ[name], f"the variable {name} of your environment"
                else:
                    spec = run.plan.spec
                    account = Account(region=region_of(parts(reference)[1], spec.region), profile=spec.profile)
                    try:
                        secrets[reference] = read_with(account.call, reference)
                    except (SecretError, RefusedError) as error:
                        remedy = f"set {name} in your environment to run without it"
                        raise RefusedError(f"{member}.{name}: {error}; {remedy}") from None
                    origin = "AWS, read with your credentials"
                run.note(f"secret {name}", origin, "read by the job's role", same=False)
                run.console.say(f"secret    {name}: {origin}, not the job's role")
    return secrets
