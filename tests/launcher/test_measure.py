"""`launch measure`: the job that it makes of a prefix or a channel, and the results that it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import forked
import launcher
from aws_stand_in import StandIn
from launcher import Outcome, Plan, bundled, cli

Launch = Any


@pytest.fixture
def launch(capsys: pytest.CaptureFixture[str]) -> Launch:
    def run(*words: str | Path, code: int = 0) -> str:
        with pytest.raises(SystemExit) as end:
            cli.main(["measure", *map(str, words)])
        out, err = capsys.readouterr()
        assert int(end.value.code or 0) == code, err
        return str(err if code else out)

    return run


def planned(launch: Launch, *words: str | Path) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(launch(*words, "--dry-run", "--json"))
    return request


def test_prefix_arrives_only_by_the_channels_that_the_ways_read(launch: Launch) -> None:
    request = planned(launch, "s3://mine/shards", "--ways", "pipe,connector-tar,fast-file", "--format", "tar")
    entries = {entry["ChannelName"]: entry for entry in request["InputDataConfig"]}
    assert list(entries) == ["fast_file", "pipe", "launcher_code"]
    assert (entries["pipe"]["InputMode"], entries["pipe"]["ContentType"]) == ("Pipe", "application/x-tar")
    assert "RecordWrapperType" not in entries["pipe"]
    assert json.loads(request["Environment"]["LAUNCHER_CONNECTOR_0"])["s3_uri"] == "s3://mine/shards/"
    parameters = {"ways": "pipe,connector-tar,fast-file", "format": "tar", "rounds": "3", "batch-size": "4"}
    assert parameters.items() <= request["HyperParameters"].items()


def test_objects_of_a_pipe_are_wrapped_and_all_ways_that_read_them_are_measured(launch: Launch) -> None:
    request = planned(launch, "s3://mine/images/")
    [pipe] = (entry for entry in request["InputDataConfig"] if entry["ChannelName"] == "pipe")
    assert pipe["RecordWrapperType"] == "RecordIO"
    ways = request["HyperParameters"]["ways"].split(",")
    assert {"file", "fast-file", "pipe", "connector-map", "s3-map-dataset", "plain-file"} <= {*ways}
    assert not {"efs", "fsx", "connector-tar"} & {*ways}
    request = planned(launch, "s3://mine/tables", "--format", "parquet")  # nor has this boundaries in a stream
    assert "RecordIO" in {entry.get("RecordWrapperType") for entry in request["InputDataConfig"]}


def test_channel_of_a_spec_keeps_the_job_and_reads_its_file_system(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(bundled.spec_path("efs").read_text() + "training_job_name: mine\nmetric_definitions: []\n")
    request = planned(launch, file, "--step", "20ms", "--set", "resource_config.instance_type=ml.g5.xlarge")
    [efs, _] = request["InputDataConfig"]
    assert efs["ChannelName"] == "efs"
    assert "FileSystemDataSource" in efs["DataSource"]
    assert efs["ContentType"] == "application/octet-stream"  # a warning could only be about what we wrote
    assert request["HyperParameters"]["ways"].startswith("efs,plain-file")
    assert request["HyperParameters"]["step"] == "20ms"
    assert request["ResourceConfig"]["InstanceType"] == "ml.g5.xlarge"
    assert request["VpcConfig"]
    assert request["TrainingJobName"].startswith("measure-")
    assert request["AlgorithmSpecification"]["ContainerArguments"] == ["entrypoints/measure.py"]


def test_spec_with_many_channels_needs_the_name_of_one(launch: Launch) -> None:
    file = bundled.spec_path("twenty-channels")
    error = launch(file, code=2)
    assert "has 21 channels: " in error
    assert "train_file, " in error
    assert f"launch measure {file} " in error
    assert "no channel 'train_tar_fas'; did you mean train_tar_fast" in launch(file, "train_tar_fas", code=2)
    request = planned(launch, file, "train_tar_fast", "train_efs", "--ways", "fast-file,efs", "--format", "tar")
    assert [entry["ChannelName"] for entry in request["InputDataConfig"]] == ["fast_file", "efs", "launcher_code"]
    assert "as another one does; measure them one by one" in launch(file, "train_file", "train_tar_file", code=2)
    assert "neither a prefix in S3 nor a file system" in launch(file, "train_manifest", code=2)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("s3://mine/x/", "--ways", "fast-fil"), "did you mean 'fast-file'"),
        (("s3://mine/x/", "--ways", "efs"), "it reads a channel on efs"),
        (("s3://mine/x/", "--ways", "connector-tar"), "not objects"),
        (("s3://mine/x/", "--format", "tra"), "no way reads it here; there are tar,"),
        (("s3://mine/x/", "train"), "only a spec has channels"),
        (("s3://mine/x/", "--step", "foo"), "--step foo: is neither a function nor a time; write module:function"),
        (("s3://mine/x/", "--step", "20"), "or a time: 20ms"),
        (("ftp://example.com/x",), "is not an S3 URI"),
        (("no.yaml",), "no.yaml"),
        (("no.json",), "cannot be read"),
    ],
)
def test_wrong_input_is_refused_with_what_to_do(words: tuple[str, ...], problem: str, launch: Launch) -> None:
    assert problem in launch(*words, code=2)


@pytest.mark.parametrize("command", ["measure", "advise"])
def test_folder_without_files_is_refused(command: str, tmp_path: Path) -> None:
    (tmp_path / "empty/below").mkdir(parents=True)
    (tmp_path / "empty/below/above").symlink_to(tmp_path / "empty")
    found = CliRunner().invoke(cli.cli, [command, str(tmp_path / "empty")])
    assert found.exit_code == 2
    assert "holds no files; name the folder that holds the data" in found.output


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with eight files in the working directory, and what is measured of a spec that reads them from elsewhere."""
    for number in range(8):
        file = tmp_path / f"images/{number % 2}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(100 * number))
    (tmp_path / "job.yaml").write_text(bundled.spec_path("s3-file").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "ways"),
    [(("./images",), "pipe"), (("job.yaml", "--local", "--channel", "train=images"), "file")],
)
def test_folder_is_measured_here(target: tuple[str, ...], ways: str, images: Path) -> None:
    options = ("--ways", ways, "--rounds", "1", "--num-workers", "0", "--json")
    done = forked.run(forked.LAUNCHER, ["-m", "launcher", "measure", *target, *options])
    assert (done.returncode, "whole bucket" in done.stderr) == (0, False), done.stderr
    found = {way["name"]: (way["samples"], way["bytes"]) for way in json.loads(done.stdout)["ways"]}
    assert found == dict.fromkeys(ways.split(","), (8, 2800))


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("images", "--dry-run"), "images is measured on this machine; leave out --dry-run and --check"),
        (
            ("s3://mine/x/", "--local", "--channel", "file=images"),
            "has no channels; measure the folder: launch measure",
        ),
        (("job.yaml", "--local", "--channel", "tran=images"), "the job has no channel 'tran'"),
        (("images", "train"), "only a spec has channels"),
    ],
)
def test_folder_with_options_that_do_not_fit_is_refused(words: tuple[str, ...], problem: str, launch: Launch) -> None:
    assert problem in launch(*words, code=2)


