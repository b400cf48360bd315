"""Images and their classes as batches: what is decoded and how, the random order, the member of a tar that is meant."""

from __future__ import annotations

import json
import multiprocessing
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image

from entrypoints import contract
from entrypoints.environment import Environment, load_environment
from entrypoints.errors import ChannelError
from entrypoints.labels import read_labels
from entrypoints.records import tar_write
from entrypoints.torch_images import ImageChannel, ImageForm, Loading

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


def channel_of(environment: Environment, form: ImageForm = GREY, name: str = "train", **loading: int) -> ImageChannel:
    lists = read_labels(environment, "tar_lst" if name == "tar" else "lst")
    return ImageChannel(environment, name, lists, form, Loading(**{"batch_size": 16, **loading}))


@pytest.mark.parametrize("name", ["train", "tar"])
def test_images_come_with_their_classes(environment: Environment, name: str) -> None:
    channel = channel_of(environment, name=name)
    batches = list(channel.batches())
    assert [tuple(batch.images.shape) for batch in batches] == [(16, 1, 2, 3), (16, 1, 2, 3), (8, 1, 2, 3)]
    classes = torch.cat([batch.classes for batch in batches])
    assert classes.tolist() == list(range(COUNT))
    pixels = torch.cat([batch.images for batch in batches])
    assert pixels.dtype == torch.float32
    assert torch.equal((pixels * 255).round().long(), classes.reshape(-1, 1, 1, 1).expand(-1, 1, 2, 3))
    assert sorted(channel.delivery.met) == list(range(COUNT))
    assert channel.delivery.last.count == channel.delivery.samples == COUNT and channel.delivery.passes == 1


def test_a_random_order_has_a_name(environment: Environment) -> None:
    def order(words: str, buffer: int) -> list[int]:
        return [
            each for batch in channel_of(environment, buffer=buffer).batches(words) for each in batch.classes.tolist()
        ]

    one, again, other = order("epoch 0", 10), order("epoch 0", 10), order("epoch 1", 10)
    assert one == again != other
    assert sorted(one) == sorted(other) == list(range(COUNT)) != one
    assert order("epoch 0", 0) == list(range(COUNT))
    # Of ten that wait one is drawn, so nothing can come earlier than ten places before its turn; much comes later.
    assert all(value - place <= 10 for place, value in enumerate(one))


def test_form(environment: Environment) -> None:
    file = environment.channels["train"].path / "00.png"
    file.write_bytes(png("RGBA", (255, 0, 51, 255)))
    batch = next(channel_of(environment, ImageForm("RGB", 4)).batches())
    assert tuple(batch.images.shape) == (16, 3, 4, 4)
    assert torch.allclose(batch.images[0, :, 0, 0], torch.tensor([1.0, 0.0, 0.2]))
    assert ImageForm("RGB").channels == 3 and GREY.channels == 1


def test_an_image_that_is_none(environment: Environment) -> None:
    (environment.channels["train"].path / "03.png").write_bytes(b"no image")
    with pytest.raises(ChannelError, match=r"^channel 'train': image '03.png' of 8 bytes cannot be decoded: [^\n]*$"):
        list(channel_of(environment).batches())
    (environment.channels["train"].path / "03.png").write_bytes(png("L", 3)[:-30])
    with pytest.raises(ChannelError, match=r"^channel 'train': image '03.png' of \d+ bytes cannot be decoded: [^\n]*$"):
        list(channel_of(environment, workers=1).batches())


def test_images_of_different_sizes(environment: Environment) -> None:
    (environment.channels["train"].path / "03.png").write_bytes(png("L", 3, (9, 7)))
    with pytest.raises(ChannelError, match=r"image '03.png' has 9 x 7 pixels, unlike others; set image-size"):
        list(channel_of(environment).batches())
    assert len(list(channel_of(environment, ImageForm("L", 4)).batches())) == 3


def test_an_epoch_that_is_left_leaves_no_workers(environment: Environment) -> None:
    channel = channel_of(environment, workers=2, batch_size=2)
    batches = channel.batches("epoch 0")
    next(batches)
    batches.close()
    assert multiprocessing.active_children() == []
    assert channel.delivery.samples == 2
