"""The lists of train.py: one class for each image, from one list or several."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sagemaker_channels import ChannelError, Environment, contract, load_environment
from train_parts import read_lines


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
    lines = read_lines(environment, "lists")
    assert {path: line.labels for path, line in lines.items()} == {"b/1.png": (3,), "a.png": (0,), "c.png": (11,)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1\t0.5\tx.png\n", "the label of 'x.png' is 0.5; expected one class, an integer >= 0"),
        ("1\t-1\tx.png\n", "the label of 'x.png' is -1;"),
        ("1\tnan\tx.png\n", "the label of 'x.png' is nan;"),
        ("1\t1\t2\tx.png\n", "the label of 'x.png' is 1, 2;"),
        ("1\tnine\tx.png\n", "a.lst:1: index and labels must be numbers"),
        ("\n", "channel 'lists': no .lst file in"),
    ],
)
def test_list_without_one_class_per_image_is_refused(environment: Environment, text: str, expected: str) -> None:
    write(environment, "a.lst", text)
    with pytest.raises(ChannelError) as error:
        read_lines(environment, "lists")
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_path_in_two_lists_is_refused(environment: Environment) -> None:
    write(environment, "a.lst", "1\t1\tx.png\n")
    write(environment, "b.lst", "1\t2\tx.png\n")
    with pytest.raises(ChannelError, match=r"b.lst: 'x.png' is in another list, too"):
        read_lines(environment, "lists")


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        ("list", "no channel 'list'.* did you mean 'lists'"),
        ("piped", "no .lst file in .*/piped has lines, and the channel's input_mode is Pipe; name .* File, EFS or FSx"),
    ],
)
def test_channel_without_lists_is_refused(environment: Environment, channel: str, expected: str) -> None:
    with pytest.raises(ChannelError, match=expected):
        read_lines(environment, channel)