def test_submission_shows_where_the_figures_will_be(
    aws: StandIn, launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the prefix's own bucket, where the code is, too; the bundled spec's bucket is an example."""
    aws.client("s3").create_bucket(Bucket="mine")
    with pytest.raises(SystemExit):
        cli.main(
            ["measure", "s3://mine/x/", "--ways", "fast-file", "--name", "m", "--no-check", "--yes", "--no-follow"]
        )
    place = "s3://mine/measure/m/output/output.tar.gz"
    assert f"results measure.json in {place}, when the job has ended" in capsys.readouterr().err
    assert aws.client("sagemaker").describe_training_job(TrainingJobName="m")["HyperParameters"]["ways"] == "fast-file"


def test_results_are_shown_again_as_table_and_json(launch: Launch, tmp_path: Path) -> None:
    figures = {"samples": 100, "seconds": 4.0, "first_batch": 0.5, "mean_100": 2.5}
    way = {
        "name": "file",
        "title": "File mode",
        "row": 1,
        "error": None,
        "samples": 100,
        "bytes": 10**6,
        "memory": 10**8,
        "runs": [figures],
    }
    failed = {"name": "pipe", "title": "Pipe", "row": 3, "error": "no such FIFO", "runs": []}
    file = tmp_path / "measure.json"
    file.write_text(json.dumps({"rounds": 1, "ways": [failed, way]}))
    lines = launch(file).splitlines()
    assert lines[0].split()[:2] == ["way", "samples/s"]
    assert lines[1].split()[:3] == ["file", "25.0", "0.2"]
    assert lines[2] == "pipe: no such FIFO"
    shown = json.loads(launch(file, "--json"))
    assert [row["name"] for row in shown["summary"]] == ["file", "pipe"]
    assert shown["summary"][0]["memory_mb"] == 100
    for other in ({"ways": 3}, {"ways": [way | {"runs": [figures | {"samples": "many"}]}]}):
        file.write_text(json.dumps(other))
        assert "was not written by this version of `launch measure`" in launch(file, code=2)


def test_local_run_leaves_the_table_to_its_log(launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_local(plan: Plan, **options: Any) -> Outcome:
        file = Path(".launch/m/algo-1/ml/output/data/measure.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"ways": [{"name": "file", "title": "File mode", "row": 1, "runs": []}]}))
        print("algo-1 | the script's table")
        return Outcome({"TrainingJobName": "m"}, local_exit_code=0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "run_local", run_local)
    words = ("s3://mine/x/", "--ways", "file", "--name", "m", "--local", "--data", ".")
    assert launch(*words) == "algo-1 | the script's table\n"
    assert json.loads(launch(*words, "--json"))["summary"][0]["name"] == "file"
