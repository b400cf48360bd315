"""The local run as a person meets it: the `launch` command, real processes, real FIFOs and mounts, and what is left behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from launcher.checks.examples import laid_over_base
from launcher.local.sandbox import why_no_namespaces

EFS, FSX = "fs-0123456789abcdef0", "fs-0123456789abcdef1"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with data and code for a job."""
    for index in range(6):
        for folder in ("s3/bucket/train", "s3/bucket/train_old", f"efs/{EFS}/lists", f"fsx/{FSX}/abcdefgh/lists"):
            file = tmp_path / "data" / folder / f"{index}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{folder.rsplit('/', 1)[1]} {index}\n")
    (tmp_path / "src").mkdir()
    return tmp_path


def write_job(here: Path, script: str, overlay: str = "", name: str = "train.py", code: str = "") -> None:
    (here / "src" / name).write_text(script)
    (here / "job.yaml").write_text(laid_over_base(f"code: {{directory: src, entry_point: {name}{code}}}\n{overlay}"))


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "launcher.cli", "job.yaml", "--local", "--data", "data", "--name", "job", *options]


def launch(here: Path, *options: str, code: int = 0) -> str:
    done = subprocess.run(command(*options), cwd=here, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == code, done.stdout + done.stderr
    assert_nothing_is_left(here)
    return done.stdout + done.stderr


def result(here: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((here / ".launch/job/result.json").read_text())
    return loaded


def assert_nothing_is_left(here: Path) -> None:
    """No mount, no FIFO, no process that has to do with this run."""
    assert str(here) not in Path("/proc/self/mounts").read_text()
    assert [path for path in (here / ".launch").rglob("*") if path.is_fifo()] == []
    assert processes_of(here) == []


def processes_of(here: Path) -> list[bytes]:
    """The command lines of processes that have to do with this run: by their words, or by what they were given."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            words, environ = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            if f"{here}/.launch".encode() in words + environ:
                found.append(words)
    return found


def namespaces() -> None:
    if reason := why_no_namespaces():
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


def test_file_mode_keeps_relative_keys(here: Path) -> None:
    script = "import os\nfor p, d, f in os.walk(os.environ['SM_CHANNEL_TRAIN']):\n    print(p, sorted(f))"
    write_job(here, script, "channels: {train: s3://bucket/train}")
    output = launch(here)
    assert "input/data/train ['0.txt', '1.txt', '2.txt', '3.txt', '4.txt', '5.txt']" in output
    assert "input/data/train/train_old ['0.txt'" in output  # a prefix takes its siblings too
    assert result(here)["TrainingJobStatus"] == "Completed"


def test_a_run_keeps_nothing_of_ours_per_host_and_git_ignores_it(here: Path) -> None:
    resources = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n"
    write_job(here, "import entrypoints.samples.channel", f"{resources}channels: null")
    subprocess.run(["git", "init", "--quiet"], cwd=here, check=True)
    assert "  folder   .launch/job\n" in launch(here)
    for host in ("algo-1", "algo-2"):
        kept = [path for path in (here / ".launch/job" / host).rglob("*.py") if path.is_file()]
        assert [path.name for path in kept] == ["train.py"], "the user's own code stays"
        assert not (here / f".launch/job/{host}/ml/input/data/launcher_code").exists()
    status = subprocess.run(["git", "status", "--porcelain"], cwd=here, check=True, capture_output=True, text=True)
    assert ".launch" not in status.stdout


def test_entries_that_cannot_be_objects_are_left_out_with_a_warning(here: Path) -> None:
    (here / "data/s3/bucket/train/itself").symlink_to("itself")
    Path(os.fsdecode(os.fsencode(here) + b"/data/s3/bucket/train/\xff")).touch()
    script = "import os\nprint(sorted(os.listdir(os.environ['SM_CHANNEL_TRAIN'])))"
    write_job(here, script, "channels: {train: s3://bucket/train/}")
    output = launch(here)
    assert "['0.txt', '1.txt', '2.txt', '3.txt', '4.txt', '5.txt']" in output
    assert "left out what cannot be in S3: 'itself' (a link that leads nowhere), b'\\xff' (not UTF-8)" in output


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_hosts_write_into_their_file_channel_and_never_into_the_data(here: Path, options: list[str]) -> None:
    script = """
import os
folder, host = os.environ["SM_CHANNEL_TRAIN"], os.environ["SM_CURRENT_HOST"]
os.remove(folder + "/0.txt")
open(folder + "/1.txt", "a").write(host)
open(folder + "/new.txt", "w").write(host)
print(sorted(os.listdir(folder)), open(folder + "/1.txt").read().split(), open(folder + "/new.txt").read())
"""
    resources = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n"
    write_job(here, script, f"{resources}channels: {{train: s3://bucket/train/}}")
    output = launch(here, *options)
    for host in ("algo-1", "algo-2"):
        names = "['1.txt', '2.txt', '3.txt', '4.txt', '5.txt', 'new.txt']"
        assert f"{host} | {names} ['train', '1', '{host}'] {host}" in output
    data = {path.name: path.read_text() for path in (here / "data/s3/bucket/train").iterdir()}
    assert data == {f"{index}.txt": f"train {index}\n" for index in range(6)}
    assert not (here / ".launch/job/algo-1/scratch").exists()


def test_the_scripts_own_paths_work_unchanged(here: Path) -> None:
    namespaces()
    script = """
import json, os, socket, sys
config = json.load(open("/opt/ml/input/config/inputdataconfig.json"))
print("config", config["train"])
print("me", os.getpid() != 1, socket.gethostname(), os.getcwd(), sorted(os.listdir("/opt")) != ["ml"])
epochs = [open(f"/opt/ml/input/data/train_{epoch}").read().splitlines() for epoch in (0, 1)]
print("same lines", sorted(epochs[0]) == sorted(epochs[1]), "shuffled", epochs[0] != epochs[1], len(epochs[0]))
open("/opt/ml/model/model.bin", "w").write("weights")
open("/opt/ml/output/data/notes.txt", "w").write("notes")
print("args", sys.argv[1:])
"""
    overlay = (
        'hyperparameters: {learning-rate: 1e-3, n: "it\'s $HOME"}\n'
        "channels: {train: {s3_uri: s3://bucket/train/, input_mode: Pipe, content_type: text/plain, shuffle_config: {seed: 1}}}"
    )
    write_job(here, script, overlay)
    output = launch(here)
    assert "'TrainingInputMode': 'Pipe', 'S3DistributionType': 'FullyReplicated', 'RecordWrapperType': 'None'" in output
    assert "me True algo-1 /opt/ml/code" in output
    assert "same lines True shuffled True 6" in output
    assert """args ['--learning-rate', '0.001', '-n', "it's $HOME"]""" in output
    place = here / ".launch/job/s3/bucket/out/job/output"
    with tarfile.open(place / "model.tar.gz") as tar:
        assert tar.getnames() == ["model.bin"]
    with tarfile.open(place / "output.tar.gz") as tar:
        assert tar.getnames() == ["notes.txt"]


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_file_systems_are_read_only_unless_said(here: Path, options: list[str]) -> None:
    if not options:
        namespaces()
    overlay = (
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
        "channels:\n"
        f"  lists: {{source: EFS, file_system_id: {EFS}, directory_path: /lists}}\n"
        f"  notes: {{source: FSxLustre, file_system_id: {FSX}, directory_path: /abcdefgh/lists, file_system_access_mode: rw}}\n"
    )
    script = """
import os
for name in ("LISTS", "NOTES"):
    folder = os.environ[f"SM_CHANNEL_{name}"]
    print(name, len(os.listdir(folder)))
    try:
        open(folder + "/new.txt", "w").write("new")
    except OSError as error:
        print(name, error.strerror)
"""
    write_job(here, script, overlay)
    output = launch(here, *options)
    assert "LISTS 6" in output
    assert "NOTES 6" in output
    assert not (here / f"data/efs/{EFS}/lists/new.txt").exists()
    assert (here / f"data/fsx/{FSX}/abcdefgh/lists/new.txt").read_text() == "new"
    assert ("LISTS Read-only file system" in output) is (not options)
    assert "can write to" in output  # the announcement


def test_mount_names_a_file_system(here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/lists").mkdir(parents=True)
    (tmp_path / "elsewhere/lists/one").touch()
    overlay = (
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
        f"channels: {{lists: {{source: EFS, file_system_id: {EFS}, directory_path: /lists}}}}"
    )
    write_job(here, "import os\nprint(os.listdir(os.environ['SM_CHANNEL_LISTS']))", overlay)
    assert "['one']" in launch(here, "--mount", f"{EFS}=elsewhere")


def test_fast_file_is_a_lazy_read_only_mount(here: Path, fuse: None) -> None:
    script = """
import os
folder = os.environ["SM_CHANNEL_TRAIN"]
print("mounted", os.path.ismount(folder), open(folder + "/3.txt").read())
try:
    open(folder + "/new.txt", "w")
except OSError as error:
    print("refused", error.strerror)
"""
    write_job(here, script, "channels: {train: {s3_uri: s3://bucket/train/, input_mode: FastFile}}")
    output = launch(here)
    assert "mounted True train 3" in output
    assert "refused Read-only file system" in output


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_torchrun_across_hosts(here: Path, options: list[str]) -> None:
    script = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} sums {total.item():.0f}", flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # gloo's threads abort one exit in some ten
"""
    overlay = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}"
    write_job(here, script, overlay, code=", launcher: torchrun")
    output = launch(here, *options)
    assert "algo-1 | rank 0 of 2 sums 2" in output
    assert "algo-2 | rank 1 of 2 sums 2" in output


def test_sharded_hosts_get_their_share_and_groups_their_channels(here: Path) -> None:
    overlay = (
        "resource_config: {volume_size_in_gb: 9, instance_groups: ["
        "{instance_group_name: big, instance_type: ml.m5.large, instance_count: 2},"
        "{instance_group_name: small, instance_type: ml.c5.xlarge, instance_count: 1}]}\n"
        "channels:\n"
        "  a: {s3_uri: s3://bucket/train/, s3_data_distribution_type: ShardedByS3Key, instance_group_names: [big]}\n"
        "  b: {s3_uri: s3://bucket/train/, instance_group_names: [small, big]}\n"
    )
    script = """
import json, os
for name in json.loads(os.environ["SM_CHANNELS"]):
    print(os.environ["SM_CURRENT_INSTANCE_GROUP"], name, sorted(os.listdir("%s/%s" % (os.environ["SM_INPUT_DIR"], "data/" + name))))
print(os.environ["SM_RESOURCE_CONFIG"])
"""
    write_job(here, script, overlay)
    output = launch(here)
    shares = re.findall(r"algo-[12] \| big a (\[.*?\])", output)
    assert sorted(re.findall(r"[0-9][.]txt", str(shares))) == [f"{index}.txt" for index in range(6)]
    assert len(shares) == 2
    assert "algo-3 | small b" in output
    assert "small a" not in output


def test_a_channel_of_some_groups_is_read_once_by_these(here: Path) -> None:
    overlay = (
        "resource_config: {volume_size_in_gb: 9, instance_groups: ["
        "{instance_group_name: big, instance_type: ml.m5.large, instance_count: 2},"
        "{instance_group_name: small, instance_type: ml.c5.xlarge, instance_count: 1}]}\n"
        "channels:\n"
        "  a: {s3_uri: s3://bucket/train/, instance_group_names: [big]}\n"
        "  b: {s3_uri: s3://bucket/train/, instance_group_names: [small, big]}\n"
    )
    (here / "job.yaml").write_text(laid_over_base(f"code: {{entry_point: entrypoints/read_channels.py}}\n{overlay}"))
    reports = [json.loads(line.split("| ", 1)[1]) for line in launch(here).splitlines() if "| {" in line]
    counts = {name: sum(report["count"] for report in reports if report["channel"] == name) for name in "ab"}
    assert counts == {"a": 6, "b": 6}


def test_a_progress_bar_leaves_its_last_state_in_files_and_pipes(here: Path) -> None:
    script = """
import sys
for percent in range(0, 101, 10):
    print(f"\\r{percent}%", end="", flush=True)
print()
for size in range(300):  # longer than a line that is kept
    sys.stdout.write("\\r" + str(size) * 5000)
print("\\rno line break", end="")
"""
    write_job(here, script)
    assert re.findall(r"algo-1 \| (.*)", launch(here)) == ["100%", "no line break"]
    assert (here / ".launch/job/algo-1.log").read_text() == "100%\nno line break\n"


def test_lines_of_stdout_do_not_join_a_bar_on_stderr(here: Path) -> None:
    script = """
import sys
for epoch in range(40):
    sys.stderr.write("\\r50%\\r100%")
    sys.stderr.flush()
    sys.stderr.write("\\n")
    print("epoch", epoch, flush=True)
"""
    write_job(here, script)
    lines = re.findall(r"algo-1 \| (.*)", launch(here))
    assert [line for line in lines if line != "100%"] == [f"epoch {epoch}" for epoch in range(40)]
    assert lines.count("100%") == 40
    assert sorted((here / ".launch/job/algo-1.log").read_text().splitlines()) == sorted(lines)


def test_a_terminal_shows_a_bars_states_and_every_line(here: Path) -> None:
    script = """
import os, time
print("first")
print("\\r10%\\r50%", end="", flush=True)
while not os.path.exists("GO"):
    time.sleep(0.01)
print("\\r100%")
for number in range(20_000): print("line", number)
"""
    write_job(here, script.replace("GO", str(here / "go")))
    ours, theirs = pty.openpty()
    shown = b""
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command(), cwd=here, stdin=theirs, stdout=theirs, stderr=theirs, env=environ):
        os.close(theirs)
        with suppress(OSError):  # the terminal has gone
            while chunk := os.read(ours, 65536):
                shown += chunk
                if b"50%" in shown:
                    (here / "go").touch()
    os.close(ours)
    said = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    lines = re.findall(r"algo-1 \| ([^\r]*)\r\n", said)
    assert lines == ["first", "100%", *(f"line {number}" for number in range(20_000))]


