"""SageMaker's API for the script of a local run: its own job as the plan has it, its tags, and its run of an experiment.

Only what scripts ask of themselves: DescribeTrainingJob, tags, and what load_run of SageMaker's SDK 2 calls (sagemaker/experiments:
_utils.py, run.py). All is in memory and gone after the run; everything else is refused. The names of members are botocore's.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from launcher.local.s3_server.documents import S3Error, read_all
from launcher.local.s3_server.http_server import Request, Response, listening
from launcher.local.s3_server.signatures import Keys, signing_key_id

_OF_EXPERIMENTS = re.compile(r"(Create|Describe|Update|Delete)(Experiment|TrialComponent|Trial)")
# Their names among the members of ExperimentConfig.
_KINDS = {"Experiment": "ExperimentName", "Trial": "TrialName", "TrialComponent": "RunName"}
_TAGS = ("ListTags", "AddTags", "DeleteTags")
_ANSWERED = f"DescribeTrainingJob, {', '.join(_TAGS)}, and those of load_run in SageMaker's SDK"
_BODY_LIMIT = 4 * 1024 * 1024  # bytes; a request of SageMaker's is smaller
_METRICS_PATH = "/BatchPutMetrics"  # of the service sagemaker-metrics, which has a path where SageMaker has a header


class RefusedCallError(Exception):
    """A refusal in SageMaker's form: its code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class OwnJob:
    """The job of a run as its script can see and change it. Safe to use from any thread."""

    def __init__(self, request: Mapping[str, Any], arn: str, transitions: Sequence[Mapping[str, str]]) -> None:
        self._request, self._arn, self._transitions = request, arn, transitions
        self._tags: dict[str, str] = {tag["Key"]: tag["Value"] for tag in request.get("Tags", ())}
        config = request.get("ExperimentConfig", {})
        # The experiment of a job in AWS exists before it; here it is new in each run.
        named = {(kind, config[member]) for kind, member in _KINDS.items() if config.get(member)}
        self._stored: dict[tuple[str, str], dict[str, Any]] = {
            (kind, name): {f"{kind}Name": name} for kind, name in named
        }
        self._lock = threading.Lock()

    def answer(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of an operation. Raises RefusedCallError."""
        with self._lock:
            if found := _OF_EXPERIMENTS.fullmatch(operation):
                return self._in_experiment(found[1], found[2], parameters)
            if operation == "AssociateTrialComponent":
                return {
                    f"{kind}Arn": self._arn_of(kind, parameters[f"{kind}Name"]) for kind in ("TrialComponent", "Trial")
                }
            if operation == "BatchPutMetrics":
                return {"Errors": []}
            if operation == "DescribeTrainingJob":
                self._require(parameters["TrainingJobName"], self._request["TrainingJobName"])
                return self._described()
            if operation in _TAGS:
                self._require(parameters["ResourceArn"], self._arn)
                self._tags |= {tag["Key"]: tag["Value"] for tag in parameters.get("Tags", ())}
                for key in parameters.get("TagKeys", ()):
                    self._tags.pop(key, None)
                return {"Tags": [{"Key": key, "Value": value} for key, value in self._tags.items()]}
        what = f"a local run does not answer {operation}, but only {_ANSWERED}"
        raise RefusedCallError("UnsupportedOperation", f"{what}; call it in SageMaker, or handle this error")

    def _require(self, named: str, own: str) -> None:
        if named != own:
            raise RefusedCallError(
                "ValidationException", f"Requested resource not found: a local run knows only {own}."
            )

    def _described(self) -> dict[str, Any]:
        name, now = self._request["TrainingJobName"], self._transitions[-1]
        output = str(self._request["OutputDataConfig"]["S3OutputPath"]).rstrip("/")
        return {
            **self._request,  # a client leaves out the members that an answer does not have
            "TrainingJobArn": self._arn,
            "ModelArtifacts": {"S3ModelArtifacts": f"{output}/{name}/output/model.tar.gz"},
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": now["Status"],
            "SecondaryStatusTransitions": list(self._transitions),
            "CreationTime": self._transitions[0]["StartTime"],
            "LastModifiedTime": now["StartTime"],
        }

    def _in_experiment(self, verb: str, kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        name = parameters[f"{kind}Name"]
        own, arn = (kind, name), {f"{kind}Arn": self._arn_of(kind, name)}
        if verb == "Create" and own in self._stored:
            raise RefusedCallError("ValidationException", f"{kind} with name {name} already exists.")
        if verb != "Create" and own not in self._stored:
            raise RefusedCallError("ResourceNotFound", f"{kind} with name {name} does not exist.")
        if verb == "Delete":
            del self._stored[own]
        elif verb == "Describe":
            return {**self._stored[own], **arn}
        else:
            self._stored[own] = {**self._stored.get(own, {}), **parameters}
        return arn

    def _arn_of(self, kind: str, name: str) -> str:
        resource = {"Experiment": "experiment", "Trial": "experiment-trial"}.get(kind, "experiment-trial-component")
        return f"{self._arn.rpartition(':')[0]}:{resource}/{name}"


@contextmanager
def serve_own_job(job: OwnJob, keys: Keys, note: Callable[[str], None], address: str) -> Iterator[str]:
    """Answer the clients that have one of the keys; yields the endpoint. `note` is called with each operation that is asked for."""
    with listening(partial(_answer, job, keys, note), address) as (host, port):
        yield f"http://{host}:{port}"


def _answer(job: OwnJob, keys: Keys, note: Callable[[str], None], request: Request) -> Response:
    try:
        body = read_all(request.body, _BODY_LIMIT, "InvalidRequest")  # before it is known who has sent it
        signing_key_id(request, keys, hashlib.sha256(body).hexdigest())
        operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
        operation = "BatchPutMetrics" if request.path == _METRICS_PATH else operation
        note(operation)
        return _written(200, job.answer(operation, json.loads(body or b"{}")))
    except (S3Error, RefusedCallError) as error:
        message = error.details["Message"] if isinstance(error, S3Error) else str(error)
        return _written(400, {"__type": error.code, "message": message})
    except (KeyError, TypeError, ValueError) as error:
        return _written(400, {"__type": "ValidationException", "message": f"the request is malformed: {error!r}"})


def _written(status: int, content: Mapping[str, Any]) -> Response:
    return Response(status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(content).encode())
