"""Dividing, comparing and changing lists: what holds for all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from launcher.errors import InputError
from launcher.lists.classes import columns
from launcher.lists.comparing import compare
from launcher.lists.editing import DataSet, merge_classes, relabel, split_class
from launcher.lists.files import Lines
from launcher.lists.making import by_path, divide, make_lines, merge
from sagemaker_channels.samples.lst import Line

SHARES = st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.5), (0.7, 0.2, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.05, 0.95)])
LISTS = st.dictionaries(
    st.sampled_from([f"{folder}/{name}.jpg" for folder in "abc" for name in range(5)]),
    st.tuples(st.integers(0, 30), st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)),
).map(lambda found: {path: Line(row, tuple(map(float, labels)), path) for path, (row, labels) in found.items()})


def lines_of(*labels: tuple[int, ...]) -> Lines:
    return by_path(Line(n, tuple(map(float, each)), f"x/{n}.jpg") for n, each in enumerate(labels))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), SHARES, st.integers())
def test_division_has_each_image_once_and_keeps_the_ratio_of_classes(
    sizes: list[int], shares: tuple[float, ...], seed: int
) -> None:
    paths = [f"{kind:03}/{number}.jpg" for kind, size in enumerate(sizes) for number in range(size)]
    names = [f"{kind:03}" for kind in range(len(sizes))]
    lines = make_lines(paths, names, one_hot=False)
    lists = divide(lines, shares, seed, "class")
    assert sorted((line for each in lists for line in each), key=lambda line: line.index) == lines
    assert lists == divide(lines, shares, seed, "class")
    for number, size in enumerate(sizes):
        counts = [sum(line.labels == (number,) for line in each) for each in lists]
        assert counts[0] >= 1
        assert all(abs(count - size * share) < 1 + 1e-6 for count, share in zip(counts, shares, strict=True))
    if min(sizes) * min(shares) >= 1:
        excess = [len(each) - len(lines) * share for each, share in zip(lists, shares, strict=True)]
        assert max(map(abs, excess)) < len(shares)


@given(st.integers())
def test_division_by_folder_keeps_folders_together(seed: int) -> None:
    paths = [f"{kind}/{video}/{frame}.jpg" for kind in "ab" for video in range(10) for frame in range(3)]
    lists = divide(make_lines(paths, ["a", "b"], one_hot=False), (0.5, 0.5), seed, "folder")
    folders = [{line.path.rpartition("/")[0] for line in each} for each in lists]
    assert [len(each) for each in folders] == [10, 10]
    assert not folders[0] & folders[1]


@given(LISTS, LISTS)
def test_applied_changes_turn_the_old_list_into_the_new_one(old: Lines, new: Lines) -> None:
    changes = compare(old, new)
    result = dict(old)
    for before, after in (pair for pairs in changes for pair in pairs):
        if before:
            del result[before.path]
        if after:
            result[after.path] = after
    assert result == new
    assert all(before.labels == after.labels for before, after in (*changes.moved, *changes.renumbered))
    assert not any(compare(old, old))


def test_only_an_unambiguous_file_name_counts_as_moved() -> None:
    old = by_path([Line(0, (1.0,), "a/1.jpg"), Line(1, (1.0,), "a/2.jpg"), Line(2, (1.0,), "b/2.jpg")])
    new = by_path([Line(0, (1.0,), "c/1.jpg"), Line(1, (1.0,), "c/2.jpg"), Line(2, (0.0,), "d/9.jpg")])
    changes = compare(old, new)
    assert [(before.path, after.path) for before, after in changes.moved] == [("a/1.jpg", "c/1.jpg")]
    assert [line.path for line, _ in changes.removed] == ["a/2.jpg", "b/2.jpg"]
    assert changes.by_class(0, 0) == {"0": {"added": 1}, "1": {"added": 1, "removed": 2, "moved": 1}}


@given(LISTS.filter(bool), st.data())
def test_merged_classes_have_no_gaps_and_keep_the_others_apart(lines: Lines, data: st.DataObject) -> None:
    known = DataSet.of([lines], [])
    into = data.draw(st.integers(0, known.size - 1))
    merged = data.draw(st.sets(st.integers(0, known.size - 1)))
    assume(not known.width and merged - {into})
    (new,) = merge_classes(known, merged, into).lists
    kept = [number for number in range(known.size) if number == into or number not in merged]
    for path, line in new.items():
        # A number counts the remaining classes before it, so it names one of them.
        assert {kept[int(label)] for label in line.labels} == {
            into if label in merged else label for label in lines[path].labels
        }


@given(st.lists(LISTS, min_size=1, max_size=3))
def test_merged_list_has_each_path_once_with_unique_rows(lists: list[Lines]) -> None:
    found, left_out = merge([(str(number), lines) for number, lines in enumerate(lists)], "first")
    assert found.keys() == {path for lines in lists for path in lines}
    assert len({line.index for line in found.values()}) == len(found)
    assert left_out.total() == sum(map(len, lists)) - len(found)
    assert all(
        line.labels == next(lines[path].labels for lines in lists if path in lines) for path, line in found.items()
    )


def test_one_hot_lists_stay_one_hot() -> None:
    lines = lines_of((1, 0, 0), (0, 1, 1), (0, 0, 1))
    data = DataSet.of([lines], ["cat", "dog", "husky"])
    assert (columns([lines]), columns([lines_of((1, 0), (3,))]), columns([lines_of((1,), (0,))])) == (3, 0, 0)
    (merged,) = merge_classes(data, {2}, 1).lists
    assert [line.labels for line in merged.values()] == [(1, 0), (0, 1), (0, 1)]
    with pytest.raises(InputError, match="needs at least two classes"):
        merge_classes(data, {0, 1, 2}, 1)
    split = split_class(data, 2, {"x/2.jpg": ("sled",)})
    assert split.names == ["cat", "dog", "husky", "sled"]
    assert [line.labels for line in split.lists[0].values()] == [(1, 0, 0, 0), (0, 1, 1, 0), (0, 0, 0, 1)]


def test_map_applies_paths_before_folders_before_classes() -> None:
    paths = ("a/1.jpg", "a/b/2.jpg", "a/b/3.jpg", "c/4.jpg")
    lines = by_path(Line(n, (2.0,), path) for n, path in enumerate(paths))
    rules = {"2": ("0",), "a/": ("1",), "a/b/": ("x", "y"), "a/b/3.jpg": ("y",)}
    (new,) = relabel(DataSet.of([lines], ["x", "y", "z"]), rules).lists
    assert [line.labels for line in new.values()] == [(1,), (0, 1), (1,), (0,)]
    for wrong, message in (
        ({"d/": ("0",)}, "neither a path nor a folder"),
        ({"9": ("0",)}, "'9' does not exist"),
        ({"a/": ("1000000",)}, "'1000000' does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            relabel(DataSet.of([lines], []), wrong)


def test_split_by_folders_gives_the_first_part_the_old_number() -> None:
    paths = ["cat/a/1.jpg", "cat/b/x/2.jpg", "cat/b/3.jpg", "dog/4.jpg"]
    lines = by_path(make_lines(paths, ["cat", "dog"], one_hot=False))
    found = split_class(DataSet.of([lines], ["cat", "dog"]), 0, None)
    assert [line.labels for line in found.lists[0].values()] == [(0,), (2,), (2,), (1,)]
    assert found.names == ["a", "dog", "b"]
    with pytest.raises(InputError, match="one part only; pass --map"):
        split_class(DataSet.of([lines], []), 1, None)
    stays = split_class(DataSet.of([lines], []), 0, {"cat/b/": ("b",)})
    assert Counter(line.labels for line in stays.lists[0].values()) == {(0,): 1, (1,): 1, (2,): 2}