def test_sample_and_instance_count_make_it_small(here: Path) -> None:
    overlay = (
        "resource_config: {instance_type: ml.m5.large, instance_count: 16, volume_size_in_gb: 9}\n"
        "channels:\n  train: s3://bucket/train/\n"
        "  images: {source: S3Connector, s3_uri: s3://bucket/train/}\n"
    )
    (here / "job.yaml").write_text(laid_over_base(f"code: {{entry_point: entrypoints/read_channels.py}}\n{overlay}"))
    output = launch(here, "--sample", "2", "--instance-count", "1")
    assert "job: 1 host in " in output
    counts = [json.loads(line.split("| ", 1)[1])["count"] for line in output.splitlines() if "| {" in line]
    assert counts == [2, 2]


OWN_DATA = """
import os
for name in ("TRAIN", "LISTS"):
    folder = os.environ["SM_CHANNEL_" + name]
    print(name, {file: open(folder + "/" + file).read() for file in sorted(os.listdir(folder))})
print("pipe", open(os.environ["SM_CHANNEL_VAL"] + "_0").read())
"""


READ_PIPE = "import os; open(os.environ['SM_CHANNEL_TRAIN'] + '_0').read()"


def own_data(here: Path) -> None:
    """A folder `own` and a job whose channels arrive in every way; its data folder is empty."""
    (here / "own").mkdir()
    for name, text in (("a.csv", "1"), ("a.csv.bak", "2")):
        (here / "own" / name).write_text(text)
    write_job(
        here,
        OWN_DATA,
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
        "channels:\n"
        "  train: s3://somewhere/train/\n"
        "  val: {s3_uri: s3://somewhere/train/, input_mode: Pipe, content_type: text/plain}\n"
        f"  lists: {{source: EFS, file_system_id: {EFS}, directory_path: /lists}}\n",
    )


