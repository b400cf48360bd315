"""Invalid files, `extends`, `--set` and `${VARIABLES}` are refused with the location and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import launcher
from launcher import SpecError, parse_spec
from launcher.errors import RefusedError
from launcher.rules.examples import BASE as SPEC


def test_folders_fifos_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "folder.yaml").mkdir()
    for name in ("pipe.yaml", "loop.yaml", "folder.yaml", "nothing.yaml"):
        with pytest.raises(RefusedError, match=f"{name}: cannot be read: .*; correct the path or its permissions"):
            launcher.load(tmp_path / name)
        (tmp_path / "job.yaml").write_text(f"extends: {name}\n")
        with pytest.raises(SpecError, match=f"job.yaml:1:1: extends: .*{name} cannot be read: "):
            launcher.load(tmp_path / "job.yaml")
    with pytest.raises(SpecError, match="larger than"):
        launcher.load("/dev/zero")


def test_endless_layers_are_refused(tmp_path: Path) -> None:
    """Circles through other names, deep chains, and files that each extend two, of which there are 2 ** depth."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "job.yaml").write_text("extends: ../here/job.yaml\n")
    with pytest.raises(SpecError, match="in turn; remove one"):
        launcher.load(here / "job.yaml")
    for index in range(60):
        (here / f"{index}.yaml").write_text(f"extends: [{index + 1}.yaml]\n")
        (here / f"two{index}.yaml").write_text(f"extends: [two{index + 1}.yaml, two{index + 1}.yaml]\n")
    for name in ("0.yaml", "two0.yaml"):
        with pytest.raises(SpecError, match="more than 50 files"):
            launcher.load(here / name)


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("a..b=1", "is not path=value"),
        ("channels[x]=1", "is not path=value"),
        ('""=x', "is not path=value"),
        ("=", "is not path=value"),
        (".".join("a" * 60) + "=1", "is not path=value"),
        ("extends=base.yaml", "cannot be set"),
        ("channels.train[0]=x", "not items of a list"),
        ("environment={A: 1, A: 2}", "written twice"),
        ("environment.A=[", "close the brackets"),
        ("environment.A=[0-9]+ loss", 'for a text, write "[0-9]+ loss"'),
        ("environment.A='a' #b", "for a text, write"),
        ("environment.A=", "write '' in quotes for an empty text"),
        ("environment.A=a\0b", "U+0000"),
        ("environment=A: 1", "a mapping of `key: value` belongs here"),
        ("channels.train=s3:/b/", "channels.train.s3_uri"),
    ],
)
def test_invalid_set_is_refused_with_the_remedy(assignment: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        launcher.plan(parse_spec(SPEC, sets=[assignment]), name="one")
    (problem,) = caught.value.problems
    assert words in str(problem)
    assert problem.location is not None
    assert problem.location.file.startswith("--set ")


def test_set_does_not_hide_that_the_file_is_not_a_mapping() -> None:
    with pytest.raises(SpecError, match="is not a mapping"):
        parse_spec("hello", sets=["base_name=x"])


def test_variable_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(SpecError, match="names the variable A, which is not UTF-8"):
        parse_spec(SPEC + "environment: {X: '${A}'}\n", environ={"A": "\udce9"})


@pytest.mark.parametrize(
    "content",
    [
        "root:$6$hush$hush:19000:0:99999:7:::\nbin:*:19000\n",
        "PASSWORD=hush\n",
        "PASSWORD: hush\n",
        "region: eu-west-1\naws_secret: hush\n",
        "- hush\n",
        "[default]\naws_secret_access_key = hush\n",
        "{hush: [\n",
        "password: 'hush\n",
        "hush",
        "\0hush",
    ],
)
def test_lines_of_a_file_that_is_no_spec_are_not_shown(tmp_path: Path, content: str) -> None:
    (tmp_path / "other").write_text(content)
    (tmp_path / "job.yaml").write_text("extends: other\n")
    with pytest.raises(SpecError, match=r"job\.yaml:1:1: extends: \S*other does not look like a spec") as caught:
        launcher.load(tmp_path / "job.yaml")
    shown = [str(caught.value), *(problem.location.quoted() for problem in caught.value.problems if problem.location)]
    assert "hush" not in "".join(shown)


@pytest.mark.parametrize("content", ["region: x\nimage: [\n", "region: eu-west-1\nimage: x\nhyperparamters: {}\n"])
def test_lines_of_a_spec_that_is_extended_are_shown(tmp_path: Path, content: str) -> None:
    (tmp_path / "base.yaml").write_text(content)
    (tmp_path / "job.yaml").write_text("extends: base.yaml\n")
    with pytest.raises(SpecError) as caught:
        launcher.load(tmp_path / "job.yaml")
    location = caught.value.problems[0].location
    assert location is not None
    assert location.file.endswith("base.yaml")
    assert location.text
