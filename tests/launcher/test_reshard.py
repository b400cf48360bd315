"""`launch reshard`: the job that its options make, and the results of a run here."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from forked import LAUNCHER, run
from launcher.cli import cli, main
from patience import PATIENCE
from sagemaker_channels.formats import SHORT_NAMES

PLACES = ["s3://mine/in/", "s3://mine/out"]


def request_of(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["reshard", *PLACES, *options, "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    request: dict[str, Any] = json.loads(result.stdout)
    return request


@pytest.mark.parametrize(
    ("content_type", "sent"),
    [("tar", "application/x-tar"), ("application/x-tar", "application/x-tar"), ("jsonl", "jsonl")],
)
def test_sagemaker_divides_the_objects_among_hosts(content_type: str, sent: str) -> None:
    request = request_of(
        "--hosts", "3", "--content-type", content_type, "--shard-size", "1.5MB", "--shuffle-seed", "7", "--strict"
    )
    data = request["InputDataConfig"][0]
    assert (data["InputMode"], data["ContentType"]) == ("FastFile", sent)
    assert data["DataSource"]["S3DataSource"]["S3DataDistributionType"] == "ShardedByS3Key"
    assert request["ResourceConfig"]["InstanceCount"] == 3
    expected = {"source": "s3://mine/in/", "output": "s3://mine/out/", "shard-bytes": "1500000", "seed": "7"}
    assert expected.items() <= request["HyperParameters"].items()


@pytest.mark.parametrize("options", [(), ("--sidecars", "json", "--hosts", "2")])
def test_one_host_or_one_that_joins_sidecars_reads_s3_itself(options: tuple[str, ...]) -> None:
    request = request_of(*options)
    assert [channel["ChannelName"] for channel in request["InputDataConfig"]] == ["launcher_code"]
    assert any('"s3_uri": "s3://mine/in/"' in value.replace('":"', '": "') for value in request["Environment"].values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sidecars", "json", "--format", "recordio"], "--sidecars joins whole objects"),
        (["--sidecars", "json", "--content-type", "tar"], "--sidecars joins whole objects"),
        (["--content-type", "tarr"], "--content-type: format 'tarr' is neither a content type nor one of tar, zip"),
        (["--shard-size", "large"], "expected a size such as 256MB, got 'large'"),
        (["--labels", "./lists"], "lists/ is a folder of this machine"),
    ],
)
def test_impossible_options_are_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["reshard", *PLACES, *options, "--dry-run"])
    assert result.exit_code == 2 and message in result.stderr


def test_local_run_states_why_it_failed(tmp_path: Path) -> None:
    folder = tmp_path / "data/s3/mine/in"
    folder.mkdir(parents=True)
    for name in ("1.jpg", "1.json", "2.jpg"):
        (folder / name).write_text(name)
    result = run_local(tmp_path, "--sidecars", "json", "--json")
    assert result.returncode == 4, result.stderr
    reason = json.loads(result.stdout)["FailureReason"].partition("\n")[0]
    assert reason.endswith(
        "exit code 1: reshard: channel 'data': 2: has jpg but not json; add it, or choose other sidecars"
    )


def run_local(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run(LAUNCHER, ["-m", "launcher", "reshard", *PLACES, *options, "--local", "--data", "data"], cwd=folder)


def test_local_run_reshards_the_folder_of_the_channel(tmp_path: Path) -> None:
    pictures(tmp_path / "images")
    done = run(LAUNCHER, ["-m", "launcher", "reshard", *PLACES, "--local", "--channel", "data=images"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 shard with 6 samples" in done.stdout
    assert "train on s3://mine/out/shards/ with content_type: application/x-tar" in done.stdout


def pictures(folder: Path, first: int = 0) -> None:
    """Write six images, each with a text beside it and a line in a list."""
    (folder.parent / "lists").mkdir(exist_ok=True)
    lines = []
    for number in range(first, first + 6):
        file = folder / f"{number % 2}/{number:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([number]) * 5000)
        lines.append(f"{number}\t{number % 2}\t{file.relative_to(folder)}\n")
    (folder.parent / f"lists/{first}.lst").write_text("".join(lines))


def between_folders(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a Python without the S3 client."""
    code = "import sys; sys.modules['s3torchconnector'] = sys.modules['s3torchconnectorclient'] = None;"
    code += "from launcher.__main__ import main; main()"
    command = (sys.executable, "-c", code, "reshard", "images", "./shards", "--shard-size", "12kB", *options)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize("options", [(), ("--format", "zip", "--shuffle-seed", "3"), ("--labels", "lists")])
