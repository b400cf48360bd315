"""open_channel: what it refuses, and errors while reading."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from delivered_channels import (
    delivered,
    feed,
    job,
    recordio_of,
    tally,
)
from sagemaker_channels.epoch.channel import find_channel, open_channel
from sagemaker_channels.epoch.placement import Placement, default_shard
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.torch_data.dataset import ChannelDataset


def test_unknown_channel_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    environment = job(tmp_path, train={}, validation={})
    with pytest.raises(ChannelError, match=r"no channel 'trian'; it has train, validation; did you mean 'train'"):
        open_channel("trian", environment=environment)


def test_whole_objects_in_a_pipe_are_refused(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "Pipe", "ContentType": "image/png"})
    with pytest.raises(
        ChannelError,
        match=r"'train': whole objects lose their boundaries in a Pipe; set record_wrapper_type.*'image/png'",
    ):
        open_channel("train", environment=environment)
    untyped = job(tmp_path / "untyped", train={"TrainingInputMode": "Pipe"})
    with pytest.raises(ChannelError, match=r"whole objects lose their boundaries in a Pipe; .*the channel has none"):
        open_channel("train", environment=untyped)


def test_default_shard_of_a_pipe_counts_its_readers(tmp_path: Path) -> None:
    environment = job(tmp_path, train={"TrainingInputMode": "Pipe", "ContentType": "text/csv"})
    channel = find_channel(environment, "train")
    assert default_shard(channel, Placement(), worker=0, workers=1).readers == 1
    shard = default_shard(
        channel, Placement(rank=3, world_size=4, local_rank=1, local_world_size=2), worker=2, workers=3
    )
    assert (shard.index, shard.count, shard.readers) == (2 * 4 + 3, 12, 6)


def test_damage_names_channel_object_and_offset(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        shard = environment.channels["tar"].path / "3.tar"
        shard.write_bytes(shard.read_bytes()[:700])
        with pytest.raises(CorruptError, match=r"channel 'tar': object '3.tar', byte 0: the stream ends at byte 700"):
            tally(open_channel("tar", environment=environment))


def test_removed_file_raises_with_channel_and_object(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        samples = open_channel("lines", environment=environment)
        next(samples)
        (environment.channels["lines"].path / "5.csv").unlink()
        with pytest.raises(ChannelError, match=r"channel 'lines': object '5.csv': cannot be read: .*No such file"):
            list(samples)


def open_files(directory: Path) -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # the listing's own
            continue
        if target.startswith(str(directory)):
            found.append(target)
    return found


@pytest.mark.linux
def test_closing_early_closes_the_stream(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        samples = open_channel("tar", environment=environment)
        next(samples)
        assert [Path(name).name for name in open_files(tmp_path)] == ["0.tar"]
        samples.close()
        assert open_files(tmp_path) == []
        assert list(samples) == []


def test_records_of_a_wrapped_pipe_have_their_own_format(tmp_path: Path) -> None:
    environment = job(
        tmp_path,
        train={"TrainingInputMode": "Pipe", "ContentType": "text/csv", "RecordWrapperType": "RecordIO"},
    )
    # Without the wrapper the first object's last line would run into the second's first.
    feeder = feed(environment.data_dir / "train_0", [recordio_of([b"a\nb", b"c\nd"])])
    assert [sample["data"] for sample in open_channel("train", environment=environment)] == [b"a", b"b", b"c", b"d"]
    feeder.join()


def test_damage_is_one_traceback_without_internal_causes(tmp_path: Path) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        shard = environment.channels["tar"].path / "0.tar"
        shard.write_bytes(b"\xff" + shard.read_bytes())
        with pytest.raises(CorruptError, match=r"channel 'tar': .*not a row of CSV in UTF-8") as raised:
            tally(open_channel("tar", format="csv", environment=environment))
    assert "".join(traceback.format_exception(raised.value)).count("Traceback") == 1


@pytest.mark.parametrize(
    ("name", "note"), [("tar", "; its bytes are a tar: set the channel's content_type (or format=) to"), ("whole", "")]
)
def test_key_error_of_a_transform_names_the_fields_and_what_the_bytes_are(tmp_path: Path, name: str, note: str) -> None:
    with delivered(tmp_path, "File", 1, "FullyReplicated") as [environment]:
        dataset = ChannelDataset(
            name, format="objects", transform=lambda sample: sample["png"], environment=environment
        )
        with pytest.raises(KeyError) as raised:
            next(iter(dataset))
    text = "".join(traceback.format_exception(raised.value))
    assert (
        "in the transform of a sample of channel" in text
        and ", which has the fields __key__, data; it " in text
        and note in text
    )
    assert ("its bytes are" in text) == bool(note)
