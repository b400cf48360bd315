"""Against a real account: what no stand-in can prove. Costs some cents and ten minutes; tests/README.md says how to run it.

Needs LAUNCH_TEST_BUCKET (a bucket that may be written to), LAUNCH_TEST_ROLE (the ARN of a role that SageMaker may take and
that may use the bucket), and credentials and a region where boto3 finds them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.aws,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("LAUNCH_TEST_BUCKET") or not os.environ.get("LAUNCH_TEST_ROLE"),
        reason="needs an AWS account: LAUNCH_TEST_BUCKET and LAUNCH_TEST_ROLE",
    ),
]
SPEC = """\
base_name: launch-test
region: ${AWS_REGION}
image: {framework: pytorch, version: "2.13"}
role_arn: ${LAUNCH_TEST_ROLE}
code: {entry_point: entrypoints/read_channels.py}
resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 5}
stopping_condition: {max_runtime_in_seconds: 15m}
output_data_config: {s3_output_path: "s3://${LAUNCH_TEST_BUCKET}/launch-test/out/"}
channels:
  file: {s3_uri: "s3://${LAUNCH_TEST_BUCKET}/launch-test/data/", content_type: text/plain}
  mounted: {s3_uri: "s3://${LAUNCH_TEST_BUCKET}/launch-test/data/", content_type: text/plain, input_mode: FastFile}
  piped: {s3_uri: "s3://${LAUNCH_TEST_BUCKET}/launch-test/data/", content_type: text/plain, input_mode: Pipe}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import boto3

    made = tmp_path_factory.mktemp("real")
    (made / "job.yaml").write_text(SPEC)
    s3 = boto3.client("s3")
    for number in range(3):
        body = "".join(f"line {number}.{line}\n" for line in range(100)).encode()
        s3.put_object(Bucket=os.environ["LAUNCH_TEST_BUCKET"], Key=f"launch-test/data/{number}.txt", Body=body)
    return made


def launch(folder: Path, *arguments: str, expect: int = 0) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "launcher.cli", *arguments, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == expect, done.stderr
    return json.loads(done.stdout)


def test_account_checks_find_nothing_wrong(folder: Path) -> None:
    report = launch(folder, "job.yaml", "--check")
    assert [each for each in report["problems"] if each["severity"] == "error"] == []
    wrong = launch(
        folder, "job.yaml", "--check", "--set", "channels.file.s3_uri=s3://${LAUNCH_TEST_BUCKET}/no/", expect=3
    )
    assert "prefix-empty" in {each["code"] for each in wrong["problems"]}


def test_three_input_modes_read_the_same_samples(folder: Path) -> None:
    outcome = launch(folder, "job.yaml", "--wait", "--yes")
    name = outcome["TrainingJobName"]
    assert outcome["TrainingJobStatus"] == "Completed"
    command = [sys.executable, "-m", "launcher.cli", "logs", name, "--no-follow"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout
    assert lines.count("300") >= 3, "each channel has 300 lines"
    assert launch(folder, "diff", "job.yaml", name) == []
    again = launch(folder, "rerun", name, "--dry-run")
    assert again["TrainingJobName"] != name


def test_running_job_is_stopped(folder: Path) -> None:
    name = launch(folder, "job.yaml", "--no-check")["TrainingJobName"]
    assert launch(folder, "stop", name)["TrainingJobStatus"] == "Stopping"
    for _ in range(60):
        status = launch(folder, "status", name)["TrainingJobStatus"]
        if status == "Stopped":
            return
        time.sleep(10)
    pytest.fail(f"{name} is still {status}")
