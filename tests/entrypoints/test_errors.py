"""The errors of channels: one wording of their attributes, which they keep on their way to the reader."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from delivered_channels import job
from faulty_s3 import environment_of, faulty_s3
from sagemaker_channels import (
    ChannelDataset,
    ChannelError,
    ChannelMapDataset,
    CorruptError,
    ThreadLoader,
    WorkerLoader,
    open_channel,
)
from sagemaker_channels.errors import corrupt, in_channel

KINDS = {"ChannelError", "CorruptError", "MissingError", "cause.error"}


def test_message_is_worded_from_the_attributes() -> None:
    error = ChannelError("is cut", channel="train", object="a.tar", position=12, remedy="send it again")
    assert str(error) == "channel 'train': object 'a.tar', byte 12: is cut; send it again"
    assert error.problem == "channel 'train': object 'a.tar', byte 12: is cut"
    assert str(ChannelError("nothing is known")) == "nothing is known"
    assert str(corrupt(None, 3, "is cut")) == "byte 3: is cut"


def test_error_gets_its_channel_once_and_keeps_the_rest() -> None:
    error = corrupt("a.tar", 12, "is cut")
    named = in_channel(error, "train")
    assert str(named) == "channel 'train': object 'a.tar', byte 12: is cut"
    assert isinstance(named, CorruptError) and in_channel(named, "other") is named
    assert (named.channel, named.object, named.position) == ("train", "a.tar", 12)


def test_pickled_error_has_the_same_message_and_attributes() -> None:
    error = ChannelError("is cut", channel="train", object="a.tar", position=12, remedy="send it again")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (ChannelError, str(error), vars(error))


def test_damaged_object_is_named_by_the_error_of_its_reader(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "File", "ContentType": "application/x-tar"})
    folder = environment.channels["train"].path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.tar").write_bytes(b"no tar" * 200)
    with pytest.raises(CorruptError) as found:
        list(open_channel("train", environment=environment))
    error = found.value
    assert (error.channel, error.object, error.position) == ("train", "a.tar", 0)
    assert str(error).startswith("channel 'train': object 'a.tar', byte 0: ")


def test_worker_sends_an_error_with_its_attributes(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"no tar" * 200)
    for kind, workers in ((ThreadLoader, 2), (WorkerLoader, 2), (WorkerLoader, 0)):
        with pytest.raises(CorruptError) as found:
            list(kind(ChannelDataset(tmp_path, format="tar"), num_workers=workers))
        assert (found.value.channel, found.value.object, found.value.position) == (str(tmp_path), "a.tar", 0)
        assert str(found.value).startswith(f"channel {str(tmp_path)!r}: object 'a.tar', byte 0: ")


def test_error_of_the_store_names_channel_object_and_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with faulty_s3(tmp_path, monkeypatch) as store:
        (store.folder / "a.txt").write_bytes(b"a line")
        environment = environment_of(tmp_path, "s3://bucket/")
        dataset, samples = (
            ChannelMapDataset("train", environment=environment),
            open_channel("train", environment=environment),
        )
        samples.source.objects[0]  # lists it
        (store.folder / "a.txt").unlink()
        for read in (lambda: dataset[0], lambda: list(samples)):
            with pytest.raises(ChannelError, match="404 NoSuchKey") as found:
                read()
            error = found.value
            remedy = "do not change a job's objects while it runs"
            assert (error.channel, error.object, error.remedy) == ("train", "a.txt", remedy)


def test_remedies_are_attributes() -> None:
    """A remedy that is only in the text of a reason, after a semicolon, would be missing from the error's `remedy`."""
    wrong = []
    for file in (Path(__file__).parents[2] / "entrypoints").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in KINDS and node.args:
                texts = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)]
                found = "".join(text for text in texts if isinstance(text, str))
                if re.search(r"; (?!it has|the file has|;|\.\.\.|$)", found):
                    wrong.append(f"{file.name}:{node.lineno}: {found}")
    assert wrong == []