def launch_here(here: Path, *options: str, code: int = 0) -> str:
    """Without --data."""
    words = [word for word in command(*options) if word not in ("--data", "data")]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_channels_read_folders_and_files_that_are_given(here: Path) -> None:
    own_data(here)
    output = launch_here(here, "--channel", "train=own", "--channel", "val=own/a.csv", "--channel", "lists=./own")
    assert "TRAIN {'a.csv': '1', 'a.csv.bak': '2'}" in output
    assert "LISTS {'a.csv': '1', 'a.csv.bak': '2'}" in output
    assert "pipe 1\n" in output
    assert "s3://somewhere/train/ by File, from own" in output


def test_a_connector_channel_reads_the_folder_that_is_given(here: Path) -> None:
    overlay = "channels: {images: {source: S3Connector, s3_uri: s3://somewhere/train/}}\n"
    (here / "job.yaml").write_text(laid_over_base(f"code: {{entry_point: entrypoints/read_channels.py}}\n{overlay}"))
    output = launch_here(here, "--channel", "images=data/s3/bucket/train")
    assert [json.loads(line.split("| ", 1)[1])["count"] for line in output.splitlines() if "| {" in line] == [6]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["trian=own"], "the job has no channel 'trian'; did you mean train?"),
        (["train"], "--channel train: write NAME=PATH, such as train=./images"),
        (["train=gone"], "--channel train=gone: there is no gone; correct the path"),
        (["train=/dev/null"], "--channel train=/dev/null: /dev/null is neither a file nor a folder; correct the path"),
        (["lists=own/a.csv"], "a channel of a file system needs a folder"),
        (["train=own"], "val would still be read from S3; give --channel val=PATH too, or --data DIR"),
        (["--mount", "fs-1"], "--mount fs-1: write <file system id>=<directory>"),
        (["--mount", "fs-1=gone"], "--mount fs-1=gone: there is no directory gone; create it, or correct the path"),
    ],
)
def test_wrong_channel_and_mount_options_are_refused_as_input(here: Path, given: list[str], message: str) -> None:
    own_data(here)
    options = given if given[0] == "--mount" else [word for each in given for word in ("--channel", each)]
    assert message in launch_here(here, *options, code=2)
    assert not (here / ".launch/job").exists()


