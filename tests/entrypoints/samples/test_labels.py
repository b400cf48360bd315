"""A channel of `.lst` files as one table of classes: what it takes, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.samples.labels import check_seen, class_of, read_labels


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    (tmp_path / contract.CONFIG_DIR).mkdir(parents=True)
    (tmp_path / contract.DATA_DIR / "lists" / "more").mkdir(parents=True)
    config = {"lists": {"TrainingInputMode": "File"}, "piped": {"TrainingInputMode": "Pipe"}}
    (tmp_path / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(config))
    return load_environment(tmp_path, {})


def write(environment: Environment, name: str, text: str) -> None:
    (environment.channels["lists"].path / name).write_text(text)


def test_several_lists_are_read_as_one(environment: Environment) -> None:
    write(environment, "b.lst", "0\t3.0\tb/1.png\n")
    write(environment, "more/a.lst", "7\t0\ta.png\n8\t11\t./c.png\n")
    write(environment, "notes.txt", "no list")
    labels = read_labels(environment, "lists")
    assert {path: class_of(line) for path, line in labels.lines.items()} == {"b/1.png": 3, "a.png": 0, "c.png": 11}
    assert sorted(labels.numbers.values()) == [0, 1, 2] and labels.numbers.keys() == labels.lines.keys()
    assert labels.classes == 12
    assert labels.size == 14 + 10 + 13


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1\t0.5\tx.png\n", "the label of 'x.png' is 0.5; expected one whole number from 0 on"),
        ("1\t-1\tx.png\n", "the label of 'x.png' is -1;"),
        ("1\tnan\tx.png\n", "the label of 'x.png' is nan;"),
        ("1\t1\t2\tx.png\n", "the label of 'x.png' is 1, 2;"),
        ("1\tnine\tx.png\n", "a.lst:1: index and labels must be numbers"),
        ("\n", "a.lst has no lines"),
    ],
)
def test_list_without_one_class_per_image_is_refused(environment: Environment, text: str, expected: str) -> None:
    write(environment, "a.lst", text)
    with pytest.raises(ChannelError) as error:
        read_labels(environment, "lists")
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_path_in_two_lists_is_refused(environment: Environment) -> None:
    write(environment, "a.lst", "1\t1\tx.png\n")
    write(environment, "b.lst", "1\t2\tx.png\n")
    with pytest.raises(ChannelError, match=r"b.lst: 'x.png' is in another list of channel 'lists', too"):
        read_labels(environment, "lists")


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        ("lists", "no .lst file in"),
        ("list", "no channel 'list'.* did you mean 'lists'"),
        ("piped", "'piped' has input_mode Pipe, but lists are read as files"),
    ],
)
def test_channel_without_lists_is_refused(environment: Environment, channel: str, expected: str) -> None:
    write(environment, "a.txt", "1\t1\tx.png\n")
    with pytest.raises(ChannelError, match=expected):
        read_labels(environment, channel)


def test_sampled_run_may_read_fewer_images_than_listed(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(environment, "a.lst", "1\t1\tx.png\n2\t1\ty.png\n")
    monkeypatch.setenv(contract.SAMPLE_VARIABLE, "1")
    check_seen("train", read_labels(environment, "lists"), [0])


def test_unread_and_repeated_images_are_refused(environment: Environment) -> None:
    write(environment, "a.lst", "1\t1\tx.png\n2\t1\ty.png\n3\t1\tz.png\n")
    labels = read_labels(environment, "lists")
    check_seen("train", labels, [2, 0, 1])
    check_seen("train", labels, [2], whole=False)
    with pytest.raises(ChannelError) as error:
        check_seen("train", labels, [2, 2, 0])
    assert str(error.value) == (
        "channel 'train' and its list 'lists' differ: lines without an image: 1, the first 'y.png'; "
        "images read more than once: 1, the first 'z.png'; correct the list or the images"
    )
