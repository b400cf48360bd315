"""Records what a user sees who submits a job, and writes it into a page: `python tests/record.py launcher/README.md`.

Run by `make recording`; it takes half a minute, as long as the jobs do. Every line is what `launch` printed on a
pseudo-terminal that moves no cursor, with the stand-in for AWS behind it. Nothing is edited.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aws_stand_in
from aws_stand_in import StandIn

SPEC = """\
base_name: digits
region: us-east-1
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/trainer:1
role_arn: arn:aws:iam::123456789012:role/training
code: {directory: src, entry_point: train.py}
hyperparameters: {epochs: 3, learning-rate: 0.001}
resource_config: {instance_type: ml.g5.xlarge, instance_count: 2}
stopping_condition: {max_runtime_in_seconds: 2h}
output_data_config: {s3_output_path: s3://my-bucket/out/}
metric_definitions: [{name: "validation:accuracy", regex: "validation_accuracy=([0-9.]+)"}]
channels:
  train: {s3_uri: s3://my-bucket/train, input_mode: FastFile}
"""
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
COLUMNS = "118"


def set_scene(aws: StandIn) -> None:
    """An account with what the job needs, and a second folder whose name begins as the first one's does."""
    s3, iam = aws.client("s3"), aws.client("iam")
    s3.create_bucket(Bucket="my-bucket")
    for folder in ("train", "train-old"):
        for number in range(4):
            s3.put_object(Bucket="my-bucket", Key=f"{folder}/{number:05}.tar", Body=bytes(200_000))
    iam.create_role(RoleName="training", AssumeRolePolicyDocument=json.dumps(TRUST))
    iam.put_role_policy(RoleName="training", PolicyName="all", PolicyDocument=json.dumps(POLICY))
    aws.image("123456789012", "trainer", "1")


@contextmanager
def living(aws: StandIn, name: str, ending: dict[str, str], last_words: list[str]) -> Iterator[None]:
    """While inside, a job that is called so runs: it starts, trains for some seconds with a line on each host, and ends."""
    aws.script(
        {"after": 1, "status": "Downloading", "message": "Downloading the training image"},
        {"after": 3, "status": "Training", "message": "Training image download completed. Training in progress."},
        {"after": 7, "status": "Uploading", "message": "Uploading generated training model"},
        {"after": 8, **ending},
        name=name,
    )
    over = threading.Event()

    def speak() -> None:
        epoch = 0
        while not over.wait(1) and epoch < 3:
            exists = any(request["TrainingJobName"] == name for request in aws.requests())
            if exists and aws.job(name)["SecondaryStatus"] == "Training":
                epoch += 1
                aws.log(name, [f"epoch={epoch} validation_accuracy={1 - 0.2 / epoch:.3f}"], host="algo-1")
                aws.log(name, last_words if epoch == 3 and last_words else [f"epoch={epoch}"], host="algo-2")

    thread = threading.Thread(target=speak)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def shown(command: str, environ: dict[str, str]) -> str:
    """What the command writes to a terminal, with the command above it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(["sh", "-c", command], stdin=theirs, stdout=theirs, stderr=theirs, env=environ):
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux's way of saying that the other end is closed
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()).replace("\r\n", "\n")
    return f"$ {command}\n{text}"


def record() -> str:
    """The whole session."""
    failure = {"status": "Failed", "reason": "AlgorithmError: ExecuteUserScriptError:\nExitCode 1"}
    error = ["torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."]
    with aws_stand_in.running() as aws, tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("src").mkdir()
        Path("src/train.py").write_text("print('training')\n")
        Path("job.yaml").write_text(SPEC)
        bin_folder = str(Path(sys.executable).parent)
        path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, **aws.environ, "PATH": path, "TERM": "dumb", "COLUMNS": COLUMNS}
        set_scene(aws)
        with living(aws, "digits-1", {"status": "Completed"}, []):
            parts = [shown("launch job.yaml --yes --name digits-1", environ)]
        time.sleep(1)
        with living(aws, "digits-2", failure, error):
            parts.append(
                shown("launch job.yaml --yes --wait --name digits-2 --set hyperparameters.batch-size=4096", environ)
            )
        parts.append(shown("launch list", environ))
    return "\n".join(parts)


def main() -> None:
    """Write the session between the README's marks."""
    readme = Path(sys.argv[1]).absolute()
    session = record()
    text = readme.read_text(encoding="utf-8")
    begin, end = "<!-- recording: made by `make recording` -->\n", "<!-- end of the recording -->"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    readme.write_text(f"{before}{begin}```console\n{session}```\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
