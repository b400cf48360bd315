"""Systems Manager's sessions with hosts of training jobs, while these train with remote debugging; moto answers the rest.

A session's stream leads nowhere, since its protocol is that of the session-manager-plugin, which tests replace. The agent in the
container is connected as soon as remote debugging is enabled.

Sources: Systems Manager's API reference (StartSession, TerminateSession); developer guide, train-remote-debugging.
"""

from __future__ import annotations

import itertools
from typing import Any

from aws_stand_in import members
from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.training_jobs import TrainingJobs
from aws_stand_in.wire import Call


class Sessions:
    """The sessions that have not been terminated."""

    def __init__(self, jobs: TrainingJobs) -> None:
        self._jobs = jobs
        self.clear()

    def clear(self) -> None:
        """Forget all sessions."""
        self._numbers = itertools.count(1)

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Refuse every order: sessions follow from the jobs."""
        raise Refusal("NoSuchControl", f"ssm/{name} is nothing that can be ordered", 404)

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Answer StartSession and TerminateSession. Raises TargetNotConnected."""
        if call.operation not in ("StartSession", "TerminateSession"):
            return None
        members.check(call)
        if call.operation == "TerminateSession":
            return {"SessionId": call.parameters["SessionId"]}
        target = call.parameters["Target"]
        if not self._jobs.is_connected(target, call.region):
            raise Refusal("TargetNotConnected", f"{target} is not connected.")
        session = f"developer-{next(self._numbers)}"
        stream = f"wss://ssmmessages.{call.region}.amazonaws.com/v1/data-channel/{session}?role=publish_subscribe"
        return {"SessionId": session, "TokenValue": "hidden-token", "StreamUrl": stream}
