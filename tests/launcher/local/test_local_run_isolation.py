"""What a local run keeps from other users of this machine, and from its own job."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import launcher
from launcher.console import Console
from launcher.local.hosts import write_code
from launcher.local.processes import Processes
from launcher.local.state import LocalRun
from launcher.local.workspace import LocalOptions, hosts_of
from launcher.parsing.parser import load
from launcher.rules.examples import laid_over_base
from local_jobs import command, launch, namespaces, result, write_job
from patience import PATIENCE
from sagemaker_channels import contract

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


def test_other_users_cannot_enter_the_runs_folder(here: Path) -> None:
    runs = here / ".launch"
    script = f"import os\nfor path in ({str(runs)!r}, {str(runs / 'job')!r}): print('mode', oct(os.stat(path).st_mode))"
    write_job(here, script, "channels: null\n")
    assert re.findall(r"mode (\w+)", launch(here, "--no-namespaces")) == ["0o40700", "0o40700"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("is_link", [False, True])
def test_runs_folder_of_another_user_is_refused(here: Path, is_link: bool) -> None:
    """Its owner could replace the code of a run in it."""
    write_job(here, "print('ran')", "channels: null\n")
    runs = here / ".launch"
    if is_link:
        runs.symlink_to("elsewhere")
    Path(here, "elsewhere" if is_link else ".launch").mkdir()
    os.chown(runs, 12345, 12345, follow_symlinks=False)
    done = subprocess.run(command(), cwd=here, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 3 and "ran" not in done.stdout
    assert (
        f"error: {runs} belongs to another user, who could change this run; run in a folder of your own" in done.stderr
    )
    here.chmod(0o755)
    os.chown(here, 12345, 12345)  # as a user's checkout in a container whose user is root
    assert "algo-1 | ran\n" in launch(here)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_runs_in_the_folder_of_a_users_runs_without_namespaces(here: Path) -> None:
    """As with `sudo`: in a user namespace, root may not enter it."""
    namespaces()
    write_job(here, "print('done')")
    (here / ".launch").mkdir(0o700)
    for folder in (here, here / ".launch"):
        os.chown(folder, 65534, 65534)
    assert f"no /opt/ml (root may not enter another user's {here}/.launch in a namespace)" in launch(here)


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_secret_argument_is_warned_of_and_in_no_file(
    here: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not options:
        namespaces()
    monkeypatch.setenv("A_TOKEN", "hf_secret")
    script = f"""
import pathlib, sys
secret = "hf_" + "secret"
print(sys.argv[1:] == ["--token", secret, "--width", "3"])
for path in pathlib.Path({str(here)!r}, ".launch").rglob("*"):
    if "stage" not in path.parts and path.is_file() and secret.encode() in path.read_bytes():
        print("in", path.name, oct(path.stat().st_mode))
"""
    write_job(here, script, "channels: null\nhyperparameters: {token: '${A_TOKEN}', width: 3}\n")
    output = launch(here, *options)
    assert "algo-1 | True\n" in output
    assert set(re.findall(r"\| in (.*)", output)) == {"hyperparameters.json 0o100600"}
    words = "warning: hyperparameters.token: the value of ${A_TOKEN} is an argument of a program, so other users"
    assert output.count(words) == 1 == output.count("other users")
    assert "hf_secret" not in output


def test_secret_in_the_arguments_of_an_entrypoint_is_warned_of(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "hf_secret")
    entrypoint = 'container_entrypoint: [sh, -c, "exit 0", "${A_TOKEN}"]\n'
    settings = "hyperparameters: {token: '${A_TOKEN}'}\nenvironment: {TOKEN: '${A_TOKEN}'}\n"
    (here / "job.yaml").write_text(laid_over_base(f"channels: null\n{entrypoint}{settings}"))
    output = launch(here)
    assert "warning: container_entrypoint[3]: the value of ${A_TOKEN} is an argument of a program, so" in output
    assert output.count("other users") == 1


def test_reason_of_a_failure_hides_values_of_variables(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the script prints stays as it is in the log, also in SageMaker; short values, such as a line's number, stay anywhere."""
    monkeypatch.setenv("A_TOKEN", "hf_secret")
    monkeypatch.setenv("LINE", "2")
    script = "import os\nraise ValueError('no access with ' + os.environ['A_TOKEN'])"
    write_job(here, script, "channels: null\nenvironment: {A_TOKEN: '${A_TOKEN}', LINE: '${LINE}'}\n")
    output = launch(here, "--no-namespaces", "--json", code=4)
    assert {line for line in output.splitlines() if "hf_secret" in line} == {
        "algo-1 | ValueError: no access with hf_secret"
    }
    assert result(here)["FailureReason"].startswith("ValueError: no access with ${A_TOKEN}\n\nTraceback")
    assert "line 2, in <module>" in result(here)["FailureReason"]
    kept = [path for path in (here / ".launch").rglob("*") if path.is_file() and b"hf_secret" in path.read_bytes()]
    assert [path.name for path in kept] == ["algo-1.log"]


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
