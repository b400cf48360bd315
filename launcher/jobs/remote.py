"""A shell or a command in a host of a running job: SageMaker's remote debugging, Systems Manager and its session-manager-plugin.

The protocol of a session belongs to the plugin, which is called as the AWS CLI calls it (awscli/customizations/sessionmanager.py).
Source: developer guide, train-remote-debugging: the target's name, the statuses in which it can be enabled, network isolation.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from launcher.aws.session import Account, AwsError
from launcher.console import Console
from launcher.errors import INTERRUPTED, RefusedError
from launcher.jobs.lines import check_host
from launcher.jobs.lookup import describe

_PLUGIN = "session-manager-plugin"
_INSTALL = (
    "install it: `brew install --cask session-manager-plugin` on macOS; for Linux and Windows see"
    " https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)
# The variable that has the session's token; plugins up to 1.2.497 want it as an argument, which all users of the machine see.
_RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
_DOCUMENT = "AWS-StartNonInteractiveCommand"
_RUNNING = ("Downloading", "Training")  # secondary statuses in which UpdateTrainingJob enables remote debugging
_CONNECT_SECONDS = 180.0  # for the agent in the container to start
_ROUND_SECONDS = 2.0
# What the plugin prints besides the command's output; with separateOutputStream, the agent sends the exit code after it.
_BANNER = re.compile(rb"(Starting session with SessionId: |Exiting session with sessionId: )\S+\s*")
_EXIT_CODE = re.compile(rb"(.*)EXIT_CODE: (-?\d+)\s*", re.DOTALL)


def execute(account: Account, name: str, host: str, command: str, console: Console, *, to_stderr: bool = False) -> int:
    """Run a shell command in a host of a running job, or without one a shell on this terminal, and return its exit code.

    Remote debugging is enabled first if it is not. A shell's own exit code is unknown: it counts as 0. Raises RefusedError if the
    plugin is missing, the job cannot be entered, or the session ended without the exit code.
    """
    if shutil.which(_PLUGIN) is None:
        raise RefusedError(f"{_PLUGIN} was not found, by which Systems Manager opens sessions; {_INSTALL}")
    description = describe(account, name)
    name = description["TrainingJobName"]  # of a queued job that of its present attempt
    check_host(host, description)
    _refuse_unless_running(description)
    if not (description.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"):
        enabled = {"EnableRemoteDebug": True}
        account.call("sagemaker", "update_training_job", TrainingJobName=name, RemoteDebugConfig=enabled)
        console.say(f"remote debugging of {name} is now enabled")
    parameters: dict[str, Any] = {"Target": f"sagemaker-training-job:{name}_{host}"}
    if command:
        values = {"command": [command], "separateOutputStream": ["true"]}
        parameters |= {"DocumentName": _DOCUMENT, "Parameters": values}
    with console.progress(f"connecting to {host}", counted=False):
        session = _session(account, name, parameters)
    try:
        return _in_session(account, session, parameters, sys.stderr if to_stderr else sys.stdout)
    finally:
        # If the plugin was killed, the session and its command would continue; it is no error that they have ended.
        with suppress(AwsError):
            account.call("ssm", "terminate_session", SessionId=session["SessionId"])


def _refuse_unless_running(description: Mapping[str, Any]) -> None:
    name, secondary = description["TrainingJobName"], description["SecondaryStatus"]
    if description.get("EnableNetworkIsolation"):
        raise RefusedError(f"{name} has enable_network_isolation, so Systems Manager cannot reach its containers")
    if secondary not in _RUNNING:
        raise RefusedError(f"{name} is {secondary}; a job can be entered while it is {' or '.join(_RUNNING)}")


def _session(account: Account, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Start a session, and wait for the container's agent if it is not connected yet. Raises AwsError and RefusedError."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            return account.call("ssm", "start_session", **parameters)
        except AwsError as error:
            if error.code != "TargetNotConnected":
                raise
        description = describe(account, name)
        _refuse_unless_running(description)
        if time.monotonic() > deadline:
            check = f"launch rerun {name}{account.options} --set remote_debug_config.enable_remote_debug=true --check"
            raise RefusedError(
                f"the agent in {parameters['Target']} has not connected to Systems Manager for {_CONNECT_SECONDS:g} s; `{check}`"
                " finds missing permissions of the role and endpoints of the VPC. AWS's algorithms and Marketplace images have no"
                " agent. Its errors are in the log streams that end with /ssm"
            )
        time.sleep(_ROUND_SECONDS)


def _in_session(account: Account, session: Mapping[str, Any], parameters: Mapping[str, Any], out: Any) -> int:
    """Run the plugin to its end, which alone decides what Ctrl-C does, and return the exit code."""
    answer = {member: session[member] for member in ("SessionId", "TokenValue", "StreamUrl")}
    endpoint = account.client("ssm").meta.endpoint_url
    asked = (_RESPONSE, account.region, "StartSession", account.profile or "", json.dumps(parameters), endpoint)
    environ = {**os.environ, _RESPONSE: json.dumps(answer)}
    interrupts: list[int] = []
    with noting_ctrl_c(interrupts.append):
        if "DocumentName" not in parameters:
            code = subprocess.run([_PLUGIN, *asked], env=environ, check=False).returncode
            if code:
                raise RefusedError(f"the session ended early: {_PLUGIN} ended with exit code {code}")
            return 0
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen([_PLUGIN, *asked], env=environ, stdin=nothing, stdout=pipe) as process:
            exit_code = _copy_output(process.stdout or (), out)
    if exit_code is not None:
        return exit_code
    if interrupts:
        return INTERRUPTED
    lost = "the session ended without the command's exit code, so whether it succeeded is unknown"
    raise RefusedError(
        f"{lost}; {_PLUGIN}, which must be newer than 1.2.497, ended with exit code {process.returncode}"
    )


@contextmanager
def noting_ctrl_c(note: Callable[[int], None]) -> Iterator[None]:
    """Leave Ctrl-C to the plugin, which has it from the same terminal."""
    before = signal.signal(signal.SIGINT, lambda number, _: note(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _copy_output(lines: Iterable[bytes], out: Any) -> int | None:
    """Copy a command's output without what the plugin adds, and return its exit code; None if that was not sent.

    Only the last line can be the exit code's: a line of the command's own may look like it.
    """
    held = b""  # what may be the end
    for line in lines:
        if _BANNER.fullmatch(line):
            held = b"" if line.startswith(b"Starting") else held
        elif not line.strip() or _EXIT_CODE.fullmatch(line):
            held += line
        else:
            _write(out, held + line)
            held = b""
    code = _EXIT_CODE.fullmatch(held)
    _write(out, code[1] if code else held)
    return int(code[2]) % 256 if code else None


def _write(out: Any, text: bytes) -> None:
    out.buffer.write(text)
    out.flush()
