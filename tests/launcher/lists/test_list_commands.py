"""`launch lst`, on real folders, lists and objects."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import launcher
from aws_stand_in import StandIn
from list_command import Launch
from patience import PATIENCE
from sagemaker_channels.samples.lst import read_lst

PAGE = Path(launcher.__file__).parents[1] / "docs/howto/lists.md"


def test_made_list_is_what_im2rec_reads(lst: Launch) -> None:
    said = lst("make", "photos")
    lines = Path("photos.lst").read_text().splitlines()
    assert lines[:2] == ["0\t0\tcat/0.jpg", "1\t0\tcat/1.jpg"]
    assert lines[-1] == "29\t1\tdog/9.PNG"
    assert Path("classes.txt").read_text() == "cat\ndog\n"
    assert "left out: 2 other files (hidden 1, .txt 1)" in said
    lst("make", "photos", "-o", "hot.lst", "--one-hot")
    assert Path("hot.lst").read_text().startswith("0\t1\t0\tcat/0.jpg\n")
    assert "needs at least two" in lst("make", "photos", "-o", "hot.lst", "--one-hot", "--ending", ".png", code=2)


def test_divided_lists_have_unique_rows_and_pass_the_check(lst: Launch) -> None:
    lst("make", "photos", "--split", "0.8,0.1,0.1", "--seed", "7", "--by", "class", "-o", "out")
    names = [f"out/{name}.lst" for name in ("train", "validation", "test")]
    counts = [[sum(line.labels == (n,) for line in read_lst(name).values()) for n in (0, 1)] for name in names]
    assert counts == [[16, 8], [2, 1], [2, 1]]
    assert sorted(line.index for name in names for line in read_lst(name).values()) == list(range(30))
    assert "no problems" in lst("check", *names, "--images", "photos", "--classes", "out/classes.txt")
    before = [Path(name).read_bytes() for name in names]
    assert lst("make", "photos", "--split", "0.8,0.1,0.1", "--seed", "7", "-o", "out").count("unchanged") == 3
    assert [Path(name).read_bytes() for name in names] == before
    assert "out/test.lst is of an earlier division" in lst("make", "photos", "--split", "0.5,0.5", "-o", "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["make", "photo"], "there is no such folder; did you mean photos?"),
        (["make", "zzz"], "zzz: there is no such folder; correct the path"),
        (["make", "photos/cat"], "20 images in no folder"),
        (["make", "photos", "--ending", "webp"], "no images below it, only 32 other files (.jpg 20"),
        (
            ["make", "photos", "--split", "0.8,0.2", "--by", "folder"],
            "validation.lst would be empty: there are too few folders",
        ),
        (["make", "photos", "--split", "0.8,0.1"], "expected two or three shares with the sum 1"),
        (["make", "photos", "--split", "nan,0.5,0.5"], "expected two or three shares with the sum 1"),
        (["make", "photos", "--by", "class"], "--by works only with --split"),
        (["check", "no.lst"], "no.lst: cannot be read: No such file or directory; correct the path or its permissions"),
        (["edit", "s3://b/a.lst", "--map", "x"], "s3://b/a.lst: a list or class file is changed in place"),
        (["edit", "a.lst"], "nothing to do; pass rules by --set or --map, or -o to join the lists"),
        (["edit", "a.lst", "--set", "a=b", "--keep", "last"], "--keep works only with -o"),
        (["make", "photos", "-o", "s3://b/a.lst"], "'s3://b/a.lst' is not a path on this machine"),
        (["make", "photos", "-o", "photos"], "photos: is not a file but a folder or a device"),
        (["make", "photos", "-o", "/dev/null"], "/dev/null: is not a file"),
    ],
)
def test_wrong_input_has_one_error_with_a_remedy(lst: Launch, words: list[str], message: str) -> None:
    said = lst(*words, code=2)
    assert message in said
    assert said.count("error:") == 1


def test_command_group_alone_prints_its_help(lst: Launch) -> None:
    said = lst(code=2)
    assert said.startswith("Usage: launch lst")
    assert "edit" in said


def test_check_finds_each_kind_of_problem(lst: Launch) -> None:
    Path("a.lst").write_text(
        "0\t0\tcat/0.jpg\n0\t2\tdog/0.PNG\nx\n1\t0.5\tcat/1.jpg\n2\t0\tcat/0.jpg\n3\t0\tgone.jpg\n4\t1e12\tcat/2.jpg\n"
    )
    Path("b.lst").write_text("0\t0\tcat/0.jpg\n")
    said = lst("check", "a.lst", "b.lst", "--images", "photos", code=3)
    for problem in (
        "malformed or repeated lines: 2\n",
        "a.lst:3: expected index, label(s) and path",
        "a.lst:5: 'cat/0.jpg' is listed a second time",
        "a.lst: row numbers are repeated; they must be unique: 2",
        "b.lst: images are in another list, too; an image belongs to one list: 1",
        "labels are not whole numbers from 0 to 999,999: 2",
        "closes such a gap: 1",
        "lines have no image; paths are relative to --images: 1",
        "images have no line: 26",
    ):
        assert problem in said, problem
    found = lst.json("check", "a.lst", "b.lst", "--images", "photos", code=3)
    assert found["problems"][0]["examples"][0].startswith("a.lst:3: ")
    Path("d.lst").write_text("0 0 cat/0.jpg\n")
    Path("e.lst").touch()
    assert lst("check", "d.lst", code=3).count("error:") == 1
    assert "lists have no lines; `launch lst make` writes them: 1\n  e.lst\n" in lst("check", "e.lst", code=3)


def test_check_refuses_paths_that_lead_out_of_the_folder_once(lst: Launch) -> None:
    Path("a.lst").write_text("0\t0\t/home/me/cat/0.jpg\n1\t0\t../cat/1.jpg\n2\t0\tcat/../../a.jpg\n3\t0\tcat/2..jpg\n")
    Path("photos/cat/2..jpg").touch()
    problem = "paths lead out of the images' folder; write them relative to it: 3\n  /home/me/cat/0.jpg\n  ../cat/1.jpg"
    assert problem in lst("check", "a.lst", code=3)
    said = lst("check", "a.lst", "--images", "photos", code=3)
    assert problem in said and "lines have no image" not in said


def test_diff_reports_by_path_with_counts_per_class(lst: Launch) -> None:
    lst("make", "photos")
    (Path("photos") / "cat/0.jpg").rename("photos/cat/new.jpg")
    (Path("photos") / "cat/sub").mkdir()
    (Path("photos") / "cat/19.jpg").rename("photos/cat/sub/19.jpg")
    lst("make", "photos", "-o", "b.lst")
    found = lst.json("diff", "photos.lst", "b.lst")
    assert [each["path"] for each in found["added"]] == ["cat/new.jpg", "cat/sub/19.jpg"]
    assert [each["path"] for each in found["removed"]] == ["cat/0.jpg", "cat/19.jpg"]
    assert found["classes"] == {"0": {"gained": 2, "lost": 2}}
    assert "  + cat/sub/19.jpg 0" in lst("diff", "photos.lst", "b.lst")


def test_join_refuses_lists_that_contradict_each_other(lst: Launch) -> None:
    Path("a.lst").write_text("0\t0\ta.jpg\n1\t0\tb.jpg\n")
    Path("b.lst").write_text("0\t1\tb.jpg\n1\t1\tc.jpg\n")
    assert "b.lst: 'b.jpg' has other labels in a.lst" in lst("edit", "a.lst", "b.lst", "-o", "m.lst", code=2)
    assert "a.lst: 1 line left out" in lst("edit", "a.lst", "b.lst", "-o", "m.lst", "--keep", "last")
    assert Path("m.lst").read_text() == "0\t0\ta.jpg\n1\t1\tb.jpg\n2\t1\tc.jpg\n"


def test_one_hot_list_is_compared_by_its_classes_and_joined_only_with_its_like(lst: Launch) -> None:
    lst("make", "photos", "-o", "a.lst")
    lst("make", "photos", "-o", "b.lst", "--one-hot")
    Path("b.lst").write_text(Path("b.lst").read_text().replace("1\t0\tcat/0.jpg", "0\t1\tcat/0.jpg"))
    found = lst.json("diff", "a.lst", "b.lst")
    assert (found["counts"]["relabelled"], found["classes"]) == (30, {"0": {"lost": 1}, "1": {"gained": 1}})
    said = lst("edit", "a.lst", "b.lst", "-o", "m.lst", code=2)
    assert "one-hot columns differ: no in a.lst, 2 in b.lst; make all lists in one form" in said


def test_lists_and_images_in_s3_are_read(lst: Launch, aws: StandIn) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="pictures")
    for key in ("train/", "train/cat/1.jpg", "train/dog/2.jpg", "train/dog/x.csv", "train_old/cat/3.jpg"):
        s3.put_object(Bucket="pictures", Key=key, Body=b"")
    lst("make", "s3://pictures/train")
    assert list(read_lst("train.lst")) == ["cat/1.jpg", "dog/2.jpg"]
    s3.put_object(Bucket="pictures", Key="a.lst", Body=Path("train.lst").read_bytes())
    s3.put_object(Bucket="pictures", Key="names.txt", Body=b"cat\ndog\n")
    words = ("s3://pictures/a.lst", "--classes", "s3://pictures/names.txt")
    assert "no problems" in lst("check", *words, "--images", "s3://pictures/train/")
    assert "s3://pictures/empty: no images below it" in lst("make", "s3://pictures/empty", code=2)
    assert "there is no such object; check the key" in lst("check", "s3://pictures/none.lst", code=3)
    aws.deny("s3:ListObjectsV2")
    assert "access is denied; the credentials in use need" in lst("make", "s3://pictures/train", code=3)


def test_check_counts_the_lines_of_each_class_and_list(lst: Launch) -> None:
    lst("make", "photos", "--split", "0.5,0.5")
    said = lst("check", "train.lst", "validation.lst")
    assert "class 0 cat: 10 in train.lst, 10 in validation.lst\nclass 1 dog: 5 in train.lst" in said
    (first, _) = lst.json("check", "train.lst", "validation.lst")["classes"]
    assert first == {"class": 0, "name": "cat", "total": 20, "lists": {"train.lst": 10, "validation.lst": 10}}


def test_list_of_the_working_directory_has_its_name(lst: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("photos")
    lst("make", ".")
    assert len(read_lst("photos.lst")) == 30


def test_paths_that_no_list_can_hold_are_refused(lst: Launch) -> None:
    Path("photos/cat/a\tb.jpg").touch()
    assert "a list cannot hold a path with a tab" in lst("make", "photos", code=2)


def test_commands_of_the_readme_run_in_order(lst: Launch) -> None:
    Path("photos/husky").mkdir()
    for number in range(10):
        Path(f"photos/husky/{number}.jpg").touch()
    (script,) = re.findall(r"```sh\n(launch lst make .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    script = script.replace("launch ", f"{sys.executable} -m launcher ")
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert Path("lists/classes.txt").read_text() == "cat\ndog\n"
    lines = [line for file in Path("lists").glob("*.lst") for line in read_lst(file).values()]
    assert ("cat/7.jpg", (1.0,)) in {(line.path, line.labels) for line in lines}
