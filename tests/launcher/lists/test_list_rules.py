"""Dividing, comparing and changing lists: what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from launcher.errors import InputError
from launcher.lists.classes import columns, edit
from launcher.lists.comparing import by_class, compare
from launcher.lists.list_files import Lines
from launcher.lists.making import by_path, divide, join, make_lines
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
    for before, after in (pair for pairs in changes.values() for pair in pairs):
        if before:
            del result[before.path]
        if after:
            result[after.path] = after
    assert result == new
    assert all(before and after and before.labels == after.labels for before, after in changes["renumbered"])
    assert not any(compare(old, old).values())


def test_classes_gain_and_lose_lines() -> None:
    old = by_path([Line(0, (1.0,), "a/1.jpg"), Line(1, (1.0,), "a/2.jpg"), Line(2, (1.0,), "b/2.jpg")])
    new = by_path([Line(0, (1.0,), "a/1.jpg"), Line(1, (1.0,), "c/2.jpg"), Line(2, (0.0,), "b/2.jpg")])
    assert by_class(compare(old, new), 0, 0) == {"0": {"gained": 1}, "1": {"gained": 1, "lost": 2}}


@given(LISTS.filter(bool), st.data())
def test_merged_classes_have_no_gaps_and_keep_the_others_apart(lines: Lines, data: st.DataObject) -> None:
    assume(not columns([lines]))
    size = 1 + max(int(label) for line in lines.values() for label in line.labels)
    into = data.draw(st.integers(0, size - 1))
    merged = data.draw(st.sets(st.integers(0, size - 1))) - {into}
    (new,) = edit([lines], [], {str(each): [str(into)] for each in merged}).lists
    kept = [number for number in range(size) if number not in merged]
    for path, line in new.items():
        # A number counts the remaining classes before it, so it names one of them.
        assert {kept[int(label)] for label in line.labels} == {
            into if label in merged else label for label in lines[path].labels
        }


@given(st.lists(LISTS, min_size=1, max_size=3))
def test_joined_list_has_each_path_once_with_unique_rows(lists: list[Lines]) -> None:
    found, left_out = join({str(number): lines for number, lines in enumerate(lists)}, "first")
    assert found.keys() == {path for lines in lists for path in lines}
    assert len({line.index for line in found.values()}) == len(found)
    assert left_out.total() == sum(map(len, lists)) - len(found)
    assert all(
        line.labels == next(lines[path].labels for lines in lists if path in lines) for path, line in found.items()
    )


def test_one_hot_lists_stay_one_hot() -> None:
    lines = lines_of((1, 0, 0), (0, 1, 1), (0, 0, 1))
    names = ["cat", "dog", "husky"]
    assert (columns([lines]), columns([lines_of((1, 0), (3,))]), columns([lines_of((1,), (0,))])) == (3, 0, 0)
    merged = edit([lines], names, {"husky": ["dog"]})
    assert [line.labels for line in merged.lists[0].values()] == [(1, 0), (0, 1), (0, 1)]
    assert (merged.names, merged.removed) == (["cat", "dog"], ["husky"])
    with pytest.raises(InputError, match="needs at least two classes"):
        edit([lines], names, {"husky": ["cat"], "dog": ["cat"]})
    split = edit([lines], names, {"x/2.jpg": ["sled"]}, ["sled"])
    assert split.names == ["cat", "dog", "husky", "sled"]
    assert [line.labels for line in split.lists[0].values()] == [(1, 0, 0, 0), (0, 1, 1, 0), (0, 0, 0, 1)]


def test_rules_apply_to_paths_before_folders_before_classes() -> None:
    paths = ("a/1.jpg", "a/b/2.jpg", "a/b/3.jpg", "c/4.jpg")
    lines = by_path(Line(n, (2.0,), path) for n, path in enumerate(paths))
    rules = {"2": ["0"], "a/": ["1"], "a/b/": ["x", "y"], "a/b/3.jpg": ["y"]}
    found = edit([lines], ["x", "y", "z"], rules)
    assert [line.labels for line in found.lists[0].values()] == [(1,), (0, 1), (1,), (0,)]
    assert (found.names, found.removed) == (["x", "y"], ["z"])
    for wrong, message in (
        ({"d/": ["0"]}, "neither a path nor a folder"),
        ({"9": ["0"]}, "'9' does not exist"),
        ({"a/": ["3"]}, "'3' does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            edit([lines], [], wrong)


def test_class_that_loses_its_lines_by_other_rules_keeps_its_number() -> None:
    """Another list, which was not passed, may have lines of it."""
    lines = by_path(make_lines(["cat/1.jpg", "cow/2.jpg", "dog/3.jpg"], ["cat", "cow", "dog"], one_hot=False))
    found = edit([lines], ["cat", "cow", "dog"], {"cow/2.jpg": ["dog"]})
    assert [line.labels for line in found.lists[0].values()] == [(0,), (2,), (2,)]
    assert (found.names, found.removed) == (["cat", "cow", "dog"], [])


def test_classes_can_be_swapped_and_new_ones_follow_the_highest() -> None:
    lines = lines_of((0,), (1,))
    assert [line.labels for line in edit([lines], [], {"0": ["1"], "1": ["0"]}).lists[0].values()] == [(1,), (0,)]
    found = edit([lines], [], {"x/1.jpg": ["owl"]}, ["owl"])
    assert [line.labels for line in found.lists[0].values()] == [(0,), (2,)]
    with pytest.raises(InputError, match="--new-class dog: there is a class of this name"):
        edit([lines], ["cat", "dog"], {"1": ["0"]}, ["dog"])
