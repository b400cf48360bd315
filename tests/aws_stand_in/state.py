"""Everything the stand-in knows: its clock, the record of calls, and the services that it answers for.

A service is a module with a class of three methods: `answer(call)` returns AWS's answer, or None to leave the call to moto, or
raises Refusal; `control(name, parameters)` does a test's order; `clear()` resets the service.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol

from aws_stand_in.batch import Queues
from aws_stand_in.cloudtrail import Trail
from aws_stand_in.ecr import Images
from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.faults import Faults
from aws_stand_in.fsx import FileSystems
from aws_stand_in.iam import Simulator
from aws_stand_in.kms import Keys
from aws_stand_in.logs import Logs
from aws_stand_in.moto_app import Moto
from aws_stand_in.pricing import Prices
from aws_stand_in.quotas import Quotas
from aws_stand_in.s3 import Buckets
from aws_stand_in.ssm import Sessions
from aws_stand_in.sts import Callers
from aws_stand_in.training_jobs import TrainingJobs
from aws_stand_in.wire import Call


class Service(Protocol):
    """The part of one AWS service that the stand-in answers."""

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return the answer; None leaves the call to moto. Raises Refusal."""

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Do a test's order. Raises Refusal."""

    def clear(self) -> None:
        """Forget everything."""


class Clock:
    """The stand-in's time: the machine's plus what a test has advanced it by, so that no test sleeps."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.ahead


class State:
    """One account, with one lock for everything, since an answer takes milliseconds."""

    def __init__(self, moto: Moto) -> None:
        self.clock, self.faults, self._lock = Clock(), Faults(), threading.RLock()
        self._calls: list[dict[str, Any]] = []
        self._services: dict[str, Service] = {
            "sagemaker": (jobs := TrainingJobs(self.clock.now)),
            "ssm": Sessions(jobs),
            "batch": Queues(self.clock.now, jobs),
            "logs": Logs(self.clock.now),
            "iam": Simulator(moto),
            "service-quotas": Quotas(),
            "fsx": FileSystems(),
            "pricing": Prices(),
            "ecr": Images(),
            "kms": Keys(),
            "s3": Buckets(),
            "sts": Callers(),
            "cloudtrail": Trail(),
        }

    def answer(self, call: Call) -> Answer | None:
        """Return the stand-in's own answer; None leaves the call to moto. Raises Refusal."""
        service = self._services.get(call.service)
        if service is None:
            return None
        with nullcontext() if call.service == "iam" else self._lock:  # iam keeps no state, and asks moto meanwhile
            answer = service.answer(call)
        if isinstance(answer, Answer):  # S3's
            return replace(answer, headers={"x-amz-request-id": str(uuid.uuid4()), **answer.headers})
        if answer is None:
            return None
        headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-RequestId": str(uuid.uuid4())}
        return Answer(200, json.dumps(answer).encode(), headers)

    def seen(self, call: Call, answer: Answer) -> None:
        """Pass the region of a bucket that moto created to the S3 service."""
        buckets = self._services["s3"]
        assert isinstance(buckets, Buckets)
        with self._lock:
            buckets.seen(call, answer)

    def record(self, call: Call) -> dict[str, Any]:
        """Record a call before it is handled; its outcome is added later."""
        entry = {
            "service": call.service,
            "operation": call.operation,
            "parameters": call.parameters,
            "writes": call.writes,
            "region": call.region,
            "outcome": None,
            "status": None,
        }
        with self._lock:
            self._calls.append(entry)
        return entry

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Do a test's order: `calls`, `reset`, `advance`, `faults`, `rate`, or `<service>/...`. Raises Refusal."""
        service, _, rest = name.partition("/")
        if service in self._services:
            with self._lock:
                return self._services[service].control(rest, parameters)
        if name == "calls":
            with self._lock:
                return list(self._calls)
        if name == "advance":
            self.clock.ahead += float(parameters["seconds"])
        elif name == "faults":
            self.faults.add(**parameters)
        elif name == "faults/clear":
            self.faults.clear()
        elif name == "rate":
            self.faults.limit(parameters["operation"], float(parameters["per_second"]))
        elif name == "calls/clear":
            with self._lock:
                self._calls.clear()
        elif name == "reset":
            self._reset()
        else:
            raise Refusal("NoSuchControl", f"/_stand_in/{name} is nothing that can be ordered", 404)
        return {"now": self.clock.now()}

    def _reset(self) -> None:
        self.faults.clear()
        with self._lock:
            self.clock.ahead = 0.0
            self._calls.clear()
            for service in self._services.values():
                service.clear()
