"""Images and their classes as batches: what is decoded and how, the random order, the member of a tar that is meant."""

from __future__ import annotations

import json
import threading
from io import BytesIO
from itertools import islice
from pathlib import Path

import pytest
import torch
from PIL import Image

from patience import wait_for
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.image_training.image_channel import ImageChannel, ImageForm, Loading
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.records.archives import tar_write
from sagemaker_channels.samples.labels import read_labels

COUNT = 40
GREY = ImageForm("L")


def png(mode: str, colour: int | tuple[int, ...], size: tuple[int, int] = (3, 2)) -> bytes:
    file = BytesIO()
    Image.new(mode, size, colour).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """40 images, grey as their class, in a folder `train` and in a tar of channel `tar`, there with masks beside them."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    config = {
        "train": {"TrainingInputMode": "File"},
        "lst": {"TrainingInputMode": "File"},
        "tar": {"TrainingInputMode": "File", "ContentType": "application/x-tar"},
        "tar_lst": {"TrainingInputMode": "File"},
    }
    for channel in config:
        (tmp_path / contract.DATA_DIR / channel).mkdir(parents=True)
    (tmp_path / contract.CONFIG_DIR).mkdir()
    (tmp_path / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(config))
    environment = load_environment(tmp_path, {})
    for number in range(COUNT):
        (environment.channels["train"].path / f"{number:02}.png").write_bytes(png("L", number))
    for channel, ending in (("lst", "png"), ("tar_lst", "mask.png")):
        lines = "".join(f"{number}\t{number}\t{number:02}.{ending}\n" for number in range(COUNT))
        (environment.channels[channel].path / "a.lst").write_text(lines)
    with (environment.channels["tar"].path / "a.tar").open("wb") as file:
        samples = ({"__key__": f"{n:02}", "png": png("L", 255), "mask.png": png("L", n)} for n in range(COUNT))
        tar_write.write(file, samples)
    return environment


def channel_of(
    environment: Environment, form: ImageForm = GREY, name: str = "train", **loading: int | None
) -> ImageChannel:
    lists = read_labels(environment, "tar_lst" if name == "tar" else "lst")
    return ImageChannel(environment, name, lists, form, Loading(**{"batch_size": 16, **loading}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["train", "tar"])
def test_batches_hold_images_with_the_classes_of_their_lines(environment: Environment, name: str) -> None:
    channel = channel_of(environment, name=name)
    batches = list(channel.batches(0))
    assert [tuple(batch.images.shape) for batch in batches] == [(16, 1, 2, 3), (16, 1, 2, 3), (8, 1, 2, 3)]
    classes = torch.cat([batch.classes for batch in batches])
    assert classes.tolist() == list(range(COUNT))
    pixels = torch.cat([batch.images for batch in batches])
    assert pixels.dtype == torch.float32
    assert torch.equal((pixels * 255).round().long(), classes.reshape(-1, 1, 1, 1).expand(-1, 1, 2, 3))
    assert sorted(channel.statistics.seen) == list(range(COUNT))
    assert channel.statistics.last.count == channel.statistics.samples == COUNT and channel.statistics.passes == 1


def test_order_is_a_function_of_seed_and_epoch(environment: Environment) -> None:
    def order(epoch: int, seed: int | None = 1) -> list[int]:
        channel = channel_of(environment, seed=seed, block=10)
        return [each for batch in channel.batches(epoch) for each in batch.classes.tolist()]

    one, again, later, other = order(0), order(0), order(1), order(0, 2)
    assert one == again and len({tuple(each) for each in (one, later, other)}) == 3
    assert sorted(one) == sorted(later) == sorted(other) == list(range(COUNT)) != one
    assert order(0, None) == list(range(COUNT))


@pytest.mark.parametrize("threads", [1, 3])
def test_resumed_pass_yields_the_remaining_batches(environment: Environment, threads: int) -> None:
    def channel() -> ImageChannel:
        return channel_of(environment, batch_size=4, seed=1, threads=threads)

    whole = [batch.lines for batch in channel().batches(5)]
    for done in range(len(whole) + 1):
        left, resumed = channel(), channel()
        assert [batch.lines for batch in islice(left.batches(5), done)] == whole[:done]
        resumed.loader.load_state_dict(left.loader.state_dict())
        resumed.resume(5, left.statistics.last, list(left.statistics.seen))
        assert [batch.lines for batch in resumed.batches(5)] == whole[done:]
        assert sorted(resumed.statistics.seen) == list(range(COUNT))
        assert resumed.statistics.last.count == COUNT
        assert len(list(resumed.batches(6))) == len(whole)
        assert sorted(resumed.statistics.seen) == list(range(COUNT))


def test_images_are_converted_to_the_requested_mode_and_size(environment: Environment) -> None:
    file = environment.channels["train"].path / "00.png"
    file.write_bytes(png("RGBA", (255, 0, 51, 255)))
    batch = next(channel_of(environment, ImageForm("RGB", 4)).batches(0))
    assert tuple(batch.images.shape) == (16, 3, 4, 4)
    assert torch.allclose(batch.images[0, :, 0, 0], torch.tensor([1.0, 0.0, 0.2]))
    assert ImageForm("RGB").channels == 3 and GREY.channels == 1


def test_undecodable_image_is_refused_by_name(environment: Environment) -> None:
    (environment.channels["train"].path / "03.png").write_bytes(b"no image")
    with pytest.raises(ChannelError, match=r"^channel 'train': image '03.png' of 8 bytes cannot be decoded: [^\n]*$"):
        list(channel_of(environment).batches(0))
    (environment.channels["train"].path / "03.png").write_bytes(png("L", 3)[:-30])
    with pytest.raises(ChannelError, match=r"^channel 'train': image '03.png' of \d+ bytes cannot be decoded: [^\n]*$"):
        list(channel_of(environment, threads=2).batches(0))


def test_images_of_different_sizes_need_image_size(environment: Environment) -> None:
    (environment.channels["train"].path / "03.png").write_bytes(png("L", 3, (9, 7)))
    with pytest.raises(
        ChannelError, match=r"image '03.png' has 9 x 7 pixels, unlike others of its batch; set image-size"
    ):
        list(channel_of(environment).batches(0))
    assert len(list(channel_of(environment, ImageForm("L", 4)).batches(0))) == 3


def test_epoch_left_early_leaves_no_threads(environment: Environment) -> None:
    before = set(threading.enumerate())  # threads of earlier tests may still end
    channel = channel_of(environment, threads=2, batch_size=2)
    batches = channel.batches(0)
    next(batches)
    batches.close()
    wait_for(lambda: not set(threading.enumerate()) - before)
    assert channel.statistics.samples == 2
