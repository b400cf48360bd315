"""Prefixes of buckets and folders as channels, without a job: in a notebook, on EC2 or HyperPod."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from shutil import copytree
from typing import Any, TypeAlias

import pytest

from sagemaker_channels import (
    ChannelDataset,
    ChannelError,
    ChannelMapDataset,
    Checkpoints,
    MixedDataset,
    ThreadLoader,
    open_channel,
)
from sagemaker_channels.contract import CONNECTOR_VARIABLE
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.job.environment import Environment, load_environment
from served_bucket import serve, served_bucket
from shuffled_channels import EVERY, SHUFFLED, make_environment, text_of, texts

Place: TypeAlias = Callable[
    [str], tuple[str, dict[str, Any]]
]  # of a channel's name; returns the arguments of a dataset


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job's channel `objects`; this process has no job."""
    here = make_environment(tmp_path / "job").channels["objects"].path
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "none"))
    return here


def test_folder_has_the_samples_of_a_channel_in_the_same_order(folder: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "other")
    with open_channel(str(folder), 1, shard=Shard(1, 3), **SHUFFLED) as samples:
        assert list(map(text_of, samples)) == texts(environment, "objects", 1, Shard(1, 3), **SHUFFLED)
    assert [text_of(sample) for sample in ChannelDataset(folder)] == sorted(EVERY)


def test_relative_path_is_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Path has no ./ in front."""
    monkeypatch.chdir(folder.parent)
    dataset = ChannelDataset(Path("./objects"), transform=text_of)
    assert list(dataset) == sorted(EVERY)
    assert dataset.channel.name == "./objects"


@pytest.mark.parametrize("name", ["./objects", "./objects/", "../data/objects", "{}"])
def test_folder_is_resumed_by_any_of_its_names(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    whole = list(ThreadLoader(ChannelDataset("./objects", transform=text_of, seed=3), 4, collate_fn=list))
    first = ThreadLoader(ChannelDataset("./objects", transform=text_of, seed=3), 4, collate_fn=list)
    before = list(islice(first, 5))
    again = ThreadLoader(ChannelDataset(name.format(folder), transform=text_of, seed=3), 4, collate_fn=list)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + list(again) == whole


def test_prefix_has_the_samples_of_a_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s3").mkdir()
    folder.parent.rename(tmp_path / "s3/bucket")
    with served_bucket(tmp_path, monkeypatch):
        found = [text_of(sample) for sample in open_channel("s3://bucket/objects/", **SHUFFLED)]
    assert found == [text_of(sample) for sample in open_channel(f"{tmp_path}/s3/bucket/objects", **SHUFFLED)]


def test_each_dataset_outside_of_a_job_lists_its_prefix_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook the objects change between two cells; the epochs of one dataset see the same ones."""
    pytest.importorskip("s3torchconnector")
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "none"))
    objects = tmp_path / "s3/bucket/objects"
    objects.mkdir(parents=True)
    (objects / "0").write_bytes(b"first")
    with serve(tmp_path / "s3", tmp_path / "overlay") as endpoint:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "any")
        store: dict[str, Any] = {"endpoint": endpoint, "region": "us-east-1"}
        first = ChannelDataset("s3://bucket/objects/", **store)
        assert len(list(first)) == 1
        (objects / "1").write_bytes(b"second")
        assert len(list(first)) == 1
        assert len(list(ChannelDataset("s3://bucket/objects/", **store))) == 2
        (objects / "0").write_bytes(b"another")
        assert {text_of(sample) for sample in open_channel("s3://bucket/objects/", **store)} == {"another", "second"}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Place]]:
    """The same objects as a job's channels, a prefix and a folder: what returns a channel's arguments."""
    environment = make_environment(tmp_path / "job")
    data = environment.channels["tar"].path.parent
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3/bucket").symlink_to(data)
    with served_bucket(tmp_path, monkeypatch):
        store: dict[str, Any] = {"endpoint": os.environ["AWS_ENDPOINT_URL"], "region": "us-east-1"}
        yield {
            "job": lambda name: (name, {"environment": environment}),
            "connector": lambda name: (name, {"environment": connected(f"s3://bucket/{name}/")}),
            "prefix": lambda name: (f"s3://bucket/{name}/", store),
            "folder": lambda name: (str(data / name), {}),
        }


def connected(uri: str) -> Environment:
    """A job whose channels tar and lines are read by the connector, both from a URI."""
    entries = [{"channel": name, "s3_uri": uri, "style": "iterable"} for name in ("tar", "lines")]
    return load_environment(
        Path("/none"), {f"{CONNECTOR_VARIABLE}{n}": json.dumps(each) for n, each in enumerate(entries)}
    )


def part(place: Place, name: str, **how: Any) -> ChannelDataset:
    channel, where = place(name)
    return ChannelDataset(channel, transform=text_of, format=name, **where, **how)


