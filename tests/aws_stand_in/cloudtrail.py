"""CloudTrail's event history: LookupEvents by event name, for the events that a test adds.

An event is seen at once, not minutes later.

Sources: the CloudTrail API reference (LookupEvents), "CloudTrail record contents", and the examples of SageMaker's own page.
"""

from __future__ import annotations

import json
from typing import Any

from aws_stand_in.errors import CALLER, Answer, Refusal
from aws_stand_in.wire import Call


class Trail:
    """The events, the latest first."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all events."""
        self._events: list[dict[str, Any]] = []

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """`job` adds the event of a job's creation: {"name", "at", "arn", "error"}."""
        if name != "job":
            raise Refusal("NoSuchControl", f"cloudtrail/{name} is nothing that can be ordered", 404)
        record = {
            "userIdentity": {"type": "AssumedRole", "arn": parameters.get("arn", CALLER)},
            "eventName": "CreateTrainingJob",
            "requestParameters": {"trainingJobName": parameters["name"]},
            **({"errorCode": parameters["error"]} if "error" in parameters else {}),
        }
        event = {"EventName": "CreateTrainingJob", "EventTime": parameters["at"], "CloudTrailEvent": json.dumps(record)}
        self._events.insert(0, event)
        return {}

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return LookupEvents' answer, 50 events a page."""
        if call.operation != "LookupEvents":
            return None
        asked = call.parameters
        name = asked["LookupAttributes"][0]["AttributeValue"]
        since, start = asked.get("StartTime", 0), int(asked.get("NextToken", 0))
        found = [each for each in self._events if each["EventName"] == name and each["EventTime"] >= since]
        more = {"NextToken": str(start + 50)} if start + 50 < len(found) else {}
        return {"Events": found[start : start + 50], **more}
