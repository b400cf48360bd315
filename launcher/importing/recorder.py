"""Run a script that creates training jobs, and record the requests that it sends: nothing reaches AWS.

The script runs in a process of its own (run_script.py), whose calls to S3 reach the S3 server of local runs over an empty folder,
and all others the recorder below, which answers what creating and following a training job needs. The process has no credentials,
proxies or settings of AWS, and refuses connections to other addresses and other programs. Variables named like secrets have
placeholders as values.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl

from launcher.aws.session import Account
from launcher.console import say
from launcher.errors import InputError, RefusedError
from launcher.importing import run_script
from launcher.importing.sdk_code import Uploads, uploads_of
from launcher.local.s3_server import serve
from launcher.local.s3_server.http_server import Request, Response, listening
from launcher.local.s3_server.store import Store
from launcher.masking import is_secret

_ACCOUNT = "770377034777"
_ROLE = "launch-import"  # in which the script seems to run
_ROLE_ARN = f"arn:aws:iam::{_ACCOUNT}:role/{_ROLE}"
_REGION_SIGNED = re.compile(r"/\d{8}/([a-z0-9-]+)/")
_NOTHING: Mapping[str, Any] = {
    "DescribeLogStreams": {"logStreams": []},
    "ListTags": {"Tags": []},
    "AddTags": {"Tags": []},
}


class _EveryBucket(Store):
    """A store that has each bucket of a valid name, since nothing here knows those of the account."""

    def require_bucket(self, bucket: str) -> None:
        self.create_bucket(bucket)


@dataclass
class Recording:
    """The requests of one script, and the texts in them that stand for what is unknown here: text -> the variable."""

    key_id: str
    hidden: dict[str, str] = field(default_factory=lambda: {_ROLE_ARN: "ROLE_ARN", _ACCOUNT: "ACCOUNT_ID"})
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The name of each training job -> its request."""


@contextmanager
def record(
    script: Path, arguments: Sequence[str], python: str, account: Account
) -> Iterator[tuple[Recording, Uploads]]:
    """Run a script to its end, and yield its requests and what it has uploaded, whose files are there until the context ends.

    The account's region is the script's default; it is asked nothing. Raises InputError if the script created
    no training job, or Python cannot be started.
    """
    recording, secret = Recording(f"LOCAL{token_hex(8).upper()}"), token_hex(20)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = _EveryBucket(folder / "s3", folder / "written", lambda text: None)
        with (
            serve(store, {recording.key_id: secret}) as s3,
            listening(lambda each: _answer(recording, each)) as (host, port),
        ):
            environ = _environ(recording, folder, account)
            keys = {"AWS_ACCESS_KEY_ID": recording.key_id, "AWS_SECRET_ACCESS_KEY": secret}
            ends = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ENDPOINT_URL_S3": s3}
            command = [python, run_script.__file__, str(script), *arguments]
            try:
                done = subprocess.run(
                    command, env=environ | keys | ends, stdin=subprocess.DEVNULL, stdout=2, check=False
                )  # the spec alone is on standard output
            except OSError as error:
                raise InputError(f"--python {python} cannot be started: {error.strerror}; name a Python") from None
        if done.returncode and recording.requests:
            say(f"warning: {script} ended with exit code {done.returncode} after it had created the job", "yellow")
        if not recording.requests:
            region = "" if "AWS_REGION" in environ else "no region is configured, and --region sets one; "
            remedy = f"see its output above; {region}--python names the Python that has its packages"
            raise InputError(f"{script}: created no training job, and ended with exit code {done.returncode}; {remedy}")
        say(f"{script} got made-up answers: nothing reached AWS, and no job exists")
        yield recording, uploads_of(script, arguments, folder / "written")


