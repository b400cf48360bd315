"""Keys are set and removed in a spec's text, and nothing else changes."""

from __future__ import annotations

import difflib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import RefusedError
from launcher.survey.applying import drop_key, set_key

TEXT = """\
# a job
channels:          # two of them
  train:   # images
    s3_uri: s3://b/train/   # the newest
    input_mode: 'File'      # to be changed
    content_type: application/x-tar
  # short
  validation:  s3://b/val/     # small
  test: {s3_uri: "s3://b/test/",   # of 2026
         input_mode: File}
tags: {a: b}
"""


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


@pytest.mark.parametrize(
    ("channel", "expected"),
    [
        (
            "train",
            ["-     input_mode: 'File'      # to be changed", "+     input_mode: FastFile      # to be changed"],
        ),
        (
            "validation",
            [
                "-   validation:  s3://b/val/     # small",
                "+   validation:  {s3_uri: s3://b/val/, input_mode: FastFile}     # small",
            ],
        ),
        ("test", ["-          input_mode: File}", "+          input_mode: FastFile}"]),
        ("new", ["+   new: {input_mode: FastFile}"]),
    ],
)
def test_set_key_changes_only_its_line(channel: str, expected: list[str]) -> None:
    after = set_key(TEXT, ("channels", channel, "input_mode"), "FastFile")
    assert changed_lines(TEXT, after) == expected
    assert yaml.safe_load(after)["channels"][channel]["input_mode"] == "FastFile"


def test_set_key_without_a_value_or_with_carriage_returns() -> None:
    assert set_key("channels:\n  train:\n    input_mode:\n", ("channels", "train", "input_mode"), "Pipe") == (
        "channels:\n  train:\n    input_mode: Pipe\n"
    )
    text = "a: b\r\nchannels:\r\n  train:\r\n    s3_uri: s3://b/\r\n"
    after = set_key(text, ("channels", "train", "input_mode"), "Pipe")
    assert after == "a: b\r\nchannels:\r\n  train:\r\n    input_mode: Pipe\r\n    s3_uri: s3://b/\r\n"


def test_json_stays_json() -> None:
    text = '{"channels": {"train": "s3://b/a,b/", "test": {"s3_uri": "s3://b/"}}}'
    for channel in ("train", "test", "new"):
        text = set_key(text, ("channels", channel, "input_mode"), "FastFile")
    assert {name: each["input_mode"] for name, each in json.loads(text)["channels"].items()} == dict.fromkeys(
        ("train", "test", "new"), "FastFile"
    )


def test_uri_with_commas_is_quoted_in_a_mapping() -> None:
    after = set_key("channels:\n  train: s3://b/a,b/\n", ("channels", "train", "input_mode"), "FastFile")
    assert yaml.safe_load(after)["channels"]["train"] == {"s3_uri": "s3://b/a,b/", "input_mode": "FastFile"}


def test_drop_key_removes_its_line_or_its_pair() -> None:
    after = drop_key(TEXT, ("channels", "train", "input_mode"))
    assert changed_lines(TEXT, after) == ["-     input_mode: 'File'      # to be changed", "+     # to be changed"]
    assert drop_key("c: {a: 1, b: 2}\n", ("c", "b")) == "c: {a: 1}\n"
    assert drop_key("c: {a: 1, b: 2}\n", ("c", "a")) == "c: {b: 2}\n"
    assert drop_key("c: {a: 1}\n", ("c", "a")) == "c: {}\n"
    assert drop_key("c:\n  a:\n    x: 1\n  b: 2\n", ("c", "a")) == "c:\n  b: 2\n"
    assert drop_key("c:\n  a:\n    x: 1 # y\n  # z\n  b: 2\n", ("c", "a")) == "c:\n  # y\n  # z\n  b: 2\n"
    assert drop_key(TEXT, ("channels", "validation", "style")) == TEXT


def test_alias_is_refused() -> None:
    text = "channels:\n  train: &data {s3_uri: s3://b/}\n  test: *data\n"
    with pytest.raises(RefusedError, match=r"channels.test.input_mode: cannot be set: it is an alias"):
        set_key(text, ("channels", "test", "input_mode"), "FastFile")


KEYS = st.lists(st.sampled_from(["s3_uri", "input_mode", "content_type", "style"]), unique=True, min_size=1)
VALUES = st.sampled_from(["File", "'File'", '"a # b"', "s3://b/c/", "x-y"])
COMMENTS = st.sampled_from(["", "  # why", " # a: b"])


@given(st.lists(st.tuples(KEYS, st.booleans(), COMMENTS), min_size=1, max_size=4), st.data())
def test_only_the_key_changes_in_any_spec(channels: list[tuple[list[str], bool, str]], data: st.DataObject) -> None:
    lines = ["base_name: x  # first", "channels:"]
    for number, (keys, in_flow, comment) in enumerate(channels):
        pairs = [f"{key}: {data.draw(VALUES)}" for key in keys]
        name = f"  c{number}:"
        lines += (
            [f"{name} {{{', '.join(pairs)}}}{comment}"]
            if in_flow
            else [name + comment, *(f"    {each}" for each in pairs)]
        )
    text = "\n".join([*lines, "tags: {a: b}  # last", ""])
    chosen, key = data.draw(st.sampled_from(range(len(channels)))), data.draw(st.sampled_from(["input_mode", "style"]))
    expected = yaml.safe_load(text)
    expected["channels"][f"c{chosen}"][key] = "Pipe"
    after = set_key(text, ("channels", f"c{chosen}", key), "Pipe")
    assert yaml.safe_load(after) == expected
    assert len([line for line in changed_lines(text, after) if line[0] == "-"]) <= 1
    if len(expected["channels"][f"c{chosen}"]) > 1:
        del expected["channels"][f"c{chosen}"][key]
        assert yaml.safe_load(drop_key(after, ("channels", f"c{chosen}", key))) == expected