def test_folder_becomes_shards_in_a_folder(tmp_path: Path, options: tuple[str, ...]) -> None:
    """And the same command continues after files were added."""
    pictures(tmp_path / "images")
    done = between_folders(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    index = json.loads((tmp_path / "shards/index.json").read_text())
    assert index["count"] == 6 and len(index["shards"]) >= 2
    form = SHORT_NAMES[index["format"]]
    samples = [
        sample
        for shard in index["shards"]
        for sample in form.split(io.BytesIO((tmp_path / "shards/shards" / shard["name"]).read_bytes()), None)
    ]
    assert {sample["__key__"] for sample in samples} == {f"{number % 2}/{number:03d}" for number in range(6)}
    assert all(sample["png"] == bytes([int(sample["__key__"][2:])]) * 5000 for sample in samples)
    assert [sample.get("cls") for sample in samples] == [
        sample["__key__"][:1].encode() if "--labels" in options else None for sample in samples
    ]
    (tmp_path / "images/2").mkdir()
    (tmp_path / "images/2/900.png").write_bytes(b"new")
    (tmp_path / "lists/900.lst").write_text("900\t2\t2/900.png\n")
    again = between_folders(tmp_path, *options, "--json")
    if "--shuffle-seed" in options:  # another order
        assert again.returncode == 3
        return
    assert (again.returncode, "of an earlier run" in again.stderr) == (0, True), again.stderr
    assert json.loads(again.stdout)["count"] == 7
    refused = between_folders(tmp_path, "--format", "tfrecord")
    assert refused.returncode == 3
    assert re.search(
        r"error: .*/shards/ has shards of a run with format .*, not tfrecord; continue with", refused.stderr
    )


def test_object_that_has_samples_itself_is_a_warning(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures")
    (tmp_path / "images").mkdir()
    with tarfile.open(tmp_path / "images/0.tar", "w") as archive:
        archive.add(tmp_path / "lists/0.lst", "0.lst")
    remedy = "set the channel's content_type (or format=) to application/x-tar (--content-type)"
    shown = between_folders(tmp_path).stdout
    assert f"warning: an object is a tar, packed as one sample; {remedy}" in shown
    assert re.search(r": 1 shard with 1 sample, [\d,]+ bytes, digest", shown)


def test_sidecars_of_a_folder_are_joined(tmp_path: Path) -> None:
    pictures(tmp_path / "images")
    for image in (tmp_path / "images").rglob("*.png"):
        image.with_suffix(".json").write_text("{}")
    assert between_folders(tmp_path, "--sidecars", "json").returncode == 0
    assert json.loads((tmp_path / "shards/index.json").read_text())["count"] == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["images", "images/shards"], "contain each other"),
        (["images", "s3://mine/out"], "one is in S3, the other here; name two folders or two prefixes"),
        (["imags", "shards"], "imags/: there is no such folder"),
        (["images", "lists/0.lst"], "lists/0.lst: is a file; use another folder"),
        (["images", "shards", "--dry-run"], "between folders there is no job; leave out --dry-run"),
        (["images", "shards", "--labels", "s3://mine/lists"], "s3://mine/lists/ is in S3"),
    ],
)
def test_impossible_folders_are_refused(
    tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures(tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end, redirect_stderr(io.StringIO()) as errors:
        main(["reshard", *arguments])
    assert (end.value.code, message in errors.getvalue()) == (2, True), errors.getvalue()