@pytest.mark.parametrize(
    ("channel", "given", "code", "message"),
    [
        ("s3_data_type: ManifestFile", "own/bad.json", 3, "error: own/bad.json: a manifest is a JSON list"),
        ("input_mode: Pipe, compression_type: Gzip", "own", 4, "own/a.csv: ends in the middle of its gzip data"),
        ("input_mode: Pipe, compression_type: Gzip", "own/a.csv", 4, "own/a.csv: ends in the middle of its gzip data"),
        (
            "input_mode: Pipe, content_type: text/csv",
            "own",
            0,
            "warning: channel 'train': own/a.csv does not end with a line",
        ),
    ],
)
def test_errors_and_warnings_about_given_data_name_its_own_path(
    here: Path, channel: str, given: str, code: int, message: str
) -> None:
    own_data(here)
    (here / "own/bad.json").write_text("{}")
    write_job(here, READ_PIPE, f"channels: {{train: {{s3_uri: s3://b/x, {channel}}}}}")
    output = launch_here(here, "--channel", f"train={given}", code=code)
    assert message in output
    assert "channel-train" not in output
    assert code != 4 or result(here)["FailureReason"].startswith(message)


def test_a_manifest_of_absent_objects_points_at_data(here: Path) -> None:
    write_job(here, "print(1)", "channels: {train: {s3_uri: s3://b/m.json, s3_data_type: ManifestFile}}")
    (here / "own.json").write_text('[{"prefix": "s3://bucket/pictures/"}, "1.jpg"]')
    assert (
        "s3://bucket/pictures/1.jpg: it is not on this machine; give --data DIR, with it in DIR/s3/bucket/pictures/1.jpg\n"
    ) in launch_here(here, "--channel", "train=own.json", code=3)