def _environ(recording: Recording, folder: Path, account: Account) -> dict[str, str]:
    """Return the script's variables: the user's without those of AWS and proxies, and with placeholders for secrets."""
    environ: dict[str, str] = {}
    for name, value in os.environ.items():
        if name.upper().startswith(("AWS_", "BOTO")) or name.upper().endswith("_PROXY"):
            continue
        if value and is_secret(name, value):
            value = f"hidden.{name}."
            recording.hidden[value] = name
        environ[name] = value
    config = folder / "config"
    config.write_text("".join(_profiles()), encoding="utf-8")
    with suppress(RefusedError):  # the script may name a region itself
        environ["AWS_REGION"] = environ["AWS_DEFAULT_REGION"] = account.region
    nowhere = {
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "BOTO_CONFIG": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return {**environ, **nowhere, "AWS_CONFIG_FILE": str(config), "SAGEMAKER_VALIDATE_ROLE": "false", "NO_PROXY": "*"}


def _profiles() -> list[str]:
    """Return the user's profiles for a config file: their names and regions, without credentials."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        profiles: Mapping[str, Mapping[str, Any]] = Session().full_config.get("profiles", {})
    except BotoCoreError:
        return []
    keys = "aws_access_key_id = none\naws_secret_access_key = none\n"  # run_script.py puts the run's own in their place
    return [
        f"[{'default' if name == 'default' else f'profile {name}'}]\n{keys}"
        + (f"region = {settings['region']}\n" if settings.get("region") else "")
        for name, settings in profiles.items()
    ]


def _answer(recording: Recording, request: Request) -> Response:
    """Return the answer to a call to another service than S3."""
    body = b"".join(request.body)
    signed = request.headers.get("authorization", "")
    operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
    query = dict(parse_qsl(body.decode("utf-8", "replace"))) if not operation else {}
    operation = operation or query.get("Action", "") or f"{request.method} {request.path}"
    if recording.key_id not in signed:
        return Response(403)
    if operation in _IN_XML:
        inner = _IN_XML[operation](query)
        text = f"<{operation}Response><{operation}Result>{inner}</{operation}Result></{operation}Response>"
        return Response(200, {"Content-Type": "text/xml"}, text.encode())
    found = dict(_NOTHING.get(operation, {}))
    if operation in ("CreateTrainingJob", "DescribeTrainingJob"):
        given: dict[str, Any] = json.loads(body)
        name = given["TrainingJobName"]
        if operation == "CreateTrainingJob":
            region = _REGION_SIGNED.search(signed)
            recording.requests[name] = {**given, "region": region[1] if region else None}
        found = _described(recording, name)
    if found:
        return Response(200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(found).encode())
    if query:
        error = f"<ErrorResponse><Error><Code>NotRecorded</Code><Message>{_refusal(operation)}</Message></Error></ErrorResponse>"
        return Response(400, {"Content-Type": "text/xml"}, error.encode())
    refused = json.dumps({"__type": "NotRecorded", "message": _refusal(operation)}).encode()
    return Response(400, {"Content-Type": "application/x-amz-json-1.1", "x-amzn-errortype": "NotRecorded"}, refused)


def _refusal(operation: str) -> str:
    return f"launch import answers only what creating a training job needs, not {operation}"


def _described(recording: Recording, name: str) -> dict[str, Any]:
    """Return the description of a recorded job, which seems to have completed, so that no script waits for it."""
    job = recording.requests.get(name)
    if job is None:
        return {}
    now = time.time()
    times = ("CreationTime", "TrainingStartTime", "TrainingEndTime", "LastModifiedTime")
    output = str((job.get("OutputDataConfig") or {}).get("S3OutputPath", "")).rstrip("/")
    return {
        **{member: value for member, value in job.items() if member not in ("region", "Tags")},
        **dict.fromkeys(times, now),
        "TrainingJobStatus": "Completed",
        "TrainingJobArn": f"arn:aws:sagemaker:{job['region']}:{_ACCOUNT}:training-job/{name.lower()}",
        "SecondaryStatus": "Completed",
        "ModelArtifacts": {"S3ModelArtifacts": f"{output}/{name}/output/model.tar.gz"},
        "SecondaryStatusTransitions": [{"Status": "Completed", "StartTime": now, "EndTime": now, "StatusMessage": ""}],
        "TrainingTimeInSeconds": 1,
        "BillableTimeInSeconds": 1,
    }


def _caller(query: Mapping[str, str]) -> str:
    arn = f"arn:aws:sts::{_ACCOUNT}:assumed-role/{_ROLE}/{_ROLE}"
    return f"<Arn>{arn}</Arn><UserId>AROA:{_ROLE}</UserId><Account>{_ACCOUNT}</Account>"


def _role(query: Mapping[str, str]) -> str:
    name = query.get("RoleName", "")
    named = f"<RoleName>{name}</RoleName><RoleId>AROA</RoleId><Arn>arn:aws:iam::{_ACCOUNT}:role/{name}</Arn>"
    return f"<Role><Path>/</Path>{named}<CreateDate>2026-01-01T00:00:00Z</CreateDate></Role>"


_IN_XML: Mapping[str, Callable[[Mapping[str, str]], str]] = {"GetCallerIdentity": _caller, "GetRole": _role}
