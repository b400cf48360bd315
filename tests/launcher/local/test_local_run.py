"""Local runs by the `launch` command: real processes, FIFOs and mounts, and what each host finds in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from launcher.rules.examples import laid_over_base
from local_jobs import EFS, FSX, command, launch, namespaces, result, write_job
from patience import PATIENCE


def test_file_mode_keeps_relative_keys(here: Path) -> None:
    script = "import os\nfor p, d, f in os.walk(os.environ['SM_CHANNEL_TRAIN']):\n    print(p, sorted(f))"
    write_job(here, script, "channels: {train: s3://bucket/train}")
    output = launch(here)
    assert "input/data/train ['0.txt', '1.txt', '2.txt', '3.txt', '4.txt', '5.txt']" in output
    assert "input/data/train/train_old ['0.txt'" in output  # a prefix takes its siblings too
    assert result(here)["TrainingJobStatus"] == "Completed"


def test_run_folder_keeps_outputs_only_and_is_ignored_by_git(here: Path) -> None:
    resources = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n"
    write_job(here, "import sagemaker_channels.epoch.channel", f"{resources}channels: null")
    subprocess.run(["git", "init", "--quiet"], cwd=here, check=True)
    assert "  folder     .launch/job\n" in launch(here)
    for host in ("algo-1", "algo-2"):
        kept = [path for path in (here / ".launch/job" / host).rglob("*.py") if path.is_file()]
        assert [path.name for path in kept] == ["train.py"], "the user's own code stays"
        assert not (here / f".launch/job/{host}/ml/input/data/launcher_code").exists()
    status = subprocess.run(["git", "status", "--porcelain"], cwd=here, check=True, capture_output=True, text=True)
    assert ".launch" not in status.stdout


def test_entries_that_cannot_be_objects_are_skipped_with_a_warning(here: Path) -> None:
    (here / "data/s3/bucket/train/itself").symlink_to("itself")
    Path(os.fsdecode(os.fsencode(here) + b"/data/s3/bucket/train/\xff")).touch()
    script = "import os\nprint(sorted(os.listdir(os.environ['SM_CHANNEL_TRAIN'])))"
    write_job(here, script, "channels: {train: s3://bucket/train/}")
    output = launch(here)
    assert "['0.txt', '1.txt', '2.txt', '3.txt', '4.txt', '5.txt']" in output
    assert "left out what cannot be in S3: 'itself' (a link that leads nowhere), b'\\xff' (not UTF-8)" in output


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]])
def test_writes_to_a_file_channel_do_not_change_the_data(here: Path, options: list[str]) -> None:
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


def test_script_finds_sagemakers_paths_and_variables(here: Path) -> None:
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
def test_file_systems_are_read_only_by_default(here: Path, options: list[str]) -> None:
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


def test_folder_that_cannot_be_copied_without_mounts_is_refused(here: Path) -> None:
    os.mkfifo(here / f"data/efs/{EFS}/lists/pipe")
    overlay = (
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
        f"channels: {{lists: {{source: EFS, file_system_id: {EFS}, directory_path: /lists}}}}\n"
    )
    write_job(here, "", overlay)
    (here / ".launch").mkdir()
    assert "lists: cannot be copied to " in launch(here, "--no-namespaces", code=3)
    assert not (here / ".launch/job").exists()


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
    namespaces()
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


def test_torchrun_connects_the_ranks_of_two_hosts(here: Path) -> None:
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
    output = launch_on_two_hosts(here, script)
    assert "algo-1 | rank 0 of 2 sums 2" in output
    assert "algo-2 | rank 1 of 2 sums 2" in output


def test_torchrun_connects_two_hosts_without_names(here: Path) -> None:
    """Its ranks wait for each other's store; here they only reach it, without an import of torch."""
    script = """
import os, socket
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
socket.create_connection(address, 60).close()
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} reaches {address[0]}", flush=True)
"""
    output = launch_on_two_hosts(here, script, "--no-namespaces")
    assert "algo-1 | rank 0 of 2 reaches 127.0.0.1" in output
    assert "algo-2 | rank 1 of 2 reaches 127.0.0.1" in output


def launch_on_two_hosts(here: Path, script: str, *options: str) -> str:
    overlay = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}"
    write_job(here, script, overlay, command="torchrun train.py")
    return launch(here, *options)


def test_hosts_get_their_shards_and_the_channels_of_their_group(here: Path) -> None:
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


def test_directory_bucket_is_read_alike_in_every_mode(here: Path) -> None:
    """S3 Express lists in no order, so its Pipes are named as shuffled; here they have the order of keys."""
    (here / "data/s3/bucket").rename(here / "data/s3/b--use1-az4--x-s3")
    script = """
import os
from sagemaker_channels import open_channel
for name in "file", "fast", "connector", "pipe":
    print(name, [int(sample["data"].split()[1]) for sample in open_channel(name)])
print(os.environ["LAUNCHER_SHUFFLED_CHANNELS_0"])
"""
    kinds = {
        "file": "input_mode: File",
        "fast": "input_mode: FastFile",
        "pipe": "input_mode: Pipe, content_type: text/plain",
    }
    kinds["connector"] = "source: S3Connector"
    channels = (f"  {name}: {{s3_uri: s3://b--use1-az4--x-s3/train/, {how}}}\n" for name, how in kinds.items())
    write_job(here, script, f"channels:\n{''.join(channels)}")
    output = launch(here)
    for name in ("file", "fast", "connector", "pipe"):
        assert f"| {name} [0, 1, 2, 3, 4, 5]" in output
    assert '| ["pipe"]' in output


def test_channel_of_some_groups_is_read_once_by_their_hosts(here: Path) -> None:
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


def test_sample_and_instance_count_reduce_objects_and_hosts(here: Path) -> None:
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


def test_mount_below_a_file_system_is_read_only_as_well(here: Path) -> None:
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
        cwd=here, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert "Read-only file system" in done.stdout
    assert "untouched" in done.stdout


@pytest.mark.parametrize("options", [[], ["--no-namespaces"]], ids=["namespaces", "plain"])
def test_path_of_the_spec_finds_its_programs_and_leaves_the_launchers_python(here: Path, options: list[str]) -> None:
    if not options:
        namespaces()
    (here / "bin").mkdir()
    for name in ("python3", "mine"):
        (here / "bin" / name).write_text(f"#!/bin/sh\necho {name} of the image")
        (here / "bin" / name).chmod(0o755)
    script = "import subprocess, sys\nprint(sys.prefix)\nsubprocess.run(['mine'])\nsubprocess.run(['expr', '1234', '+', '1'])"
    write_job(here, script, f"environment: {{PATH: '{here}/bin'}}\nchannels: null\n")
    output = launch(here, *options)
    assert f"algo-1 | {sys.prefix}\n" in output
    assert "algo-1 | 1235\n" in output
    assert "algo-1 | mine of the image\n" in output
