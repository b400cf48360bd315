"""`launch init`: the spec that it writes for a folder, and what it asks."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher
from aws_stand_in import StandIn
from launching import launch
from terminals import on_terminal

PNG = b"\x89PNG" + bytes(100)
TRUST = '{"Statement": [{"Effect": "Allow", "Principal": {"Service": "%s.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'
ROLE = "arn:aws:iam::123456789012:role/training"


def fill_bucket(aws: StandIn, content: bytes, *keys: str) -> None:
    """Make s3://mine with objects of that content."""
    aws.client("s3").create_bucket(Bucket="mine")
    for key in keys:
        aws.client("s3").put_object(Bucket="mine", Key=key, Body=content)


def files(root: Path, *names: str, content: bytes = PNG) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script for GPUs, its requirements and class folders of images; it is the working folder."""
    root = tmp_path / "My pets!"
    files(root, "images/cat/1.png", "images/dog/1.png", ".venv/lib/train.py", "src/tests/test_train.py")
    files(root, "src/train.py", content=b"device = 'cuda'\n")
    files(root, "requirements.txt", content=b"")
    monkeypatch.chdir(root)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return root


def spec(file: str = "job.yaml") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(file).read_text())
    return found


def test_spec_of_a_folder_passes_a_strict_dry_run(pets: Path) -> None:
    done = launch("init", "--yes", "--role", ROLE, "--bucket", "s3://mine")
    assert done.returncode == 0, done.stderr
    first, *lines = Path("job.yaml").read_text().splitlines()
    schema = re.match(r"# yaml-language-server: \$schema=(\S+)", first)
    assert schema
    assert json.loads(Path(schema[1]).read_text())["properties"]["base_name"]
    code = launcher.plan("job.yaml").code
    assert code is not None
    assert schema[1] not in code.names()
    keys = [line for line in lines if not line.startswith(" ") and line != "channels:"]
    assert [line for line in keys if "  # " not in line] == []
    written = spec()
    assert written["code"] == {
        "directory": ".",
        "entry_point": "src/train.py",
        "requirements": "requirements.txt",
        "exclude": ["/images"],
    }
    assert written["resource_config"] == {"instance_type": "ml.g5.xlarge", "instance_count": 1}
    assert written["channels"].keys() == {"train"}
    assert "s3_uri: s3://mine/My-pets/train/" in Path("job.yaml").read_text()
    assert "to be copied there: 2 objects" in Path("job.yaml").read_text()
    assert launch("job.yaml", "--dry-run", "--strict").returncode == 0


def test_script_of_another_name_is_the_program_that_reads_a_channel(pets: Path) -> None:
    files(pets / "more", "fit.py", content=b"if __name__ == '__main__':\n    read(os.environ['SM_CHANNEL_TRAIN'])\n")
    files(pets / "more", "data.py", content=b"def read(): return ChannelDataset('train')\n")
    files(pets / "more", "plot.py", content=b"if __name__ == '__main__':\n    plot()  # SM_CHANNEL_TRAIN\n")
    (pets / "more/old.py").symlink_to("none.py")
    os.mkfifo(pets / "more/pipe.py")
    done = launch("init", "more", "--yes", "--json", "--dry-run")
    assert yaml.safe_load(json.loads(done.stdout)["text"])["code"]["entry_point"] == "fit.py"


def test_script_of_a_process_group_is_started_by_torchrun(tmp_path: Path) -> None:
    for text, code in (("", {"command": "torchrun train.py"}), ("SM_HOSTS", {"entry_point": "train.py"})):
        files(tmp_path, "train.py", content=f"dist.init_process_group('gloo')\n{text}\n".encode())
        done = launch("init", str(tmp_path), "--yes", "--json", "--dry-run")
        assert yaml.safe_load(json.loads(done.stdout)["text"])["code"] == {"directory": ".", **code}


@pytest.mark.parametrize(
    ("names", "channels"),
    [
        (["data/train/a/1.png", "data/val/a/1.png"], {"train": "data/train", "validation": "data/val"}),
        (["masks/0.tar", "shards/0.tar"], {"masks": "masks", "shards": "shards"}),
        (["a/train/0.csv", "b/train/0.csv"], {"train": "a/train", "b-train": "b/train"}),
        (["pkg/data.csv", "pkg/__init__.py"], {}),
        (["d/train.jsonl", "d/val.jsonl", "d/x.csv"], {"train": "d/train.jsonl", "validation": "d/val.jsonl"}),
        (["d/train/0.csv", "d/more/0.csv"], {"train": "d/train", "d-more": "d/more"}),
        (["d/a/1.png", "d/b/0.tar"], {"d-a": "d/a", "d-b": "d/b"}),
        (["d/a/x.csv", "d/a/train.csv", "d/a/val.csv"], {"train": "d/a/train.csv", "validation": "d/a/val.csv"}),
        (["d/train_1.png", "d/test_1.png"], {"train": "d"}),
        (["d/a/1.png", "d/a/b/1.png", "d/c/1.jpg"], {"train": "d"}),
        (["train.csv", "train_loss.png", "test.png"], {"train": "train.csv"}),
        (["d/images/1.png", "d/masks/1.png"], {"d-images": "d/images", "d-masks": "d/masks"}),
        (["d/images/1.png", "d/labels/1.txt"], {"d-images": "d/images", "d-labels": "d/labels"}),
        (
            ["images/train/1.png", "images/val/1.png", "labels/train/1.txt", "labels/val/1.txt"],
            {
                "train": "images/train",
                "labels-train": "labels/train",
                "validation": "images/val",
                "labels-val": "labels/val",
            },
        ),
        (["d/data.yaml", "d/images/train/1.png", "d/images/val/1.png", "d/labels/train/1.txt"], {"train": "d"}),
        (["d/prepare.py", "d/images/a/1.png"], {"train": "d/images"}),
        (["d/annotations/train.json", "d/annotations/val.json", "d/1.png"], {"train": "d"}),
    ],
)
def test_channels_are_the_folders_of_data(names: list[str], channels: dict[str, str], pets: Path) -> None:
    files(pets / "more", *names)
    files(pets / "more", "train.py", content=b"")
    done = launch("init", "more", "--yes", "--json", "--dry-run")
    found = json.loads(done.stdout)
    local = next(step for step in found["next"] if "--local" in step)
    here = [f"--channel {name}=more/{folder}" for name, folder in channels.items()]
    assert local.partition("--local ")[2] == " ".join(here or ["--sample 100"])
    assert yaml.safe_load(found["text"])["channels"].keys() == channels.keys() | ({"train"} if not channels else set())
    assert not Path("more/job.yaml").exists()


@pytest.mark.parametrize(
    ("names", "others", "channels"),
    [
        (["train.csv", "test.csv", "a.csv"], {"d/a.csv"}, {"train", "test"}),
        (["train-0.tar", "train-1.tar", "test-0.tar"], {"d/train-0.tar", "d/train-1.tar", "d/test-0.tar"}, {"train"}),
    ],
)
def test_files_that_are_in_no_channel_are_named(
    names: list[str], others: set[str], channels: set[str], pets: Path
) -> None:
    files(pets / "more/d", "../train.py", *names)
    done = launch("init", "more", "--yes", "--json", "--dry-run")
    found = json.loads(done.stdout)
    named, _, _ = found["notes"][0].removeprefix("in no channel: ").partition(";")
    assert {*named.split(", ")} == others
    written = yaml.safe_load(found["text"])
    assert (written["channels"].keys(), written["code"]["exclude"][-1]) == (channels, f"/d/*{Path(names[0]).suffix}")


def test_files_of_splits_in_s3_are_to_be_moved_into_folders(
    aws: StandIn, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    fill_bucket(aws, b"1", "d/train.csv", "d/val.csv")
    done = launch("init", "--data=s3://mine/d/", "--yes")
    assert done.returncode == 2
    assert "s3://mine/d/: has files of train, validation; move the files of each" in done.stderr


@pytest.mark.parametrize(
    ("keys", "channels"),
    [
        (["images/1.png", "masks/1.png"], {"images": "images/", "masks": "masks/"}),
        (
            ["README", "x/images/train/a/1.png", "x/images/val/a/1.png"],
            {"train": "x/images/train/", "validation": "x/images/val/"},
        ),
        (["data.yaml", "images/train/1.png", "labels/train/1.txt"], {"train": ""}),
        (["x/data.yaml", "x/train/images/1.png", "x/valid/images/1.png"], {"train": "x/"}),
        (["train/a/1.png"], {"train": "train/"}),
        (["2024/01/0.parquet", "2024/02/0.parquet"], {"train": ""}),
        (["2024/01/0.parquet"], {"train": ""}),
        (["a/1.png", "b/train/1.png"], {"train": ""}),
    ],
)
def test_channels_are_the_prefixes_of_splits_and_masks_in_s3(
    keys: list[str], channels: dict[str, str], aws: StandIn, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    fill_bucket(aws, PNG, *(f"d/{key}" for key in keys))
    assert launch("init", "--data=s3://mine/d/", "--yes").returncode == 0
    found = {name: channel["s3_uri"] for name, channel in spec()["channels"].items()}
    assert found == {name: f"s3://mine/d/{below}" for name, below in channels.items()}


def test_content_type_is_that_of_most_bytes_and_others_are_named(pets: Path) -> None:
    files(pets / "more", "train.py", "d/README.md", "d/LICENSE", content=b"A text. " * 99)
    files(pets / "more/d", *(f"{number}.parquet" for number in range(40)), content=b"PAR1" * 99)
    files(pets / "more/d", "notes.txt", content=b"A text. " * 9)
    found = json.loads(launch("init", "more", "--yes", "--json", "--dry-run").stdout)
    assert yaml.safe_load(found["text"])["channels"]["train"]["content_type"] == "application/x-parquet"
    beside, _, rest = found["notes"][0].removeprefix("channel train has ").partition(" beside parquet; ")
    assert (sorted(beside.split(", ")), rest[:6]) == (["md", "txt", "unknown"], "remove")


def test_channel_has_the_name_by_which_the_script_reads_it(pets: Path) -> None:
    files(pets / "more", "train/1.png", "val/1.png", "dev/1.png", "test/1.png")
    files(pets / "more", "train.py", content=b"ChannelDataset('val'); ChannelDataset(\"test\")\n")
    text = json.loads(launch("init", "more", "--yes", "--json", "--dry-run").stdout)["text"]
    assert yaml.safe_load(text)["channels"].keys() == {"train", "val", "validation", "test"}


@pytest.mark.parametrize(
    ("read", "names", "channels"),
    [
        ('open_channel("csv")', ["data/csv/1.csv", "data/img/1.png"], {"csv", "data-img"}),
        ("ChannelDataset('csv'); open_channel('images')", ["images/1.png"], {"images"}),
        ('os.environ["SM_CHANNEL_IMAGES"]', ["data/images/1.png"], {"images"}),
        ('os.path.join(os.environ["SM_CHANNEL_TRAIN"], "images")', ["data/images/1.png"], {"train"}),
        ('os.environ["SM_CHANNEL_TRAIN"], os.environ["SM_CHANNEL_TEST"]', [], {"train", "test"}),
        ("", [], {"train"}),
        ("# SM_CHANNEL_OLD\nx = '#', 'SM_CHANNEL_A'  # or open_channel('b')", [], {"a"}),
        ('f"/opt/ml/input/data/rows_{epoch}"; "/opt/ml/input/data/my_rows_0"', [], {"rows", "my_rows"}),
        ('"/opt/ml/input/data/code/x.py", "SM_CHANNEL__", "SM_CHANNEL_DONNÉES"', [], {"train"}),
    ],
)
def test_channels_have_the_names_by_which_the_script_reads_them(
    read: str, names: list[str], channels: set[str], pets: Path
) -> None:
    files(pets / "more", *names)
    files(pets / "more", "train.py", content=read.encode())
    text = json.loads(launch("init", "more", "--yes", "--json", "--dry-run").stdout)["text"]
    assert yaml.safe_load(text)["channels"].keys() == channels


def test_column_names_in_csv_are_explained(pets: Path) -> None:
    """They are a line of text/csv like any other."""
    files(pets / "more", "train/1.csv", content=b"id,class\n1,cat\n")
    notes = json.loads(launch("init", "more", "--yes", "--json", "--dry-run").stdout)["notes"]
    [note] = [each for each in notes if "text/csv" in each]
    assert note.startswith("channel train: ") and note.endswith("ChannelDataset('train', format='csv; header=present')")


def test_linked_data_are_a_channel_and_are_not_sent(pets: Path) -> None:
    files(pets.parent, "elsewhere/cat/1.png", "notes.md")
    (pets / "src/data").symlink_to(pets.parent / "elsewhere")
    (pets / "src/loop").symlink_to(pets / "src")
    (pets / "src/notes.md").symlink_to(pets.parent / "notes.md")
    assert launch("init", "src", "--yes").returncode == 0
    assert spec("src/job.yaml")["code"]["exclude"] == ["/data", "/notes.md"]
    assert launch("src/job.yaml", "--dry-run", "--strict").returncode == 0


def test_class_folders_without_a_script_are_one_channel_of_the_folder(pets: Path) -> None:
    done = launch("init", "images", "--yes")
    assert "no training script was found in images" in done.stderr
    assert "; name yours, by code: {directory: ..., entry_point: ...}\n" in done.stderr
    assert "launch images/job.yaml --local --channel train=images" in done.stderr
    assert launch("images/job.yaml", "--dry-run", "--strict").returncode == 0


def test_file_that_exists_is_not_replaced(pets: Path) -> None:
    Path("job.yaml").write_text("mine")
    done = launch("init", "--yes")
    assert (done.returncode, Path("job.yaml").read_text()) == (2, "mine")
    assert "job.yaml: exists already" in done.stderr
    assert launch("init", "--yes", "-o", "other.yaml").returncode == 0


def test_without_a_terminal_the_missing_options_are_named(pets: Path) -> None:
    done = launch("init", "--role", ROLE)
    assert done.returncode == 3
    assert "pass --instance-type, --bucket, or --yes" in done.stderr
    assert not Path("job.yaml").exists()


def test_prefix_and_account_give_the_defaults(aws: StandIn, pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    aws.client("iam").create_role(RoleName="a-lambda", AssumeRolePolicyDocument=TRUST % "lambda")
    aws.client("iam").create_role(RoleName="trainer", AssumeRolePolicyDocument=TRUST % "sagemaker")
    tar = bytes(257) + b"ustar\0" + bytes(300)
    fill_bucket(aws, tar, *(f"pets/{name}.tar" for name in ("train/0", "train/1", "validation/0", "old/0")))
    aws.clear_calls()
    done = launch("init", "--data", "s3://mine/pets", "--yes")
    assert done.returncode == 0, done.stderr
    written = spec()
    assert written["role_arn"].endswith(":role/trainer")
    train = written["channels"]["train"]
    assert (train["s3_uri"], train["content_type"]) == ("s3://mine/pets/train/", "application/x-tar")
    assert [*written["channels"]] == ["train", "validation"]
    assert written["output_data_config"]["s3_output_path"] == "s3://mine/My-pets/out/"
    assert "in no channel: s3://mine/pets/old/; add a channel for what the script reads" in done.stderr
    assert aws.writing_calls() == []


def test_denied_account_leaves_placeholders_and_says_so(
    aws: StandIn, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    aws.deny("*")
    done = launch("init", "--data", "s3://mine/pets/", "--yes")
    assert done.returncode == 0, done.stderr
    assert "warning: the data could not be looked at" in done.stderr
    assert "replace role_arn by yours" in done.stderr
    assert launcher.plan("job.yaml").request["InputDataConfig"][0]["ChannelName"] == "train"


def put_team_file(text: str, patch: pytest.MonkeyPatch) -> None:
    Path("team.yaml").write_text(text)
    patch.setenv("LAUNCH_TEAM", "team.yaml")


TEAM = """\
defaults: {region: eu-west-1, tags: {cost-center: "4711"}, output_data_config: {s3_output_path: s3://team/out/}}
locked: {role_arn: "arn:aws:iam::123456789012:role/team", resource_config: {instance_type: ml.m5.large}}
required: {tags.team: vision|audio, "tags.\\"a.b\\"": , max_cost: }
regions: [eu-west-1]
accounts: ["123456789012"]
"""


def test_spec_has_only_what_the_team_does_not_give_and_passes_below_its_file(
    pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_team_file(TEAM, monkeypatch)
    refused = launch("init", "--set", "tags.team=vision")
    assert refused.returncode == 3
    lines = refused.stderr.splitlines()[1:]
    assert [line.partition("pass ")[2] for line in lines] == ["--set=max_cost=VALUE", """'--set=tags."a.b"=VALUE'"""]
    required = ("--set=tags.team=vision", '--set=tags."a.b"=${HOME}', "--set=max_cost=20")
    for wrong in ("--region=us-east-1", f"--role={ROLE}", "--set=tags.team=x"):
        done = launch("init", *required, wrong)
        assert (done.returncode, f"error: {wrong[:5]}" in done.stderr) == (2, True), done.stderr
    assert launch("init", *required).returncode == 0
    assert launch("job.yaml", "--dry-run", "--strict").returncode == 0
    written = spec()
    assert written["resource_config"] == {"instance_count": 1, "volume_size_in_gb": 30}
    assert written["tags"] == {"team": "vision", "a.b": "${HOME}"}
    assert written["channels"]["train"]["s3_uri"] == "s3://team/out/My-pets/train/"
    assert not written.keys() & {"region", "role_arn", "output_data_config"}


def test_region_and_account_that_the_team_does_not_allow_are_refused(
    aws: StandIn, pets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_team_file('regions: [eu-west-1]\naccounts: ["999999999999"]', monkeypatch)
    done = launch("init", "--yes")
    assert (done.returncode, Path("job.yaml").exists()) == (2, False)
    for option in ("--region: region: us-east-1 is", "--role: role_arn: account 123456789012 is"):
        assert f"{option} not one of those that the team's file allows" in done.stderr
    other = "--role=arn:aws:iam::999999999999:role/trainer"
    assert launch("init", "--yes", "--region=eu-west-1", other).returncode == 0


def test_terminal_is_asked_for_what_the_team_requires(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_team_file(TEAM, monkeypatch)
    with on_terminal([sys.executable, "-m", "launcher", "init"], pets) as terminal:
        for shown, answer in (
            ("tags.team is required", "sales"),
            ('tags."a.b" is required', "x"),
            ("max_cost is required", "20"),
            ("tags.team does not match 'vision|audio'", "audio"),
        ):
            terminal.wait_for(shown)
            terminal.type(f"{answer}\n")
        assert terminal.end() == 0, terminal.shown
    assert (spec()["tags"], spec()["max_cost"]) == ({"team": "audio", "a.b": "x"}, 20)


def test_terminal_is_asked_again_after_a_wrong_answer(pets: Path) -> None:
    command = [sys.executable, "-m", "launcher", "init", "--bucket", "s3://mine/x/"]
    with on_terminal(command, pets) as terminal:
        terminal.wait_for("Instance type [ml.g5.xlarge]")
        terminal.type("large\n")
        terminal.wait_for("expected an instance type")
        terminal.type("ml.m5.large\n")
        terminal.wait_for("Role of the job (ARN)")
        terminal.type(f"{ROLE}\n")
        assert terminal.end() == 0, terminal.shown
    assert (spec()["resource_config"]["instance_type"], spec()["role_arn"]) == ("ml.m5.large", ROLE)
