"""What a local run keeps from other users of this machine, and from its own job."""

from __future__ import annotations

import re
from pathlib import Path

import launcher
from entrypoints import contract
from launcher.console import Console
from launcher.local.hosts import write_code
from launcher.local.runners.processes import Processes
from launcher.local.workspace import LocalOptions, LocalRun, hosts_of
from launcher.parsing.parser import load
from local_jobs import launch, write_job

READS_S3 = """
import os, urllib.error, urllib.request
import boto3

try:
    urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + "/bucket/train/0.txt")
except urllib.error.HTTPError as error:
    print("without keys:", error.code)
print("with keys:", boto3.client("s3").get_object(Bucket="bucket", Key="train/0.txt")["Body"].read())
print("key id:", os.environ["AWS_ACCESS_KEY_ID"])
"""


def test_each_run_has_keys_without_which_its_s3_answers_nothing(here: Path) -> None:
    write_job(here, READS_S3, "channels: {train: s3://bucket/train/}")
    outputs = [launch(here, "--name", name) for name in ("one", "two")]
    for output in outputs:
        assert "without keys: 403\n" in output and "with keys: b'train 0\\n'\n" in output
    assert len({found for output in outputs for found in re.findall(r"key id: (\w+)", output)}) == 2


def test_hosts_of_the_next_attempt_get_the_code_of_the_plan(here: Path) -> None:
    """The job can replace the code in the folder that stands for S3, as its role can in AWS."""
    write_job(here, "print('mine')", "channels: null\n")
    plan = launcher.plan(load(str(here / "job.yaml")), name="job")
    folder, scratch = here / ".launch/job", here / "scratch"
    scratch.mkdir()
    hosts = hosts_of(plan.request, 2)
    run = LocalRun(plan, LocalOptions(), folder, hosts, Console(), Processes(mounts=False), scratch)
    write_code(run, hosts[0])
    uploaded = [path for path in run.s3_folder.rglob("*") if path.is_file()]
    assert sorted(path.name for path in uploaded) == ["boot.py", "code.tar.gz"]
    for path in uploaded:
        path.write_bytes(b"print('other code')")
    write_code(run, hosts[1])
    first, second = (run.root(host) / contract.DATA_DIR / contract.CODE_CHANNEL for host in hosts)
    files = {path.name: path.read_bytes() for path in first.iterdir()}
    assert files == {path.name: path.read_bytes() for path in second.iterdir()}
    assert len(files) == 2