def test_a_wrong_data_layout_names_the_path_and_what_is_near(here: Path) -> None:
    write_job(here, "print(1)", "channels: {train: s3://my-bucket/train/}")
    (here / "data/s3").rename(here / "data/bucket")
    output = launch(here, code=3)
    assert "there is no data/s3/my-bucket/train/ (data holds bucket/, efs/, fsx/)" in output
    assert "--channel train=PATH" in output
    assert "127.0.0.1" not in output


def test_a_failure_becomes_the_reason(here: Path) -> None:
    write_job(here, "raise ValueError('no such column: label')")
    output = launch(here, code=4)
    assert result(here)["TrainingJobStatus"] == "Failed"
    assert result(here)["FailureReason"].startswith("ValueError: no such column: label")
    assert "no such column" in output
    assert not (here / ".launch/job/s3/bucket/out/job/output/model.tar.gz").exists()


def test_a_failure_is_shown_once_with_its_likely_cause(here: Path) -> None:
    write_job(here, "import no_such_module_of_ours")
    output = launch(here, code=4)
    assert output.count("Traceback (most recent call last)") == 1
    assert "  reason   ModuleNotFoundError: No module named 'no_such_module_of_ours'\n" in output
    assert (
        "  likely   the image has no module no_such_module_of_ours, and neither has the code [missing-module]\n"
        in output
    )
    assert "  remedy   name its package in code.requirements" in output
    assert "Traceback" in result(here)["FailureReason"]
    assert result(here)["LikelyCause"]["Code"] == "missing-module"


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_a_pipe_that_is_opened_as_a_folder_gets_a_hint(options: list[str], here: Path) -> None:
    if not options:
        namespaces()
    overlay = "channels: {train: {s3_uri: s3://bucket/train/, input_mode: Pipe, content_type: text/csv}}"
    write_job(here, "import os\nos.listdir(os.environ['SM_CHANNEL_TRAIN'])", overlay)
    output = launch(here, *options, code=4)
    assert (
        "  likely   the channel train is a Pipe: it has no folder /opt/ml/input/data/train [pipe-as-folder]\n" in output
    )
    assert "read /opt/ml/input/data/train_0 as one stream" in output


