"""The Python side: start the stand-in, prepare data, order faults, and read the record of calls."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from patience import PATIENCE

REGION = "us-east-1"
_FOLDER = Path(__file__).parent.parent
FOREVER = -1


class StandIn:
    """A running stand-in and its orders. A wrong order raises ValueError with the reason."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client = functools.cache(self._client)  # Making one takes longer than most calls of it.

    @property
    def environ(self) -> dict[str, str]:
        """AWS's variables for a process that uses the stand-in: the keys are made up, and no file of the user is read."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "stand-in-key-id",
            "AWS_SECRET_ACCESS_KEY": "stand-in-secret",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def _client(self, service: str, region: str = REGION) -> Any:
        """Return boto3's client for preparing data. Its calls are recorded too: use `clear_calls` afterwards."""
        import boto3
        from botocore.config import Config

        keys = {"aws_access_key_id": "stand-in-key-id", "aws_secret_access_key": "stand-in-secret"}
        make: Any = boto3.client
        config = Config(read_timeout=PATIENCE)
        return make(service, endpoint_url=self.endpoint, region_name=region, config=config, **keys)

    def order(self, name: str, /, **parameters: Any) -> Any:
        """Send any order over HTTP: POST /_stand_in/<name> with JSON."""
        url = f"{self.endpoint}/_stand_in/{quote(name)}"
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, json.dumps(parameters).encode()), timeout=PATIENCE
            ) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ValueError(json.load(error)["message"]) from None

    def reset(self) -> None:
        """Forget everything, moto included."""
        self.order("reset")

    def advance(self, seconds: float) -> None:
        """Put the stand-in's clock forward instead of sleeping."""
        self.order("advance", seconds=seconds)

    def calls(self, pattern: str = "") -> list[dict[str, Any]]:
        """Return the calls so far: service, operation, parameters, writes, region, outcome (HTTP status or fault), status, code."""
        found: list[dict[str, Any]] = self.order("calls")
        return [call for call in found if pattern in f"{call['service']}:{call['operation']}"]

    def writing_calls(self) -> list[str]:
        """Return `service:Operation` of each call that changes something, or would have."""
        return [f"{call['service']}:{call['operation']}" for call in self.calls() if call["writes"]]

    def clear_calls(self) -> None:
        """Clear the record of calls."""
        self.order("calls/clear")

    # Faults

    def fault(self, kind: str, operation: str = "*", **more: Any) -> None:
        """Make a call fail: see `faults` for the kinds; more: nth, count, seconds, containing, key_id, code, message, status."""
        self.order("faults", kind=kind, operation=operation, **more)

    def deny(self, *operations: str, containing: str = "") -> None:
        """Answer these operations (`ec2:*`) with AccessDenied until cleared."""
        for operation in operations:
            self.fault("denied", operation, count=FOREVER, containing=containing)

    def refuse(self, operation: str, code: str, message: str, **more: Any) -> None:
        """Refuse an operation with an AWS error: `refuse("sagemaker:CreateTrainingJob", "ResourceLimitExceeded", "...")`."""
        self.fault("refuse", operation, code=code, message=message, **more)

    def limit(self, operation: str, per_second: float) -> None:
        """Limit the calls of an operation (`logs:*`) per second; 0 lifts the limit."""
        self.order("rate", operation=operation, per_second=per_second)

    def clear_faults(self) -> None:
        """Remove all faults, and answer whatever hangs."""
        self.order("faults/clear")

    # Training jobs

    def script(self, *steps: dict[str, Any], name: str = "*", on_stop: Sequence[dict[str, Any]] = ()) -> None:
        """Script the life of jobs, present and future: steps as in `job`, and `after`: seconds after creation."""
        self.order("sagemaker/script", name=name, steps=list(steps), on_stop=list(on_stop))

    def job(self, name: str, status: str | None = None, **more: Any) -> dict[str, Any]:
        """Change a job (message, reason, metrics, billable, describe, after) and return its description."""
        change = {**({"status": status} if status else {}), **more}
        answer: dict[str, Any] = self.order(f"sagemaker/jobs/{name}", **change)
        return answer

    def step(self, name: str) -> dict[str, Any]:
        """Run the next step of the job's script now."""
        answer: dict[str, Any] = self.order(f"sagemaker/jobs/{name}/step")
        return answer

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests of the existing jobs, as received."""
        found: list[dict[str, Any]] = self.order("sagemaker/requests")
        return found

    # Queues

    def queue(self, name: str, **members: Any) -> None:
        """Add an AWS Batch queue, with members as in DescribeJobQueues."""
        self.order("batch/queue", jobQueueName=name, **members)

    def start_attempt(self, name: str) -> str:
        """Create the training job of a service job's next attempt, and return its name."""
        return str(self.order(f"batch/jobs/{name}", start=True)["TrainingJobName"])

    def service_job(self, name: str, status: str, reason: str = "") -> dict[str, Any]:
        """Change a service job's status (SUCCEEDED, FAILED, or RUNNABLE again), and return its description."""
        answer: dict[str, Any] = self.order(f"batch/jobs/{name}", status=status, reason=reason)
        return answer

    # Logs

    def log(self, job: str, lines: Sequence[str], host: str = "algo-1", **more: Any) -> str:
        """Append lines to a host's stream; more: timestamps (ms, one for each line), started (seconds, in its name).

        By default, the stream is a job's of any time: one that began before the job belongs to a deleted job of its name.
        """
        stream = f"{job}/{host}-{more.pop('started', 4000000000)}"
        self.order("logs/append", stream=stream, lines=list(lines), **more)
        return stream

    def delay(self, stream: str, seconds: float) -> None:
        """Delay the stream's lines by some seconds; 0 releases all."""
        self.order("logs/delay", stream=stream, seconds=seconds)

    # What AWS holds

    def bucket(
        self, name: str, *, region: str | None = None, forbidden: bool = False, owner: str | None = None
    ) -> None:
        """Set a bucket's region, make it inaccessible, or make it another account's."""
        self.order("s3/bucket", name=name, region=region, forbidden=forbidden, owner=owner)

    def objects(self, bucket: str, **parameters: Any) -> None:
        """Add virtual objects: `sizes={key: bytes}`, or `pattern="train/{:05d}.tar", count=50_000, size=10**8`.

        From then on the bucket's listing contains only such objects.
        """
        self.order("s3/objects", bucket=bucket, **parameters)

    def quota(self, name: str, value: float | None) -> None:
        """Set a quota: `quota("ml.g5.xlarge for training job usage", 0)`; None removes it from the list."""
        self.order("service-quotas/quota", name=name, value=value)

    def file_system(self, file_system_id: str, **members: Any) -> None:
        """Add an FSx file system, with members as in DescribeFileSystems."""
        self.order("fsx/file_system", FileSystemId=file_system_id, **members)

    def image(self, registry: str, repository: str, tag: str, **members: Any) -> None:
        """Add an image to another account's registry, such as 763104351884; use ECR for our own."""
        self.order("ecr/image", registry=registry, repository=repository, tag=tag, **members)

    def price(self, instance_type: str, usd: float, **more: Any) -> None:
        """Set the price per hour in the price list; more: region, component."""
        self.order("pricing/price", instance_type=instance_type, usd=usd, **more)


@contextmanager
def running(port: int = 0) -> Iterator[StandIn]:
    """Start a stand-in in a process of its own, which ends with the block and with this process."""
    command = [sys.executable, "-m", "aws_stand_in", "--port", str(port), "--with-stdin"]
    process = subprocess.Popen(command, cwd=_FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        endpoint = process.stdout.readline().strip()
        if not endpoint:
            raise RuntimeError(f"the stand-in for AWS does not start: status {process.wait()}")
        yield StandIn(endpoint)
    finally:
        process.terminate()  # processes that this one has forked may still hold its standard input
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()
