"""`.lst` files are joined to their images, or the first thing that does not fit is named."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints import contract
from entrypoints.errors import ChannelError
from entrypoints.sample import Sample
from entrypoints.samples.lst import Line, add_labels, check_lst, join_lst, parse_lst, read_lst, sample_paths, write_lst

LINES = {"a/1.png": Line(0, (3.0,), "a/1.png"), "2.png": Line(1, (0.5, 2.0), "2.png")}
IMAGES: list[Sample] = [{"__key__": "2.png", "data": b"two"}, {"__key__": "a/1.png", "data": b"one"}]


def lst(directory: Path, text: str) -> Path:
    file = directory / "train.lst"
    file.write_bytes(text.encode())
    return file


def test_reading(tmp_path: Path) -> None:
    # As im2rec writes it, as people edit it.
    text = "0\t3.000000\ta/1.png\r\n\n1\t0.5\t2\t./2.png"
    assert read_lst(lst(tmp_path, text)) == LINES


paths = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1).filter(
    lambda path: path == path.strip() and not path.startswith("./")
)
floats = st.floats(allow_nan=False)


@given(st.dictionaries(paths, st.tuples(st.integers(0, 2**31), st.lists(floats, min_size=1, max_size=3))))
def test_what_is_written_is_read(
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
        ("0\t1\ta.png\n\n1\tcat\tb.png", r"train.lst:3: index and labels must be numbers: .*'cat'"),
        ("0\ta.png", r"train.lst:1: expected index, label\(s\) and path"),
        ("0\t1\t", r"train.lst:1: expected index, label\(s\) and path"),
        ("x\t1\ta.png", r"train.lst:1: index and labels must be numbers"),
        ("inf\t1\ta.png", r"train.lst:1: index and labels must be numbers"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ChannelError, match=message):
        read_lst(lst(tmp_path, text))


def test_a_missing_list(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"nothing.lst: the list cannot be read: No such file"):
        read_lst(tmp_path / "nothing.lst")


@pytest.mark.parametrize("line", [Line(0, (1.0,), "a\tb"), Line(0, (), "a"), Line(0, (1.0,), "")])
def test_lines_that_cannot_be_written(tmp_path: Path, line: Line) -> None:
    with pytest.raises(ValueError, match=r"a line needs labels and a path"):
        write_lst(tmp_path / "x.lst", [line])


def test_joining_whole_objects() -> None:
    assert list(join_lst(IMAGES, LINES)) == [{**IMAGES[0], "labels": (0.5, 2.0)}, {**IMAGES[1], "labels": (3.0,)}]
    assert partial(add_labels, lines=LINES)(IMAGES[1])["labels"] == (3.0,)


def test_joining_a_tars_groups_by_member_path() -> None:
    samples: list[Sample] = [{"__key__": "./a/1", "png": b"", "json": b"{}"}, {"__key__": "2", "png": b""}]
    assert [sample["labels"] for sample in join_lst(samples, LINES)] == [(3.0,), (0.5, 2.0)]
    assert sample_paths(samples[0]) == ["a/1.png", "a/1.json"]


def test_an_image_without_a_line() -> None:
    with pytest.raises(ChannelError, match=r"image 'b.png' has no line in the list"):
        list(join_lst([*IMAGES, {"__key__": "b.png", "data": b""}], LINES))
    with pytest.raises(ChannelError, match=r"image 'b.png' or 'b.cls' has no line"):
        add_labels({"__key__": "b", "png": b"", "cls": b""}, LINES)


def test_a_line_without_an_image() -> None:
    with pytest.raises(ChannelError, match=r"1 line.* have no image, first 'a/1.png'"):
        list(join_lst(IMAGES[:1], LINES))
    assert len(list(join_lst(IMAGES[:1], LINES, whole=False))) == 1


def test_an_image_twice_and_two_lines_for_one_sample() -> None:
    with pytest.raises(ChannelError, match=r"two images have the path '2.png'"):
        list(join_lst([IMAGES[0], IMAGES[0]], LINES))
    lines = {path: Line(0, (1.0,), path) for path in ("1.png", "1.jpg")}
    with pytest.raises(ChannelError, match=r"sample '1' has 2 lines in the list: '1.png', '1.jpg'"):
        add_labels({"__key__": "1", "png": b"", "jpg": b""}, lines)


def test_a_sample_without_a_key() -> None:
    with pytest.raises(ChannelError, match=r"without a key"):
        add_labels({"data": b""}, LINES)


def test_checking_before_reading() -> None:
    check_lst(["./2.png", "a/1.png"], LINES)
    with pytest.raises(ChannelError, match=r"1 image.* 'b.png'; 1 line.* 'a/1.png'"):
        check_lst(["2.png", "b.png"], LINES)


def test_a_sample_of_the_images_leaves_lines_without_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.SAMPLE_VARIABLE, "1")
    assert len(list(join_lst(IMAGES[:1], LINES))) == 1
    check_lst(["a.png"], {"a.png": Line(0, (1.0,), "a.png"), "b.png": Line(1, (1.0,), "b.png")})
    with pytest.raises(ChannelError, match=r"1 image\(s\) have no line, first 'b\.png'"):
        check_lst(["a.png", "b.png"], {"a.png": Line(0, (1.0,), "a.png")})


def test_every_malformed_line_is_reported_and_the_others_are_returned() -> None:
    lines, problems = parse_lst(b"\xef\xbb\xbf0\t1\ta.png\nx\n1\t2\tb.png\n2\tcat\tc.png\n3\t0\ta.png\n", "t.lst")
    assert list(lines) == ["a.png", "b.png"]
    assert [problem.partition(": ")[0] for problem in problems] == ["t.lst:2", "t.lst:4", "t.lst:5"]


def test_classes_are_written_as_whole_numbers(tmp_path: Path) -> None:
    """Developer guide, image classification: `5      1   your_image_directory/train_img_dog1.jpg`."""
    write_lst(tmp_path / "x.lst", [Line(5, (1.0,), "dog/1.jpg"), Line(6, (0.5, 2.0), "2.jpg")])
    assert (tmp_path / "x.lst").read_bytes() == b"5\t1\tdog/1.jpg\n6\t0.5\t2\t2.jpg\n"
