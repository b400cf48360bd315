"""`.lst` files are joined to their images, or the first thing that does not fit is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sample import Sample
from sagemaker_channels.samples.lst import Line, line_of, parse_lst, read_lst, sample_paths, write_lst

LINES = {"a/1.png": Line(0, (3.0,), "a/1.png"), "2.png": Line(1, (0.5, 2.0), "2.png")}
IMAGES: list[Sample] = [{"__key__": "2.png", "data": b"two"}, {"__key__": "a/1.png", "data": b"one"}]


def lst(directory: Path, text: str) -> Path:
    file = directory / "train.lst"
    file.write_bytes(text.encode())
    return file


def test_lines_are_read_with_labels_and_normalised_paths(tmp_path: Path) -> None:
    # As im2rec writes it, as people edit it.
    text = "0\t3.000000\ta/1.png\r\n\n1\t0.5\t2\t./2.png"
    assert read_lst(lst(tmp_path, text)) == LINES


paths = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1).filter(
    lambda path: path == path.strip() and not path.startswith("./")
)
floats = st.floats(allow_nan=False)


@given(st.dictionaries(paths, st.tuples(st.integers(0, 2**31), st.lists(floats, min_size=1, max_size=3))))
def test_written_list_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, tuple[int, list[float]]]
) -> None:
    lines = {path: Line(index, tuple(labels), path) for path, (index, labels) in content.items()}
    file = tmp_path_factory.mktemp("lst") / "x.lst"
    write_lst(file, lines.values())
    assert read_lst(file) == lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\t1\ta.png\n1\t2\ta.png\n", r"train.lst:2: 'a.png' is listed a second time"),
        ("0\t1\ta.png\n1\t2\t./a.png\n", r"train.lst:2: 'a.png' is listed a second time"),
        ("0 1 a.png\n", r"train.lst:1: "),
        ("0\t1\ta.png\n\n1\tcat\tb.png", r"train.lst:3: index and labels must be numbers, got .*cat"),
        ("0\ta.png", r"train.lst:1: expected index, label\(s\) and path"),
        ("0\t1\t", r"train.lst:1: expected index, label\(s\) and path"),
        ("x\t1\ta.png", r"train.lst:1: index and labels must be numbers"),
        ("inf\t1\ta.png", r"train.lst:1: index and labels must be numbers"),
    ],
)
def test_malformed_line_is_refused_by_number(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ChannelError, match=message):
        read_lst(lst(tmp_path, text))


def test_missing_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"nothing.lst: the list cannot be read: No such file"):
        read_lst(tmp_path / "nothing.lst")


@pytest.mark.parametrize("line", [Line(0, (1.0,), "a\tb"), Line(0, (), "a"), Line(0, (1.0,), "")])
def test_line_without_labels_or_path_is_not_written(tmp_path: Path, line: Line) -> None:
    with pytest.raises(ValueError, match=r"a line needs labels and a path"):
        write_lst(tmp_path / "x.lst", [line])


def test_line_of_a_whole_object_is_found_by_its_key() -> None:
    assert [line_of(image, LINES).labels for image in IMAGES] == [(0.5, 2.0), (3.0,)]


def test_line_of_a_tars_group_is_found_by_a_members_path() -> None:
    samples: list[Sample] = [{"__key__": "./a/1", "png": b"", "json": b"{}"}, {"__key__": "2", "png": b""}]
    assert [line_of(sample, LINES).labels for sample in samples] == [(3.0,), (0.5, 2.0)]
    assert sample_paths(samples[0]) == ["a/1.png", "a/1.json"]


def test_image_without_a_line_is_an_error() -> None:
    with pytest.raises(ChannelError, match=r"image 'b.png' has no line in the list"):
        line_of({"__key__": "b.png", "data": b""}, LINES)
    with pytest.raises(ChannelError, match=r"image 'b.png' or 'b.cls' has no line"):
        line_of({"__key__": "b", "png": b"", "cls": b""}, LINES)


def test_two_lines_for_one_sample_are_an_error() -> None:
    lines = {path: Line(0, (1.0,), path) for path in ("1.png", "1.jpg")}
    with pytest.raises(ChannelError, match=r"sample '1' has 2 lines in the list: '1.png', '1.jpg'"):
        line_of({"__key__": "1", "png": b"", "jpg": b""}, lines)


def test_sample_without_a_key_is_refused() -> None:
    with pytest.raises(ChannelError, match=r"without a key"):
        line_of({"data": b""}, LINES)


def test_every_malformed_line_is_reported_and_the_others_are_returned() -> None:
    lines, problems = parse_lst(b"\xef\xbb\xbf0\t1\ta.png\nx\n1\t2\tb.png\n2\tcat\tc.png\n3\t0\ta.png\n", "t.lst")
    assert list(lines) == ["a.png", "b.png"]
    assert [problem.partition(": ")[0] for problem in problems] == ["t.lst:2", "t.lst:4", "t.lst:5"]


def test_classes_are_written_as_whole_numbers(tmp_path: Path) -> None:
    """Developer guide, image classification: `5      1   your_image_directory/train_img_dog1.jpg`."""
    write_lst(tmp_path / "x.lst", [Line(5, (1.0,), "dog/1.jpg"), Line(6, (0.5, 2.0), "2.jpg")])
    assert (tmp_path / "x.lst").read_bytes() == b"5\t1\tdog/1.jpg\n6\t0.5\t2\t2.jpg\n"