def test_temporary_files_of_a_failed_job_are_removed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(here / "tmp"))
    # torchrun's own folder, torchelastic_*, and one of the script's.
    write_job(here, "import tempfile\nprint('made', tempfile.mkdtemp())\nraise ValueError", code=", launcher: torchrun")
    assert f"algo-1 | made {here}/tmp/launch-" in launch(here, code=4)
    assert list((here / "tmp").iterdir()) == []


def test_one_failed_host_ends_the_others(here: Path) -> None:
    script = "import os, sys, time\nif os.environ['SM_CURRENT_HOST'] == 'algo-2': sys.exit(7)\ntime.sleep(100)"
    overlay = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}"
    write_job(here, script, overlay)
    begun = time.monotonic()
    launch(here, code=4)
    assert time.monotonic() - begun < 60
    assert "exit code 7" in result(here)["FailureReason"] or "7" in result(here)["FailureReason"]


def test_metrics_and_checkpoints(here: Path) -> None:
    restored = here / "data/s3/bucket/checkpoints/epoch-1.pt"
    restored.parent.mkdir()
    restored.write_text("one")
    overlay = (
        "checkpoint_config: {s3_uri: s3://bucket/checkpoints/}\n"
        "metric_definitions: [{name: accuracy, regex: 'accuracy=([0-9.]+)'}]"
    )
    script = """
import os, pathlib
folder = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"), "checkpoints")
print("restored", [(path.name, path.read_text()) for path in folder.iterdir()])
(folder / "epoch-2.pt").write_text("two")
print("accuracy=0.5")
print("accuracy=0.75")
"""
    write_job(here, script, overlay)
    output = launch(here)
    assert "restored [('epoch-1.pt', 'one')]" in output
    assert result(here)["Metrics"] == {"accuracy": 0.75}
    assert (here / ".launch/job/s3/bucket/checkpoints/epoch-2.pt").read_text() == "two"
    assert not (here / "data/s3/bucket/checkpoints/epoch-2.pt").exists()


@pytest.mark.parametrize(
    "place", ["/opt/ml/checkpoints", "/checkpoints/of/mine", "{here}/mine", "/var/tmp/mine-{name}/x"]
)
def test_each_host_has_checkpoints_of_its_own_wherever_they_are(here: Path, place: str) -> None:
    namespaces()
    place = place.format(here=here, name=here.name)
    stored = here / "data/s3/bucket/checkpoints"
    stored.mkdir()
    for name in ("kept", "removed"):
        (stored / name).write_text(name)
    if place == f"{here}/mine":
        (here / "mine").mkdir()
        (here / "mine/users").write_text("the user's own")
    script = """
import os, pathlib
folder, host = pathlib.Path("PLACE"), os.environ["SM_CURRENT_HOST"]
print(sorted(path.name for path in folder.iterdir()))
(folder / host).write_text(host)
if host == "algo-1":
    (folder / "removed").unlink()
(folder / "sub").mkdir()
(folder / "sub/both").write_text(host)
print(sorted(path.name for path in folder.iterdir()), os.path.exists("/etc/hosts"), sorted(os.listdir("/opt/ml")))
"""
    write_job(
        here,
        script.replace("PLACE", place),
        f"checkpoint_config: {{s3_uri: s3://bucket/checkpoints/, local_path: {place}}}\n"
        "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n",
    )
    output = launch(here)
    assert output.count("| ['kept', 'removed']\n") == 2
    assert "algo-1 | ['algo-1', 'kept', 'sub'] True" in output
    assert "algo-2 | ['algo-2', 'kept', 'removed', 'sub'] True" in output
    after = here / ".launch/job/s3/bucket/checkpoints"
    assert sorted(path.name for path in after.iterdir()) == ["algo-1", "algo-2", "kept", "sub"]
    assert (after / "sub/both").read_text() in ("algo-1", "algo-2")
    assert [path.name for path in (here / "mine").glob("*")] == ["users"] * (place == f"{here}/mine")
    assert place.startswith((str(here), "/opt/ml")) or not Path(place).exists()
    assert not (here / ".launch/job/algo-1/checkpoints").exists()
    assert not (here / ".launch/job/algo-1/scratch").exists()


