"""Labels from class folders: the same classes and the same label of each image in every input mode."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delivered_channels import config, feed, job, recordio_of
from sagemaker_channels import ChannelDataset, ChannelMapDataset, class_index, contract, find_classes, load_environment
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sample import Sample
from served_bucket import served_bucket
from tar_archives import archive

FILES = {"dog/2.png": b"d2", "cat/1.png": b"c1", "ant-eater/x/3.png": b"a3", "cat/sub/4.png": b"c4"}
CLASSES = {"ant-eater": 0, "cat": 1, "dog": 2}
LABELS = {b"d2": 2, b"c1": 1, b"a3": 0, b"c4": 1}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for key, data in files.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write(tmp_path / "s3/bucket/images", FILES)
    with served_bucket(tmp_path, monkeypatch):
        yield


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("mode", ["File", "FastFile", "S3Connector"])
def test_labels_are_the_same_in_every_input_mode(tmp_path: Path, mode: str) -> None:
    config(tmp_path / "ml", 0, 1, {} if mode == "S3Connector" else {"train": {"TrainingInputMode": mode}})
    write(tmp_path / "ml/input/data/train", FILES)
    connector = json.dumps({"channel": "train", "s3_uri": "s3://bucket/images/", "style": "iterable"})
    variables = {f"{contract.CONNECTOR_VARIABLE}0": connector} if mode == "S3Connector" else {}
    environment = load_environment(tmp_path / "ml", variables)
    classes = find_classes("train", environment=environment)
    assert classes == CLASSES and list(classes) == sorted(CLASSES)

    def labelled(sample: Sample) -> tuple[bytes, int]:
        return sample["data"], class_index(sample, classes)

    assert dict(ChannelDataset("train", transform=labelled, environment=environment)) == LABELS
    if mode != "S3Connector":
        images: Any = ChannelMapDataset("train", transform=labelled, environment=environment)
        assert dict(images[number] for number in range(len(FILES))) == LABELS


@pytest.mark.usefixtures("bucket")
def test_prefix_and_folder_have_classes_without_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = {"region": "us-east-1", "endpoint": os.environ["AWS_ENDPOINT_URL"]}
    for name in ("AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "none"))
    assert find_classes("s3://bucket/images/", **store) == find_classes(tmp_path / "s3/bucket/images") == CLASSES


def test_members_of_a_tar_in_a_pipe_have_class_folders(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "Pipe", "ContentType": "application/x-tar"})
    with pytest.raises(
        ChannelError, match=r"a Pipe cannot be listed .*; .* name the classes, if the keys .*: classes = {"
    ):
        find_classes("train", environment=environment)
    feeder = feed(environment.data_dir / "train_0", [archive({"./dog/2.png": b"d2", "cat/1.png": b"c1"}.items())])
    samples = list(open_channel("train", environment=environment))
    feeder.join()
    assert [(sample["png"], class_index(sample, CLASSES)) for sample in samples] == [(b"d2", 2), (b"c1", 1)]


def test_samples_of_a_wrapped_pipe_have_no_key_and_the_error_says_why(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "Pipe", "RecordWrapperType": "RecordIO"})
    feeder = feed(environment.data_dir / "train_0", [recordio_of(FILES.values())])
    samples = list(open_channel("train", environment=environment))
    feeder.join()
    assert [*map(set, samples)] == [{"data"}] * len(FILES)
    with pytest.raises(
        ChannelError, match=r"without __key__ has no class folder: in a Pipe, .* use input_mode: FastFile"
    ):
        class_index(samples[0], CLASSES)


@pytest.mark.parametrize("key", ["bird/1.png", "1.png", "cats/1.png"])
def test_key_without_a_known_class_is_an_error(key: str) -> None:
    with pytest.raises(
        ChannelError, match=rf"sample '{key}' is not in a folder of one of the classes 'ant-eater', 'cat',"
    ):
        class_index({"__key__": key, "data": b""}, CLASSES)


def test_object_beside_the_class_folders_is_an_error(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "File"})
    write(tmp_path / contract.DATA_DIR / "train", {**FILES, ".DS_Store": b""})
    with pytest.raises(
        ChannelError, match=r"channel 'train': object '.DS_Store' is not in a class folder; keep it out"
    ):
        find_classes("train", environment=environment)


def test_only_folders_that_are_read_are_classes(tmp_path: Path) -> None:
    """Not links that the reader skips; an empty folder, which only a file system has, is one."""
    environment = job(tmp_path, train={"TrainingInputMode": "File"})
    train = tmp_path / contract.DATA_DIR / "train"
    write(train, FILES)
    (train / "zebra").mkdir(parents=True)
    (train / "loop").symlink_to(train)
    (train / "nothing").symlink_to(tmp_path / "missing")
    write(tmp_path / "elsewhere", {"9.png": b"9"})
    (train / "linked").symlink_to(tmp_path / "elsewhere")
    assert [*find_classes("train", environment=environment)] == [*sorted(CLASSES), "linked", "zebra"]
    read = {sample["__key__"].partition("/")[0] for sample in open_channel("train", environment=environment)}
    assert read == {*CLASSES, "linked"}


def test_missing_or_empty_channel_is_an_error(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "FastFile"})
    with pytest.raises(ChannelError, match=r"channel 'train': .*/train is not a directory"):
        find_classes("train", environment=environment)
    (tmp_path / contract.DATA_DIR / "train").mkdir(parents=True)
    with pytest.raises(ChannelError, match=r"channel 'train': no file in .*/train, nor below it"):
        find_classes("train", environment=environment)


def test_host_with_other_objects_than_the_others_may_lack_a_class(tmp_path: Path) -> None:
    config(tmp_path, 0, 2, {"train": {"TrainingInputMode": "File", "S3DistributionType": "ShardedByS3Key"}})
    write(tmp_path / contract.DATA_DIR / "train", {key: FILES[key] for key in sorted(FILES)[::2]})
    with pytest.raises(ChannelError, match=r"with ShardedByS3Key each host has other objects.* name the classes, if"):
        find_classes("train", environment=load_environment(tmp_path, {}))
