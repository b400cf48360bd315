"""What `launch import` reads of other tools: notebooks and code that an SDK has packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher
from aws_stand_in import StandIn
from launcher.errors import InputError, LaunchError
from launcher.importing.imports import import_file
from launching import launch

ARN = "arn:aws:iam::123456789012:role/Trainer"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/x:1"
REQUEST: dict[str, Any] = {
    "TrainingJobName": "digits",
    "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
    "RoleArn": ARN,
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def notebook(*cells: str) -> Path:
    made = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    made.insert(0, {"cell_type": "markdown", "source": ["# Train"]})
    Path("src").mkdir(exist_ok=True)
    Path("src/train.ipynb").write_text(json.dumps({"cells": made, "nbformat": 4}))
    return Path("src/train.ipynb")


def test_notebook_is_one_script_whose_errors_name_cell_and_line() -> None:
    Path("src").mkdir()
    Path("src/request.json").write_text(json.dumps(REQUEST))
    file = notebook(
        "%pip install -q \\\n  sagemaker\nimport boto3, json",
        "%%bash\nls\n echo $(",
        "%%time\nlisted = !ls\nif True:\n    %matplotlib inline\nboto3.client?",
        "text = '''\n%s and\n!not a command\n'''\nrequest = json.load(open('request.json'))\n",
        "display(boto3.client('sagemaker').create_training_job(**request, Environment={'A': text % 1}))",
        "\n\nundefined",
    )
    done = launch("import", str(file))
    assert (done.returncode, yaml.safe_load(done.stdout)["environment"]) == (0, {"A": "\n1 and\n!not a command\n"})


def test_lines_of_a_notebook_that_are_left_out_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    file = notebook("%pip install -q \\\n  sagemaker\nx = 1", "%%bash\nls", "x\nif x:\n    !ls\nundefined")
    assert launch("import", str(file)).returncode == 2
    printed = capfd.readouterr().err
    left_out = [line for line in printed.splitlines() if line.startswith("launch import: left out ")]
    assert [line.removeprefix("launch import: left out train.ipynb, ") for line in left_out] == [
        "cell 1, line 1: %pip install -q \\",
        "cell 1, line 2: sagemaker",
        "cell 2, line 1: %%bash",
        "cell 3, line 3: !ls",
    ]
    assert 'File "train.ipynb, cell 3", line 4, in <module>\n    undefined\nNameError' in printed


@pytest.mark.parametrize("text", ["", "[]", '{"cells": []}', '{"worksheets": [{"cells": []}]}'])
def test_broken_notebook_is_one_clear_line(text: str) -> None:
    Path("a.ipynb").write_text(text)
    done = launch("import", "a.ipynb")
    assert (done.returncode, done.stderr) == (
        2,
        "error: a.ipynb: is not a notebook of format 4; open it in Jupyter and save it\n",
    )


def test_job_that_does_not_exist_is_reported(aws: StandIn) -> None:
    done = launch("import", "digits")
    assert (done.returncode, done.stderr.startswith("error: there is no training job 'digits' in us-east-1")) == (
        3,
        True,
    )


def test_tuning_job_is_refused_with_the_remedy(aws: StandIn) -> None:
    refusal = "is a tuning job; import one of its training jobs"
    done = launch("import", "arn:aws:sagemaker:eu-west-1:123456789012:hyper-parameter-tuning-job/digits")
    assert (done.returncode, done.stderr) == (2, f"error: digits {refusal}\n")
    tuning = {"HyperParameterTuningJobConfig": {}, "TrainingJobDefinition": REQUEST}
    for around in (tuning, {**tuning, "Tags": []}, {"States": {"Tune": {"Parameters": tuning}}}):
        Path("tuning.json").write_text(json.dumps(around))
        with pytest.raises(InputError, match=f"^tuning.json: {refusal}$"):
            import_file("tuning.json")
    both = {"Tune": tuning, "Train": REQUEST}
    Path("tuning.json").write_text(json.dumps(both))
    assert "role_arn" in import_file("tuning.json", pick="Train").as_yaml()


def places(value: Any) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *rest) for key, item in items for rest in places(item))]


CODE_REQUEST: dict[str, Any] = REQUEST | {
    "HyperParameters": {
        "epochs": "3",
        "sagemaker_program": '"fit.py"',
        "sagemaker_submit_directory": '"s3://bucket/c.tar.gz"',
    },
    "InputDataConfig": [
        {"ChannelName": name, "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/x"}}}
        for name in ("code", "sm_drivers")
    ],
}


@pytest.mark.parametrize("wrong", ["3", ["x"], {"a": {}}, None], ids=json.dumps)
def test_wrong_value_anywhere_is_imported_or_one_clear_line(wrong: Any) -> None:
    for *above, last in filter(None, places(CODE_REQUEST)):
        data = json.loads(json.dumps(CODE_REQUEST))
        level = data
        for key in above:
            level = level[key]
        level[last] = wrong
        Path("request.json").write_text(json.dumps(data))
        try:
            text = import_file("request.json").as_yaml()
        except LaunchError as error:
            assert "\n" not in str(error)
        else:
            launcher.parse_spec(text, environ=dict.fromkeys(("HOME",), ""))


def test_malformed_name_of_a_channel_is_one_error() -> None:
    entry = {
        "ChannelName": ["x"],
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/x/"}},
    }
    Path("request.json").write_text(json.dumps(REQUEST | {"InputDataConfig": [entry]}))
    Path("job.yaml").write_text(import_file("request.json").as_yaml())
    done = launch("job.yaml", "--dry-run")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("error")] == [
        "error: job.yaml:14:5: request.InputDataConfig[0].ChannelName: is ['x'], but a text belongs here [aws-type]"
    ]


def test_template_with_too_many_aliases_is_refused() -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    Path("template.yaml").write_text(f"a0: &a0 x\nRole: !Ref Role\n{levels}")
    with pytest.raises(InputError, match=r"template\.yaml: has more than 200,000 values"):
        import_file("template.yaml")


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("main.tf", 'resource "aws_sagemaker_training_job" "x" {}\n', "import what `terraform show -json` prints"),
        ("sagemaker.yaml", "compute_environment: AMAZON_SAGEMAKER\n", "`launch init` writes a spec"),
    ],
)
def test_other_language_is_refused_with_the_remedy(name: str, text: str, remedy: str) -> None:
    Path(name).write_text(text)
    with pytest.raises(InputError, match=remedy):
        import_file(name)


# Uploads and creates as SDK v2 does.
SCRIPT = f"""\
import boto3, io, sys, tarfile
SOURCE, REQUEST = "src", {REQUEST!r}
data = io.BytesIO()
with tarfile.open(fileobj=data, mode="w:gz") as archive:
    for name in sys.argv[1:]:
        if name == "+":
            archive.addfile(tarfile.TarInfo("made.py"))
        else:
            archive.add(name, name.removeprefix(SOURCE + "/"))
