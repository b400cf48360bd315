"""`launch peek`: the samples that it shows are those that the job reads, and it reads no more than they need."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from aws_stand_in import StandIn
from launching import launch
from sagemaker_channels import open_channel
from sagemaker_channels.formats import SHORT_NAMES

SPEC = """\
base_name: digits
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1
role_arn: arn:aws:iam::123456789012:role/trainer
region: us-east-1
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 10}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://mine/out/}
container_entrypoint: [echo]
environment: {TOKEN: "${PEEKED}"}
channels:
  train: {s3_uri: s3://mine/train/, input_mode: FastFile, content_type: application/x-tar}
  text: {s3_uri: s3://mine/text/, input_mode: Pipe, content_type: text/plain}
  whole: {s3_uri: s3://mine/text/, input_mode: Pipe}
  lists: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /lists}
vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}
"""


AUGMENTED = """\
  train:
    s3_uri: s3://mine/labels.jsonl
    s3_data_type: AugmentedManifestFile
    attribute_names: [source-ref, class]
    input_mode: Pipe
    record_wrapper_type: RecordIO
"""


def tar(count: int, first: int = 0) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for number in range(first, first + count):
            for ending, data in (("png", image(number)), ("cls", b"%d" % number)):
                member = tarfile.TarInfo(f"{number:04d}.{ending}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return written.getvalue()


def image(number: int) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.new("RGB", (8 + number, 8), (number, 0, 0)).save(written, "PNG")
    return written.getvalue()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with job.yaml."""
    (tmp_path / "job.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEEKED", "hush-hush-hush")
    return tmp_path


@pytest.fixture
def account(aws: StandIn, here: Path) -> StandIn:
    aws.client("s3").create_bucket(Bucket="mine")
    for number in range(3):
        aws.client("s3").put_object(Bucket="mine", Key=f"train/{number}.tar", Body=tar(3, 3 * number) + bytes(1 << 20))
    aws.client("s3").put_object(Bucket="mine", Key="text/1.txt", Body=b"first\nhush-hush-hush\nthird\n")
    aws.clear_calls()
    return aws


def peeked(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = launch("peek", *arguments, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_samples_of_a_channel_in_s3_need_no_more_than_its_first_object(account: StandIn) -> None:
    train = peeked("job.yaml", "train", "--count", "2")["train"]
    assert [each["key"] for each in train["samples"]] == ["0000", "0001"]
    png, cls = train["samples"][1]["fields"]
    assert (png["type"], png["size"], png["bytes"]) == ("png", [9, 8], len(image(1)))
    assert (cls["type"], cls["text"]) == ("text", "1")
    assert (train["fields"], train["objects"], train["damaged"]) == ({"png": 2, "cls": 2}, 1, [])
    calls = [call["operation"] for call in account.calls() if call["service"] == "s3"]
    assert sorted(set(calls)) == ["GetObject", "ListObjectsV2"]
    assert train["bytes"] <= len(tar(3)) + (1 << 20)


def test_lines_of_a_pipe_have_no_key_and_no_secret(account: StandIn) -> None:
    text = peeked("job.yaml", "text")["text"]
    assert [each["key"] for each in text["samples"]] == [None] * 3
    assert [each["fields"][0]["text"] for each in text["samples"]] == ["first", "${PEEKED}", "third"]
    assert "hush" not in launch("peek", "job.yaml", "text").stdout


def test_whole_objects_of_a_pipe_are_refused_as_in_the_job(account: StandIn) -> None:
    done = launch("peek", "job.yaml", "whole")
    assert done.returncode == 3
    assert "whole objects lose their boundaries in a Pipe" in done.stderr


def test_channel_of_a_file_system_is_read_from_its_folder_only(here: Path) -> None:
    done = launch("peek", "job.yaml", "lists")
    assert done.returncode == 2
    assert "pass --channel lists=PATH" in done.stderr
    (here / "lists").mkdir()
    (here / "lists/train.lst").write_text("0\t1\tcat/1.jpg\n")
    found = peeked("job.yaml", "--channel", "lists=lists")
    assert found["lists"]["samples"][0]["key"] == "train.lst"


@pytest.mark.parametrize("name", ["tar", "zip", "recordio", "lines", "csv", "jsonl", "parquet"])
def test_samples_are_those_that_the_library_yields(name: str, here: Path) -> None:
    form = SHORT_NAMES[name]
    samples = [form.example(number, b"%d" % number) for number in range(5)]
    (here / "data").mkdir()
    with (here / "data/a").open("wb") as file:
        assert form.write is not None
        form.write(file, [{"__key__": f"k{number}", **each} for number, each in enumerate(samples)])
    expected = [*open_channel(here / "data", format=name)]
    found = peeked("data", "--format", name)["data"]
    assert [each["key"] for each in found["samples"]] == [each.get("__key__") for each in expected]
    names = [[field["field"] for field in each["fields"]] for each in found["samples"]]
    assert names == [[each for each in sample if each != "__key__"] for sample in expected]


def test_damaged_samples_are_named_and_the_others_shown(here: Path) -> None:
    (here / "data").mkdir()
    (here / "data/0.png").write_bytes(image(0)[:40])
    (here / "data/1.png").write_bytes(image(1))
    found = peeked("data", "--sheet", "sheet.png", code=3)["data"]
    assert len(found["samples"]) == 2
    (damaged,) = found["damaged"]
    assert damaged.startswith("0.png: data: the image cannot be decoded")
    from PIL import Image

    with Image.open("sheet.png") as sheet:
        assert sheet.size == (128, 128)
    (here / "data/0.png").unlink()
    (here / "data/2.tar").write_bytes(tar(2)[:-12_000])
    done = launch("peek", "data", "--format", "tar")
    assert (done.returncode, done.stderr.partition(";")[0]) == (3, "error: 1 sample cannot be read")
    (here / "data/1.png").unlink()
    (here / "data/2.tar").write_bytes(bytes(10_240))
    nothing = launch("peek", "data", "--format", "tar").stdout
    assert nothing.splitlines()[-1] == "  0 samples of 1 object, 10.2 kB read; fields: -; endings of keys: -"


def test_shards_read_as_whole_objects_are_pointed_out(here: Path) -> None:
    (here / "data").mkdir()
    (here / "data/0.tar").write_bytes(tar(2))
    assert "--format tar" in launch("peek", "data").stderr
    for name, remedy in (
        (
            "data/0.tar",
            "is a file, but not a spec; name its folder, data, or give a spec the ending .yaml, .yml or .json\n",
        ),
        (f"{'x' * 300}.tar", "File name too long"),
    ):
        done = launch("peek", name)
        assert (done.returncode, remedy in done.stderr) == (2, True), done.stderr
    (here / "data/0.tar").rename(here / "data/0.jsonl")  # whose bytes do not show it
    (here / "data/0.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    assert "--format jsonl" in launch("peek", "data").stderr


def test_folder_of_links_has_the_samples_of_their_folders(here: Path) -> None:
    (here / "elsewhere").mkdir()
    (here / "elsewhere/a.txt").write_text("text")
    (here / "classes").mkdir()
    (here / "classes/cat").symlink_to(here / "elsewhere")
    assert "cat/a.txt" in launch("peek", "classes").stdout


def test_file_without_permission_is_one_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def denied(path: str, flags: int, mode: int = 0o777, **where: Any) -> int:
        if str(path).endswith("data/1.txt"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, flags, mode, **where)

    (here / "data").mkdir()
    (here / "data/1.txt").write_text("1")
    monkeypatch.setattr(os, "open", denied)
    done = launch("peek", "data")
    assert (done.returncode, done.stderr) == (
        3,
        "error: data/1.txt: cannot be read: Permission denied; ask its owner\n",
    )


def test_missing_prefix_is_one_error(account: StandIn) -> None:
    done = launch("peek", "s3://mine/tain/")
    assert done.returncode == 2
    assert "did you mean train/?" in done.stderr


def test_lines_of_an_augmented_manifest_are_shown_with_their_attributes(aws: StandIn, here: Path) -> None:
    Path("job.yaml").write_text(SPEC.partition("  train:")[0] + AUGMENTED)
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="mine")
    for number in (0, 1):
        s3.put_object(Bucket="mine", Key=f"{number}.png", Body=image(number))
    lines = [{"source-ref": f"s3://mine/{number}.png", "class": number, "x": 1} for number in range(3)]
    s3.put_object(Bucket="mine", Key="labels.jsonl", Body="\n".join(map(json.dumps, lines)))
    done = launch("peek", "job.yaml", "train", "--count", "2", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["train"]
    assert [[field.get("size", field.get("text")) for field in each["fields"]] for each in shown["samples"]] == [
        [[8, 8], "0"],
        [[9, 8], "1"],
    ]
    missing = launch("peek", "job.yaml", "train")
    assert (missing.returncode, "damaged: s3://mine/2.png" in missing.stdout) == (3, True)
