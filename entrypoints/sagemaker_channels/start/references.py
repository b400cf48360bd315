"""Settings that name a secret, `${secretsmanager:ID}`, `${secretsmanager:ID#KEY}` or `${ssm:NAME}`: read by the job's role.

Only the entry point gets the values, in its variables and arguments. The request, SageMaker's files and what this package prints
or writes have the reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.mask import Mask

_REFERENCE = re.compile(contract.SECRET_REFERENCE)
_SHORTEST = 4  # characters of a value that is hidden in other texts; shorter ones occur in them by chance
# The call that reads a secret, its parameters, and the place of the value in the answer.
_CALLS: Mapping[str, tuple[str, Callable[[str], dict[str, Any]], tuple[str, ...]]] = {
    "secretsmanager": ("get_secret_value", lambda name: {"SecretId": name}, ("SecretString",)),
    "ssm": ("get_parameter", lambda name: {"Name": name, "WithDecryption": True}, ("Parameter", "Value")),
}
ACTIONS = {"secretsmanager": "secretsmanager:GetSecretValue", "ssm": "ssm:GetParameter"}


class SecretError(Exception):
    """A secret cannot be read; one line with the reason and the remedy, and without any value."""


def references_in(values: Iterable[object]) -> list[str]:
    """Return the references in settings, each once."""
    return list(dict.fromkeys(found[0] for value in values for found in _REFERENCE.finditer(str(value))))


def parts(reference: str) -> tuple[str, str, str]:
    """Return a reference's service, the secret's ID or name, and the key in its JSON; empty if it names none."""
    service, _, rest = reference[2:-1].partition(":")
    name, _, key = rest.partition("#")
    return service, name, key


def region_of(name: str, default: str | None) -> str | None:
    """Return the region of a secret's ARN; of another name, the default."""
    return name.split(":")[3] if name.startswith("arn:") and name.count(":") >= 5 else default


def read_with(call: Callable[..., Mapping[str, Any]], reference: str) -> str:
    """Return a reference's value by `call(service, operation, **parameters)`. Raises SecretError if the answer has no such text."""
    service, name, key = parts(reference)
    operation, parameters, places = _CALLS[service]
    answer: Any = call(service, operation, **parameters(name))
    for place in places:
        answer = answer.get(place) if isinstance(answer, Mapping) else None
    if not isinstance(answer, str):
        raise SecretError(f"{reference}: is not a text; store one")
    if not key:
        return answer
    try:
        value = json.loads(answer)[key]
    except (ValueError, KeyError, TypeError):
        raise SecretError(f"{reference}: the secret is not JSON with a key {key!r}; correct the name after #") from None
    return value if isinstance(value, str) else json.dumps(value)


def read_secrets(references: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each reference: of a local run, what the launcher has read; else by the job's role.

    Raises SecretError.
    """
    known: dict[str, str] = json.loads(environ.get(contract.SECRETS_VARIABLE) or "{}")
    return {each: known[each] if each in known else _read(each, environ) for each in references}


def _read(reference: str, environ: Mapping[str, str]) -> str:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise SecretError(f"{reference}: the image has no boto3, which reads it; use an image that has it") from None
    service, name, _ = parts(reference)
    region = region_of(name, environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"))

    def call(service: str, operation: str, **parameters: Any) -> Mapping[str, Any]:
        config = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard", "max_attempts": 5})
        client: Any = getattr(boto3, "client")(service, region_name=region, config=config)  # noqa: B009 - any service
        answer: Mapping[str, Any] = getattr(client, operation)(**parameters)
        return answer

    try:
        return read_with(call, reference)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code"))
        if "AccessDenied" in code:
            remedy = "allow it in the role's policies, and kms:Decrypt if the secret has a key of its own"
            raise SecretError(f"{reference}: the job's role is not allowed {ACTIONS[service]}; {remedy}") from None
        if code in ("ResourceNotFoundException", "ParameterNotFound"):
            raise SecretError(f"{reference}: does not exist in {region}; create it, or correct the name") from None
        raise SecretError(f"{reference}: cannot be read ({code}); try again") from None
    except (BotoCoreError, ValueError) as error:
        remedy = "in a VPC, add an endpoint of the service, or a way to the internet"
        raise SecretError(f"{reference}: cannot be read ({type(error).__name__}); {remedy}") from None


def with_values(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: _REFERENCE.sub(lambda found: secrets.get(found[0], found[0]), value) if isinstance(value, str) else value
        for name, value in settings.items()
    }


def mask_of(secrets: Mapping[str, str]) -> Mask:
    """Return the mask that shows the references in place of the values, and of their lines and their fields in JSON."""
    mask = Mask()
    for reference, value in secrets.items():
        fields: list[Any] = [value]
        with suppress(ValueError):
            fields.append(json.loads(value))
        for field in fields:  # which grows
            if isinstance(field, str):
                for part in (field, *field.splitlines()):
                    mask.add(part if len(part) >= _SHORTEST else "", reference)
            elif isinstance(field, dict | list):
                fields += field.values() if isinstance(field, dict) else field
    return mask