@pytest.mark.parametrize("there", ["job", "connector", "prefix", "folder"])
@pytest.mark.parametrize("here", ["job", "connector", "prefix", "folder"])
def test_state_continues_wherever_the_same_objects_are(here: str, there: str, places: dict[str, Place]) -> None:
    makers: list[Callable[[Place], Any]] = [
        lambda place: part(place, "lines"),
        lambda place: part(place, "tar", seed=3, block=4),
        lambda place: MixedDataset([part(place, "tar"), part(place, "lines", seed=3)], weights=[2, 1]),
    ]
    for made in makers:
        whole, first, again = list(made(places[here])), made(places[here]), made(places[there])
        before = list(islice(first, 25))  # ends in the middle of an object
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert before + list(again) == whole


def test_state_is_refused_where_other_objects_are(places: dict[str, Place]) -> None:
    first = part(places["job"], "lines")
    next(loop := iter(first))
    state, folder = first.state_dict(), first.channel.path
    loop.close()
    (folder / "0.txt").rename(folder / "00.txt")
    for name in ("connector", "prefix", "folder"):
        again = part(places[name], "lines")
        again.load_state_dict(state)
        with pytest.raises(ChannelError, match="the data has changed; restart the epoch"):
            list(again)


@pytest.mark.parametrize(
    ("here", "member"), [("folder", "channel '/"), ("prefix", "s3_uri 's3:"), ("connector", "s3_uri 's3:")]
)
def test_state_is_refused_in_another_place_of_the_same_kind(
    here: str, member: str, places: dict[str, Place], tmp_path: Path
) -> None:
    """Its objects may have the same names: shards of another split or version."""
    first = part(places[here], "lines")
    next(loop := iter(first))
    state = first.state_dict()
    loop.close()
    lines = part(places["folder"], "lines").channel.path
    copytree(lines, lines.with_name("more"))
    others: dict[str, Place] = {
        "folder": lambda name: (str(lines.with_name("more")), {}),
        "prefix": lambda name: ("s3://bucket/more/", places["prefix"](name)[1]),
        "connector": lambda name: (name, {"environment": connected("s3://bucket/more/")}),
    }
    again = part(others[here], "lines")
    again.load_state_dict(state)
    with pytest.raises(ChannelError, match=f"does not match this reading: it has .*{member}"):
        list(again)


@pytest.mark.parametrize("uri", ["s3://bucket/lines/0.txt", "s3://bucket/lines/0"])
def test_state_of_an_object_or_a_part_of_a_name_continues_in_a_job(
    uri: str, places: dict[str, Place], tmp_path: Path
) -> None:
    environment = connected(uri)
    whole = list(part(lambda name: (name, {"environment": environment}), "lines"))
    first = part(lambda name: (name, {"environment": environment}), "lines")
    before = list(islice(first, 3))
    (tmp_path / "only").mkdir()
    (part(places["folder"], "lines").channel.path / "0.txt").rename(tmp_path / "only/0.txt")
    again = part(lambda name: (str(tmp_path / "only"), {}), "lines")
    again.load_state_dict(first.state_dict())
    assert before + list(again) == whole


@pytest.mark.parametrize("uri", ["s3:/bucket/objects", "S3://bucket/objects", "gs://bucket/objects"])
def test_mistyped_uri_is_no_folder(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (open_channel, ChannelDataset, Checkpoints, lambda it: ChannelDataset(".", cache_dir=it)):
        with pytest.raises(ChannelError, match="which is no S3 URI; write s3://bucket/prefix, or a folder's path"):
            use(uri)
    assert [*tmp_path.iterdir()] == []


def test_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "none"))
    with pytest.raises(
        ChannelError, match=r"channel './nothing-here': there is no folder /.*/nothing-here; correct the path"
    ):
        list(open_channel("./nothing-here"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ChannelError, match=r"no file in .*/empty, nor below it; correct the path \(the log lists what"):
        list(open_channel(tmp_path / "empty"))
    with pytest.raises(ChannelError, match="name the folder of this file"):
        open_channel(__file__)
    with pytest.raises(ChannelError, match=r"this job has no channel 'images'; it has none; a folder is ./images"):
        open_channel("images")


def test_library_reads_a_folder_without_other_packages(folder: Path) -> None:
    library = Path(__file__).parents[3] / "entrypoints"
    code = f"import sys; sys.path.insert(0, {str(library)!r}); from sagemaker_channels import open_channel; "
    code += f"print(sum(1 for _ in open_channel({str(folder)!r})))"
    process = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == f"{len(EVERY)}\n"


def test_folder_has_random_access(folder: Path) -> None:
    dataset = ChannelMapDataset(f"{folder}/")
    assert len(dataset) == len(EVERY)
    assert [text_of(dataset[number]) for number in (0, -1)] == [sorted(EVERY)[0], sorted(EVERY)[-1]]
