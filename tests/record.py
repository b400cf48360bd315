"""Record what `launch` prints while a user submits jobs: `python tests/record.py docs/howto/submit.md docs/terminal.svg`.

Run by `make recording`; it takes half a minute, as long as the jobs do. Every line is what `launch` printed on a
pseudo-terminal, with the stand-in for AWS behind it. Nothing is edited. The page gets the whole session as text, the picture
its beginning in colour.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

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
  train: {s3_uri: s3://my-bucket/train/, compression_type: Gzip}
"""
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
COLUMNS = 100
PICTURED = 2  # commands
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FIX = "--set channels.train.compression_type=null"


def fill_account(aws: StandIn) -> None:
    """Create what the job needs in the account."""
    s3, iam = aws.client("s3"), aws.client("iam")
    s3.create_bucket(Bucket="my-bucket")
    for number in range(8):
        s3.put_object(Bucket="my-bucket", Key=f"train/{number:05}.tar", Body=bytes(200_000))
    for name in ("training", "developer"):  # the job's, and the caller's
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST))
        iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=json.dumps(POLICY))
    aws.image("123456789012", "trainer", "1")


@contextmanager
def running(aws: StandIn, name: str, ending: dict[str, str], last_lines: list[str]) -> Iterator[None]:
    """Inside, let the job of this name start, train for some seconds with a line on each host every second, and end."""
    aws.script(
        {"after": 1, "status": "Downloading", "message": "Downloading the training image"},
        {"after": 3, "status": "Training", "message": "Training image download completed. Training in progress."},
        {"after": 7, "status": "Uploading", "message": "Uploading generated training model"},
        {"after": 8, **ending},
        name=name,
    )
    over = threading.Event()

    def write_lines() -> None:
        epoch = 0
        while not over.wait(1) and epoch < 3:
            exists = any(request["TrainingJobName"] == name for request in aws.requests())
            if exists and aws.job(name)["SecondaryStatus"] == "Training":
                epoch += 1
                aws.log(name, [f"epoch={epoch} validation_accuracy={1 - 0.2 / epoch:.3f}"], host="algo-1")
                aws.log(name, last_lines if epoch == 3 and last_lines else [f"epoch={epoch}"], host="algo-2")

    thread = threading.Thread(target=write_lines)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def shown(command: str, environ: dict[str, str]) -> str:
    """Return what the command writes to a terminal, in colour, with the command above it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(["sh", "-c", command], stdin=theirs, stdout=theirs, stderr=theirs, env=environ):
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # on Linux, the end of what the other side wrote
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    return f"$ {command}\n{written.decode().replace(chr(13), '')}"


def record() -> list[str]:
    """Return the output of the whole session, one text per command."""
    failure = {"status": "Failed", "reason": "AlgorithmError: ExecuteUserScriptError:\nExitCode 1"}
    error = ["torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."]
    with aws_stand_in.running() as aws, tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("src").mkdir()
        Path("src/train.py").write_text("print('training')\n")
        Path("job.yaml").write_text(SPEC)
        bin_folder = str(Path(sys.executable).parent)
        path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, **aws.environ, "PATH": path, "COLUMNS": str(COLUMNS)}
        environ["TERM"] = "unknown"  # colours, and nothing that moves the cursor
        fill_account(aws)
        # moto imports a service at its first call, which can take longer than a check may.
        subprocess.run(
            ["launch", "job.yaml", "--check", *shlex.split(_FIX)], env=environ, capture_output=True, check=False
        )
        parts = [shown("launch job.yaml", environ)]
        with running(aws, "digits-1", {"status": "Completed"}, []):
            parts.append(shown(f"launch job.yaml --yes --name digits-1 {_FIX}", environ))
        time.sleep(1)
        with running(aws, "digits-2", failure, error):
            parts.append(
                shown(
                    f"launch job.yaml --yes --wait --name digits-2 {_FIX} --set hyperparameters.batch-size=4096",
                    environ,
                )
            )
        parts.append(shown("launch list", environ))
    return parts


def draw(session: str) -> str:
    """Return an SVG of a terminal that shows the session."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    for line in session.splitlines():
        console.print(Text.from_ansi(line, style="bold" if line.startswith("$ ") else ""), no_wrap=False)
    without_fonts = re.sub(
        r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL
    )  # they are loaded from a host
    return console.export_svg(title="launch", code_format=without_fonts, unique_id="terminal")


def main() -> None:
    """Write the session between the page's marks, and its beginning as a picture."""
    page, picture = (Path(name).absolute() for name in sys.argv[1:])
    parts = record()
    text = page.read_text(encoding="utf-8")
    begin, end = "<!-- recording: made by `make recording` -->\n", "<!-- end of the recording -->"
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    session = _COLOUR.sub("", "\n".join(parts))
    page.write_text(f"{before}{begin}```console\n{session}```\n{end}{after}", encoding="utf-8")
    picture.write_text(draw("\n".join(parts[:PICTURED])), encoding="utf-8")


if __name__ == "__main__":
    main()
