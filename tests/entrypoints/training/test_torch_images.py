"""Images and their classes as batches: what is decoded and how, the random order, the member of a tar that is meant."""

from __future__ import annotations

import json
import threading
from argparse import Namespace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from patience import wait_for
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import tar
from sagemaker_channels.job.environment import Environment, load_environment
from train_parts import ImageChannel

COUNT = 40


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
        "train_lst": {"TrainingInputMode": "File"},
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
    for channel, ending in (("train_lst", "png"), ("tar_lst", "mask.png")):
        lines = "".join(f"{number}\t{number}\t{number:02}.{ending}\n" for number in range(COUNT))
        (environment.channels[channel].path / "a.lst").write_text(lines)
    with (environment.channels["tar"].path / "a.tar").open("wb") as file:
        samples = ({"__key__": f"{n:02}", "png": png("L", 255), "mask.png": png("L", n)} for n in range(COUNT))
        tar.write(file, samples)
    return environment


def channel_of(
    environment: Environment, name: str = "train", order: dict[str, int] | None = None, **changed: Any
) -> ImageChannel:
    options = {"batch_size": 16, "num_workers": 1, "image_mode": "L", "image_size": None, **changed}
    return ImageChannel(environment, name, Namespace(**options), **(order or {}))


def batches_of(channel: ImageChannel, epoch: int = 0) -> Any:
    channel.loader.set_epoch(epoch)
    return iter(channel.loader)


@pytest.mark.parametrize("name", ["train", "tar"])
def test_batches_hold_images_with_the_classes_of_their_lines(environment: Environment, name: str) -> None:
    batches = list(batches_of(channel_of(environment, name)))
    assert [tuple(images.shape) for images, _, _ in batches] == [(16, 1, 2, 3), (16, 1, 2, 3), (8, 1, 2, 3)]
    classes = torch.cat([classes for _, classes, _ in batches])
    assert classes.tolist() == list(range(COUNT))
    pixels = torch.cat([images for images, _, _ in batches])
    assert pixels.dtype == torch.float32
    assert torch.equal((pixels * 255).round().long(), classes.reshape(-1, 1, 1, 1).expand(-1, 1, 2, 3))
    assert sum(read.count for _, _, read in batches) == COUNT


def test_order_is_a_function_of_seed_and_epoch(environment: Environment) -> None:
    def order(epoch: int, **shuffle: int) -> list[int]:
        channel = channel_of(environment, order=shuffle)
        return [each for _, classes, _ in batches_of(channel, epoch) for each in classes.tolist()]

    ones = {"seed": 1, "block": 10}
    one, again, later = order(0, **ones), order(0, **ones), order(1, **ones)
    other = order(0, seed=2, block=10)
    assert one == again and len({tuple(each) for each in (one, later, other)}) == 3
    assert sorted(one) == sorted(later) == sorted(other) == list(range(COUNT)) != one
    assert order(0) == list(range(COUNT))


@pytest.mark.parametrize("threads", [1, 3])
def test_resumed_pass_yields_the_remaining_batches(environment: Environment, threads: int) -> None:
    def channel() -> ImageChannel:
        return channel_of(environment, order={"seed": 1}, batch_size=4, num_workers=threads)

    def classes(channel: ImageChannel, epoch: int, batches: int | None = None) -> list[list[int]]:
        return [classes.tolist() for _, classes, _ in islice(batches_of(channel, epoch), batches)]

    whole = classes(channel(), 5)
    for done in range(len(whole) + 1):
        left, resumed = channel(), channel()
        assert classes(left, 5, done) == whole[:done]
        resumed.loader.load_state_dict(left.loader.state_dict())
        assert classes(resumed, 5) == whole[done:]
        assert sorted(each for batch in classes(resumed, 6) for each in batch) == list(range(COUNT))


def test_images_are_converted_to_the_requested_mode_and_size(environment: Environment) -> None:
    file = environment.channels["train"].path / "00.png"
    file.write_bytes(png("RGBA", (255, 0, 51, 255)))
    images, _, _ = next(batches_of(channel_of(environment, image_mode="RGB", image_size=4)))
    assert tuple(images.shape) == (16, 3, 4, 4)
    assert torch.allclose(images[0, :, 0, 0], torch.tensor([1.0, 0.0, 0.2]))


def test_undecodable_image_is_refused_by_name(environment: Environment) -> None:
    (environment.channels["train"].path / "03.png").write_bytes(b"no image")
    with pytest.raises(ChannelError, match=r"^channel 'train': image '03.png' of 8 bytes cannot be decoded: [^\n]*$"):
        list(batches_of(channel_of(environment)))
    (environment.channels["train"].path / "03.png").write_bytes(png("L", 3)[:-30])
    with pytest.raises(ChannelError, match=r"^channel 'train': image '03.png' of \d+ bytes cannot be decoded: [^\n]*$"):
        list(batches_of(channel_of(environment, num_workers=2)))


def test_images_of_different_sizes_need_image_size(environment: Environment) -> None:
    (environment.channels["train"].path / "03.png").write_bytes(png("L", 3, (9, 7)))
    with pytest.raises(
        ChannelError, match=r"image '03.png' has 9 x 7 pixels, unlike others of its batch; set image-size"
    ):
        list(batches_of(channel_of(environment)))
    assert len(list(batches_of(channel_of(environment, image_size=4)))) == 3


def test_epoch_left_early_leaves_no_threads(environment: Environment) -> None:
    before = set(threading.enumerate())  # threads of earlier tests may still end
    channel = channel_of(environment, num_workers=2, batch_size=2)
    batches = batches_of(channel)
    next(batches)
    batches.close()
    wait_for(lambda: not set(threading.enumerate()) - before)
