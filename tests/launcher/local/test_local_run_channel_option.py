"""Local runs whose channels are read from paths of the command line, and the messages about data that is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from forked import LAUNCHER, run
from launcher.rules.examples import laid_over_base
from launching import launch as differing
from local_jobs import EFS, command, launch, result, write_job

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
    words = [word for word in command(*options)[1:] if word not in ("--data", "data")]
    done = run(LAUNCHER, words, cwd=here)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_channel_option_reads_folders_and_files(here: Path, aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later diff compares the spec's own places."""
    own_data(here)
    output = launch_here(here, "--channel", "train=own", "--channel", "val=own/a.csv", "--channel", "lists=./own")
    assert "TRAIN {'a.csv': '1', 'a.csv.bak': '2'}" in output
    assert "LISTS {'a.csv': '1', 'a.csv.bak': '2'}" in output
    assert "pipe 1\n" in output
    assert "s3://somewhere/train/ by File, from own" in output
    monkeypatch.chdir(here)
    assert differing("diff", "job.yaml", "job").stdout == ""


@pytest.mark.parametrize("mode", ["File", "FastFile"])
def test_single_file_is_a_channels_only_file(here: Path, mode: str) -> None:
    overlay = f"channels: {{images: {{s3_uri: s3://somewhere/train/, input_mode: {mode}}}}}\n"
    (here / "job.yaml").write_text(laid_over_base(f"code: {{entry_point: entrypoints/read_channels.py}}\n{overlay}"))
    one = min((here / "data/s3/bucket/train").iterdir())
    output = launch_here(here, "--channel", f"images={one.relative_to(here)}")
    assert f"images by {mode}, epoch 0: 1 samples" in output
    assert f"s3://somewhere/train/ by {mode}, from {one.relative_to(here)}" in output


def test_channel_option_works_for_connector_channels(here: Path) -> None:
    overlay = "channels: {images: {source: S3Connector, s3_uri: s3://somewhere/train/}}\n"
    (here / "job.yaml").write_text(laid_over_base(f"code: {{entry_point: entrypoints/read_channels.py}}\n{overlay}"))
    (here / "linked").mkdir()
    (here / "linked/train").symlink_to(here / "data/s3/bucket/train")  # a folder of nothing but a link
    output = launch_here(here, "--channel", "images=linked")
    assert [json.loads(line.split("| ", 1)[1])["count"] for line in output.splitlines() if "| {" in line] == [6]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["trian=own"], "the job has no channel 'trian'; did you mean train?"),
        (["train"], "--channel train: write NAME=PATH, such as train=./images"),
        (["train=gone"], "--channel train=gone: there is no gone; correct the path"),
        (["train=/dev/null"], "--channel train=/dev/null: /dev/null is neither a file nor a folder; correct the path"),
        (
            ["train=own", "train=own/a.csv"],
            "--channel train=own/a.csv: train is given twice, as own and own/a.csv; keep one",
        ),
        (["lists=own/a.csv"], "a channel of a file system needs a folder"),
        (["train=own"], "val would still be read from S3; give --channel val=PATH too, or --data DIR"),
        (["--mount", "fs-1=own", "--mount", "fs-1=data"], "fs-1 is given twice, as own and data; keep one of them"),
        (["--mount", "fs-1"], "--mount fs-1: write <file system id>=<directory>"),
        (["--mount", "fs-1=gone"], "--mount fs-1=gone: there is no directory gone; create it, or correct the path"),
    ],
)
def test_wrong_channel_and_mount_options_exit_with_2(here: Path, given: list[str], message: str) -> None:
    own_data(here)
    options = given if given[0] == "--mount" else [word for each in given for word in ("--channel", each)]
    assert message in launch_here(here, *options, code=2)
    assert not (here / ".launch/job").exists()


@pytest.mark.parametrize(
    ("channel", "given", "code", "message"),
    [
        ("s3_data_type: ManifestFile", "own/bad.json", 3, "error: own/bad.json: a manifest is a JSON list"),
        ("input_mode: Pipe, compression_type: Gzip", "own", 4, "own/a.csv: not readable as gzip"),
        ("input_mode: Pipe, compression_type: Gzip", "own/a.csv", 4, "own/a.csv: not readable as gzip"),
        (
            "input_mode: Pipe, content_type: text/csv",
            "own",
            0,
            "warning: channel 'train': own/a.csv does not end with a line",
        ),
    ],
)
def test_errors_and_warnings_name_the_path_of_the_channel_option(
    here: Path, channel: str, given: str, code: int, message: str
) -> None:
    own_data(here)
    (here / "own/bad.json").write_text("{}")
    write_job(here, READ_PIPE, f"channels: {{train: {{s3_uri: s3://bkt/x, {channel}}}}}")
    output = launch_here(here, "--channel", f"train={given}", code=code)
    assert message in output
    assert "channel-train" not in output
    assert code != 4 or result(here)["FailureReason"].startswith(message)


def test_manifest_of_missing_objects_suggests_data_option(here: Path) -> None:
    write_job(here, "print(1)", "channels: {train: {s3_uri: s3://bkt/m.json, s3_data_type: ManifestFile}}")
    (here / "own.json").write_text('[{"prefix": "s3://bucket/pictures/"}, "1.jpg"]')
    assert (
        "s3://bucket/pictures/1.jpg: it is not on this machine; give --data DIR, with it in DIR/s3/bucket/pictures/1.jpg\n"
    ) in launch_here(here, "--channel", "train=own.json", code=3)


def test_wrong_data_layout_names_the_missing_path_and_its_neighbours(here: Path) -> None:
    write_job(here, "print(1)", "channels: {train: s3://my-bucket/train/}")
    (here / "data/s3").rename(here / "data/bucket")
    output = launch(here, code=3)
    assert "there is no data/s3/my-bucket/train/ (data holds bucket/, efs/, fsx/)" in output
    assert "--channel train=PATH" in output
    assert "127.0.0.1" not in output


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
def test_missing_data_is_one_line_that_names_it(here: Path, overlay: str, words: str) -> None:
    write_job(here, "print('never')", overlay)
    output = launch(here, code=3)
    assert words in output
    assert "Traceback" not in output
