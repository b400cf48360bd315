"""The errors of channels: one wording of their attributes, which they keep on their way to the reader."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from delivered_channels import job
from sagemaker_channels import ChannelError, CorruptError, open_channel
from sagemaker_channels.errors import corrupt, in_channel


def test_message_is_worded_from_the_attributes() -> None:
    error = ChannelError("is cut", channel="train", object="a.tar", position=12, remedy="send it again")
    assert str(error) == "channel 'train': object 'a.tar', byte 12: is cut; send it again"
    assert error.problem == "channel 'train': object 'a.tar', byte 12: is cut"
    assert str(ChannelError("nothing is known")) == "nothing is known"
    assert str(corrupt(None, 3, "is cut")) == "byte 3: is cut"


def test_error_gets_its_channel_once_and_keeps_the_rest() -> None:
    error = corrupt("a.tar", 12, "is cut")
    error.is_final = True
    named = in_channel(error, "train")
    assert str(named) == "channel 'train': object 'a.tar', byte 12: is cut"
    assert isinstance(named, CorruptError) and in_channel(named, "other") is named
    assert (named.channel, named.object, named.position, named.is_final) == ("train", "a.tar", 12, True)


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