def test_code_runs_in_a_folder_that_is_a_mount(here: Path) -> None:
    """boot moves the launcher's modules out of the code folder, here to another file system."""
    namespaces()
    script = "import os; print(sorted(os.listdir('/opt/ml/code')))"
    write_job(here, script, "checkpoint_config: {s3_uri: s3://bucket/c/, local_path: /opt/ml/code}")
    assert "algo-1 | ['train.py']" in launch(here)


def test_checkpoints_elsewhere_are_refused_without_namespaces(here: Path) -> None:
    write_job(here, "print(1)", "checkpoint_config: {s3_uri: s3://bucket/c/, local_path: /checkpoints}")
    assert "without namespaces all hosts would share" in launch(here, "--no-namespaces", code=3)
    assert not (here / ".launch/job").exists()


def test_the_time_limit_stops_with_sigterm(here: Path) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *a: (print('saving'), sys.exit(0)))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    write_job(here, script, "stopping_condition: {max_runtime_in_seconds: 3}")
    output = launch(here, code=5)
    assert "saving" in output
    assert result(here)["TrainingJobStatus"] == "Stopped"


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_ctrl_c_stops_and_leaves_nothing(here: Path, options: list[str]) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *a: (print('saving'), sys.exit(0)))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    channels = (
        "channels: {train: {s3_uri: s3://bucket/train/, input_mode: Pipe},"
        " v: {s3_uri: s3://bucket/train/, input_mode: FastFile}}"
    )
    write_job(here, script, channels)
    with subprocess.Popen(
        command(*options), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "ready" in line:
                process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert process.returncode == 130, lines
    assert any("saving" in line for line in lines)
    assert result(here)["TrainingJobStatus"] == "Stopped"
    assert_nothing_is_left(here)


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_a_second_ctrl_c_kills(here: Path, options: list[str]) -> None:
    script = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    write_job(here, script)
    with subprocess.Popen(
        command(*options), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line or "Ctrl-C again kills" in line:
                process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert process.returncode == 130
    assert_nothing_is_left(here)


def test_nothing_outlives_a_killed_launcher(here: Path, fuse: None) -> None:
    # A file that is open in the mount is closed in the moment in which the mount shall go.
    write_job(
        here,
        "import os, time\nopened = open(os.environ['SM_CHANNEL_TRAIN'] + '/0.txt')\nprint('ready', flush=True)\ntime.sleep(60)",
        "channels: {train: {s3_uri: s3://bucket/train/, input_mode: FastFile}}",
    )
    with subprocess.Popen(command(), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                process.kill()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (processes_of(here) or str(here) in Path("/proc/self/mounts").read_text()):
        time.sleep(0.1)
    assert_nothing_is_left(here)


def test_an_earlier_run_is_not_overwritten(here: Path) -> None:
    write_job(here, "print('done')")
    launch(here)
    before = (here / ".launch/job/algo-1.log").stat()
    assert "holds an earlier run of this name" in launch(here, code=3)
    assert (here / ".launch/job/algo-1.log").stat() == before


@pytest.mark.parametrize(
    ("overlay", "words"),
    [
        ("channels: {train: s3://bucket/nowhere/}", "s3://bucket/nowhere/"),
        ("channels: {train: s3://nobucket/x/}", "nobucket"),
        (
            "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
            "channels: {lists: {source: EFS, file_system_id: fs-0123456789abcdef9, directory_path: /lists}}",
            "--mount fs-0123456789abcdef9=PATH",
        ),
    ],
)
def test_what_is_not_there_is_one_clear_line(here: Path, overlay: str, words: str) -> None:
    write_job(here, "print('never')", overlay)
    output = launch(here, code=3)
    assert words in output
    assert "Traceback" not in output


def test_the_users_environment_stays_outside(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "hush")
    write_job(here, "import os\nprint(sorted(os.environ))", "environment: {SAID: 'yes'}")
    output = launch(here)
    assert "'SAID'" in output
    assert "MY_SECRET_TOKEN" not in output


def test_json_is_the_only_thing_on_stdout(here: Path) -> None:
    write_job(here, "print('hello')")
    done = subprocess.run(command("--json"), cwd=here, capture_output=True, text=True, check=True, timeout=100)
    assert json.loads(done.stdout)["TrainingJobStatus"] == "Completed"
    assert "algo-1 | hello" in done.stderr


def test_a_stop_right_at_the_start_is_heard(here: Path) -> None:
    write_job(here, "import time\ntime.sleep(60)")
    begun = time.monotonic()
    with subprocess.Popen(command(), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while not (here / ".launch/job/algo-1.log").exists():  # made as the host is started
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - begun < 30
    assert_nothing_is_left(here)


def test_sigterm_is_a_stop_and_nohup_is_kept(here: Path) -> None:
    script = "import time\nprint('ready', flush=True)\ntime.sleep(2)"
    for number, ignored, code in ((signal.SIGTERM, False, 5), (signal.SIGHUP, True, 0)):
        write_job(here, script)
        words = command("--name", number.name)
        ignore = (lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) if ignored else None
        with subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, text=True, preexec_fn=ignore) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "ready" in line:
                    process.send_signal(number)
        assert process.returncode == code


@pytest.mark.parametrize(
    "regex", ["'loss=([0-9'", "'loss=([0-9]+)?'", "'loss'"], ids=["not a regex", "no group", "no number"]
)
def test_an_odd_metric_never_stops_the_job(here: Path, regex: str) -> None:
    write_job(here, "print('loss=\\n' * 100_000)", f"metric_definitions: [{{name: loss, regex: {regex}}}]")
    launch(here)
    assert result(here)["Metrics"] == {}


def test_a_reader_that_goes_away_does_not_stop_the_job(here: Path) -> None:
    write_job(here, "for _ in range(100_000): print('line')")
    words = " ".join(command())
    subprocess.run(["bash", "-c", f"{words} | head -1"], cwd=here, check=True, capture_output=True, timeout=100)
    assert result(here)["TrainingJobStatus"] == "Completed"


def test_a_job_that_removes_its_model_folder(here: Path) -> None:
    write_job(here, "import os, shutil\nshutil.rmtree(os.environ['SM_MODEL_DIR'])")
    launch(here)
    assert result(here)["TrainingJobStatus"] == "Completed"


@pytest.mark.parametrize("place", ["/opt/ml/../../x", "/opt/ml/model", "/opt", "/", "relative", "/etc/passwd"])
def test_checkpoints_stay_in_their_place(here: Path, place: str) -> None:
    write_job(here, "print(1)", f"checkpoint_config: {{s3_uri: s3://bucket/c/, local_path: {place}}}")
    assert "local_path" in launch(here, code=3)
    assert not (here / ".launch/job").exists()


def test_a_folder_mounted_below_a_file_system_is_read_only_too(here: Path) -> None:
    namespaces()
    below = here / f"data/efs/{EFS}/lists/below"
    below.mkdir()
    overlay = (
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
        f"channels: {{lists: {{source: EFS, file_system_id: {EFS}, directory_path: /lists}}}}"
    )
    write_job(here, "open('/opt/ml/input/data/lists/below/new', 'w')", overlay)
    mounted = f'mount -t tmpfs none {below} && {" ".join(command())}; test -z "$(ls {below})" && echo untouched'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", mounted],
        cwd=here, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "Read-only file system" in done.stdout
    assert "untouched" in done.stdout