boto3.client("s3").put_object(Bucket="my-bucket", Key="digits/sourcedir.tar.gz", Body=data.getvalue())
settings = {{"sagemaker_submit_directory": '"s3://my-bucket/digits/sourcedir.tar.gz"', "sagemaker_program": '"fit.py"',
            "sagemaker_container_log_level": "20", "lr": "0.1", "optimizer": '"adam"', "digits": '"12"'}}
boto3.client("sagemaker").create_training_job(**REQUEST, HyperParameters=settings)
"""


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (
            ["src/fit.py", "src/requirements.txt", "src/pkg/a.py"],
            {"directory": "src", "requirements": "requirements.txt"},
        ),
        (["src/fit.py", "src/requirements.txt", "src/pkg/a.py", "lib"], {"directory": "src", "dependencies": ["lib"]}),
        (["src/fit.py"], {"dependencies": ["src/fit.py"]}),
        (["src/fit.py", "+"], None),
    ],
    ids=["folder", "with-dependency", "one-file", "unknown"],
)
def test_code_of_a_script_in_local_files_becomes_code(sent: list[str], code: dict[str, Any] | None) -> None:
    for name in ("src/fit.py", "src/requirements.txt", "src/pkg/a.py", "lib/b.py", "train.py"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    Path("train_job.py").write_text(SCRIPT)
    done = launch("import", "train_job.py", "--", *sent)
    assert done.returncode == 0, done.stderr
    spec = yaml.safe_load(done.stdout)
    if code is None:
        assert "if its folder is src, write code: {directory: src, entry_point: fit.py}" in done.stdout
        assert "sagemaker_program" in spec["hyperparameters"]
        return
    assert spec["code"] == {**spec["code"], **code, "entry_point": "fit.py"}
    assert spec["hyperparameters"] == {"lr": "0.1", "optimizer": "adam", "digits": '"12"'}


# Uploads and creates as SDK v3 does.
SCRIPT_V3 = f"""\
import boto3, json, sys
REQUEST, SOURCE = {REQUEST!r}, json.loads(sys.argv[1])
files = {{"sourcecode.json": json.dumps(SOURCE), "distributed.json": sys.argv[2], "sm_train.sh": sys.argv[3]}}
for name, text in files.items():
    boto3.client("s3").put_object(Bucket="my-bucket", Key="digits/sm_drivers/" + name, Body=text.encode())
