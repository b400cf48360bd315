"""`launch lst`: class files, and the commands that change classes in all lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from list_command import Launch


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("cat\n\ndog\n", "classes.txt:2: class 1 has no name"),
        ("cat\n", "folder 'dog' has images and no line"),
        ("cat\ndog\ncat\n", "classes.txt:3: class 2, 'cat', is class 0 as well"),
    ],
)
def test_class_file_with_a_gap_is_refused(lst: Launch, names: str, message: str) -> None:
    Path("classes.txt").write_text(names)
    assert message in lst("make", "photos", "--classes", "classes.txt", code=2)
    assert not Path("photos.lst").exists()


def test_changed_classes_are_the_same_in_all_lists(lst: Launch) -> None:
    lst("make", "photos", "--split", "0.5,0.5")
    lists, names = ("train.lst", "validation.lst"), ("--classes", "classes.txt")
    wrong = {
        "owl/=dog": "'owl/' is neither a path nor a folder/",
        "cat/=dgo": "class 'dgo' does not exist; did you mean dog?",
        "cat/0.jpg": "expected KEY=CLASS",
    }
    for rule, message in wrong.items():
        assert message in lst("edit", *lists, "--set", rule, code=2)
    Path("map.txt").write_text("cat/0.jpg\told\ncat/1.jpg\told\ncat/2.jpg\tnew\n")
    assert "'cat/2.jpg' has two rules, new and old" in lst(
        "edit", *lists, "--map", "map.txt", "--set", "cat/2.jpg=old", code=2
    )
    said = lst("edit", *lists, *names, "--map", "map.txt", "--new-class", "new", "--new-class", "old")
    assert "class 0: " in said and "lost" in said
    assert Path("classes.txt").read_text() == "cat\ndog\nnew\nold\n"
    assert "no problems" in lst("check", *lists, "--images", "photos", *names)
    said = lst("edit", *lists, *names, "--set", "dog=old", "--dry-run")
    assert "removed class dog; the numbers after it are one lower" in said
    assert Path("classes.txt").read_text() == "cat\ndog\nnew\nold\n"
    lst("edit", *lists, *names, "--set", "dog=old")
    assert Path("classes.txt").read_text() == "cat\nnew\nold\n"
    found = lst.json("check", *lists, *names)
    assert [(each["name"], each["total"]) for each in found["classes"]] == [("cat", 17), ("new", 1), ("old", 12)]
    assert "nothing to do" in lst("edit", *lists, code=2)


def test_class_file_beside_the_lists_changes_with_them(lst: Launch) -> None:
    """By default, and a list of the data set that is not passed is named."""
    lst("make", "photos", "--split", "0.5,0.5")
    said = lst("edit", "train.lst", "--set", "dog=cat")
    assert "warning: lists beside it, not passed, have the old classes: validation.lst\n" in said
    assert Path("classes.txt").read_text() == "cat\n"
    assert "class 0 cat: 15 in train.lst" in lst("check", "train.lst")
    assert "classes have no name in classes.txt: 1" in lst("check", "validation.lst", code=3)
    said = lst("edit", "validation.lst", "--set", "1=cat", code=2)
    assert "the lists have 2 classes, and the class file has 1" in said


def test_list_beside_others_may_lack_a_class_of_their_class_file(lst: Launch) -> None:
    """As the list of a folder `val` that has no dogs, beside that of `train`."""
    lst("make", "photos", "-o", "lists/train.lst")
    Path("val/dog").mkdir(parents=True)
    Path("val/dog/1.jpg").touch()
    assert "classes.txt: has other classes (cat, dog); pass --classes" in lst(
        "make", "val", "-o", "lists/val.lst", code=2
    )
    said = lst("make", "val", "-o", "lists/val.lst", "--classes", "lists/classes.txt")
    assert "warning: no image of class cat\n" in said
    assert Path("lists/val.lst").read_text() == "0\t1\tdog/1.jpg\n"


def test_class_file_of_other_lists_is_not_replaced(lst: Launch) -> None:
    lst("make", "photos")
    Path("photos/owl").mkdir()
    Path("photos/owl/1.jpg").touch()
    assert "classes.txt: has other classes (cat, dog); pass --classes" in lst("make", "photos", code=2)
    Path("names.txt").write_bytes(b"\xef\xbb\xbfowl\r\ndog\r\ncat\r\n")  # as Windows' editors write it
    lst("make", "photos", "-o", "out/a.lst", "--classes", "names.txt")
    assert Path("out/classes.txt").read_text() == "owl\ndog\ncat\n"
    said = lst("edit", "photos.lst", "out/a.lst", "-o", "m.lst", "--keep", "first", code=2)
    assert (
        "out/classes.txt: has other classes than classes.txt; make lists that you join with the same --classes" in said
    )
    Path("names.txt").write_bytes(b"\xff\n")
    assert "names.txt: byte 0 is not UTF-8" in lst("make", "photos", "--classes", "names.txt", code=2)


def test_gap_of_relabelling_is_found_and_closed(lst: Launch) -> None:
    lst("make", "photos")
    said = lst("edit", "photos.lst", "--set", "cat/=dog")
    assert "photos.lst: 30 lines, 20 relabelled" in said
    assert "classes have no line, but higher ones do; `launch lst edit --set" in lst("check", "photos.lst", code=3)
    lst("edit", "photos.lst", "--set", "0=dog")
    assert Path("classes.txt").read_text() == "dog\n"
    assert "no problems" in lst("check", "photos.lst", "--images", "photos")