boto3.client("s3").put_object(Bucket="my-bucket", Key="train/a.txt", Body=b"a")
uris = {{"train": "s3://my-bucket/train/", "code": "s3://my-bucket/digits/code", "sm_drivers": "s3://my-bucket/digits/sm_drivers"}}
sources = {{name: {{"S3DataSource": {{"S3DataType": "S3Prefix", "S3Uri": uri}}}} for name, uri in uris.items()}}
REQUEST["InputDataConfig"] = [{{"ChannelName": name, "DataSource": source}} for name, source in sources.items()]
REQUEST["AlgorithmSpecification"] |= {{"ContainerEntrypoint": ["/bin/bash"], "ContainerArguments": ["-c", "sm_train.sh"]}}
boto3.client("sagemaker").create_training_job(**REQUEST, HyperParameters={{"lr": "0.1"}}, Environment={{}})
"""


@pytest.mark.parametrize(
    ("source", "launcher_of_sdk", "started_by", "code"),
    [
        (
            {"command": "python fit.py", "args": ["--name", "a b"], "ignore_patterns": [".git", "*.log"]},
            "{}",
            "eval",
            {"command": "python fit.py --name 'a b'", "arguments": "none", "exclude": ["*.log"]},
        ),
        (
            {"entry_script": "fit.py"},
            "{}",
            "basic_script_driver.py",
            {"entry_point": "fit.py", "argument_style": "json"},
        ),
        ({"entry_script": "fit.py"}, '{"process_count_per_node": 2}', "mpi_driver.py", None),
    ],
    ids=["command", "script", "mpi"],
)
def test_code_of_a_model_trainer_becomes_code(
    source: dict[str, Any], launcher_of_sdk: str, started_by: str, code: dict[str, Any] | None
) -> None:
    Path("src").mkdir()
    Path("src/fit.py").touch()
    Path("train_job.py").write_text(SCRIPT_V3)
    done = launch(
        "import", "train_job.py", "--", json.dumps({"source_dir": "src", **source}), launcher_of_sdk, started_by
    )
    assert done.returncode == 0, done.stderr
    spec = yaml.safe_load(done.stdout)
    if code is None:
        assert {"code", "sm_drivers"} < spec["channels"].keys()
        return
    assert "Upload the data of train: the script's own upload was recorded, not sent\n" in done.stdout
    assert spec["code"] == {"directory": "src", **code}
    assert (list(spec["channels"]), "container_entrypoint" in spec, "environment" in spec) == (["train"], False, False)
    Path("job.yaml").write_text(done.stdout)
    launcher.plan("job.yaml")
