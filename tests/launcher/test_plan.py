"""The plan: exactly one request, the same for the same spec, with the code's place known beforehand."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import botocore.session
import pytest
import yaml
from botocore.validate import ParamValidator

import launcher
from entrypoints import contract
from entrypoints.job.environment import load_environment
from launcher import SpecError
from launcher.checks.examples import BASE, laid_over_base
from launcher.code.archive import read_code
from launcher.request import text as show
from launcher.spec.model import aws_name, spec_name
from launcher.spec.names import job_name


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('training')\n")
    (tmp_path / "job.yaml").write_text(laid_over_base("code: {directory: src, entry_point: train.py}"))
    return tmp_path / "job.yaml"


def channels(request: dict[str, object]) -> list[str]:
    entries = request.get("InputDataConfig", [])
    assert isinstance(entries, list)
    return [entry["ChannelName"] for entry in entries]


def test_unset_keys_are_absent_from_the_request() -> None:
    request = launcher.plan(launcher.parse_spec(BASE), name="one").request
    assert request == {
        "TrainingJobName": "one",
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/training:1",
            "TrainingInputMode": "File",
        },
        "RoleArn": "arn:aws:iam::123456789012:role/training",
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 50},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
        "InputDataConfig": [
            {
                "ChannelName": "train",
                "DataSource": {
                    "S3DataSource": {
                        "S3Uri": "s3://bucket/train/",
                        "S3DataType": "S3Prefix",
                        "S3DataDistributionType": "FullyReplicated",
                    }
                },
                "InputMode": "File",
            }
        ],
    }


def test_null_suppresses_a_default() -> None:
    overlay = "channels: {train: {s3_uri: s3://b/t/, input_mode: null, s3_data_distribution_type: ~}}\nstopping_condition: null"
    request = launcher.plan(launcher.parse_spec(laid_over_base(overlay)), name="one").request
    (entry,) = request["InputDataConfig"]
    assert entry == {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3Uri": "s3://b/t/", "S3DataType": "S3Prefix"}},
    }
    assert "StoppingCondition" not in request


def test_channel_without_a_mode_has_the_jobs() -> None:
    overlay = "training_input_mode: FastFile\nchannels: {a: s3://b/a/, b: {s3_uri: s3://b/b/, input_mode: Pipe}}"
    request = launcher.plan(launcher.parse_spec(laid_over_base(overlay)), name="one").request
    assert [entry["InputMode"] for entry in request["InputDataConfig"]] == ["FastFile", "Pipe"]


def test_empty_values_are_sent() -> None:
    spec = launcher.parse_spec(laid_over_base("hyperparameters: {}\ntags: {}\nenvironment: {EMPTY: ''}"))
    request = launcher.plan(spec, name="one").request
    assert (request["HyperParameters"], request["Tags"], request["Environment"]) == ({}, [], {"EMPTY": ""})


def test_code_has_a_channel_of_its_own(job: Path) -> None:
    plan = launcher.plan(job, name="one")
    assert plan.code is not None
    assert channels(plan.request) == ["train", "launcher_code"]
    uri = plan.request["InputDataConfig"][1]["DataSource"]["S3DataSource"]["S3Uri"]
    assert uri == plan.code_uri == f"s3://bucket/out/code/{plan.code.digest}/"
    assert plan.request["AlgorithmSpecification"]["ContainerEntrypoint"] == [
        "python3",
        "/opt/ml/input/data/launcher_code/boot.py",
    ]
    assert plan.request["AlgorithmSpecification"]["ContainerArguments"] == ["train.py"]


def test_argument_style_json_is_an_argument_of_the_container(job: Path) -> None:
    job.write_text(laid_over_base("code: {directory: src, entry_point: train.py, argument_style: json}"))
    algorithm = launcher.plan(job, name="one").request["AlgorithmSpecification"]
    assert algorithm["ContainerArguments"] == ["train.py", "--argument-style", "json"]


def test_digest_depends_on_the_content_only(job: Path) -> None:
    first = launcher.plan(job, name="one").code
    script = job.parent / "src" / "train.py"
    script.touch()
    (job.parent / "src" / "__pycache__").mkdir()
    (job.parent / "src" / "__pycache__" / "train.pyc").write_bytes(b"x")
    assert first is not None
    assert launcher.plan(job, name="one").code == first
    archives = [io.BytesIO(), io.BytesIO()]
    first.write_tar_gz(archives[0])
    read_code(job.parent / "src").write_tar_gz(archives[1])
    assert archives[0].getvalue() == archives[1].getvalue()
    script.write_text("print('other')\n")
    changed = launcher.plan(job, name="one").code
    assert changed is not None
    assert changed.digest != first.digest


def test_code_uses_the_toolkit_if_20_channels_are_taken(job: Path) -> None:
    names = "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(20))
    overlay = f"code: {{directory: src, entry_point: train.py, launcher: torchrun}}\nchannels:\n{names}"
    job.write_text(laid_over_base(overlay))
    plan = launcher.plan(job, name="one")
    assert len(channels(plan.request)) == 20
    assert plan.request["HyperParameters"] == {
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": f"{plan.code_uri}code.tar.gz",
        "sagemaker_torch_distributed_enabled": "true",
    }
    assert "ContainerEntrypoint" not in plan.request["AlgorithmSpecification"]
    assert [warning.code for warning in plan.warnings] == ["code-needs-toolkit"]


@pytest.mark.parametrize(
    ("code", "warned"),
    [
        ("entry_point: train.py", True),
        ("entry_point: train", True),
        ("entry_point: train.sh", False),  # it installs what it needs by itself, as with the toolkit
        ("entry_point: train.py, requirements: requirements.txt", False),
        ("entry_point: train.py, requirements: other.txt", False),
        ("entry_point: train.py, delivery: submit_directory", False),  # the toolkit installs it
    ],
)
def test_unnamed_requirements_file_is_a_warning(job: Path, code: str, warned: bool) -> None:
    for name in ("train", "train.sh", "requirements.txt", "other.txt"):
        (job.parent / "src" / name).write_text("")
    job.write_text(laid_over_base(f"code: {{directory: src, {code}}}"))
    found = [warning for warning in launcher.plan(job).warnings if warning.code == "code-requirements-unnamed"]
    assert len(found) == warned
    assert all("write code.requirements: requirements.txt" in warning.message for warning in found)


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("entry_point: train, delivery: submit_directory", "entry_point"),
        ("entry_point: train.py, launcher: torchrun, delivery: submit_directory", "launcher"),
        ("entry_point: train.py, delivery: submit_directory", None),
        ("entry_point: train.sh, delivery: submit_directory", None),
        ("entry_point: train", None),
    ],
)
def test_package_that_the_toolkit_cannot_run_is_refused(job: Path, code: str, key: str | None) -> None:
    for name in ("train", "train.sh", "setup.py"):
        (job.parent / "src" / name).write_text("")
    job.write_text(laid_over_base(f"code: {{directory: src, {code}}}"))
    try:
        launcher.plan(job)
    except launcher.SpecError as error:
        assert [(problem.path, problem.code) for problem in error.problems if problem.severity == "error"] == [
            (("code", str(key)), "code-package-toolkit")
        ]
    else:
        assert key is None


def test_code_channel_has_all_instance_groups(job: Path) -> None:
    job.write_text(
        laid_over_base(
            "code: {directory: src, entry_point: train.py}\n"
            "resource_config: {volume_size_in_gb: 9, instance_groups: ["
            "{instance_group_name: g, instance_type: ml.m5.large, instance_count: 1}]}\n"
            "channels: {train: {s3_uri: s3://b/t/, instance_group_names: [g]}}"
        )
    )
    code = launcher.plan(job, name="one").request["InputDataConfig"][1]
    assert code["DataSource"]["S3DataSource"]["InstanceGroupNames"] == ["g"]


def test_connector_settings_are_environment_variables() -> None:
    overlay = "channels: {images: {source: S3Connector, s3_uri: s3://b/i/, content_type: application/x-tar}}"
    request = launcher.plan(launcher.parse_spec(laid_over_base(overlay)), name="one").request
    assert "InputDataConfig" not in request
    assert json.loads(request["Environment"]["LAUNCHER_CONNECTOR_0"]) == {
        "channel": "images",
        "s3_uri": "s3://b/i/",
        "style": "iterable",
        "content_type": "application/x-tar",
    }


AUGMENTED = (
    "train: {s3_uri: s3://b/m, s3_data_type: AugmentedManifestFile, attribute_names: [source-ref, class],"
    " input_mode: Pipe, record_wrapper_type: RecordIO}"
)


def test_attribute_names_are_environment_variables(job: Path) -> None:
    code = "code: {directory: src, entry_point: train.py}\nenvironment: {A: b}\n"
    job.write_text(laid_over_base(f"{code}channels: {{{AUGMENTED}, other: s3://b/o/}}"))
    names = {"LAUNCHER_ATTRIBUTE_NAMES_0": '{"train": ["source-ref", "class"]}'}
    assert launcher.plan(job, name="one").request["Environment"] == {"A": "b", **names}
    job.write_text(laid_over_base(f"channels: {{{AUGMENTED}}}"))  # without code no script reads it
    assert "Environment" not in launcher.plan(job, name="one").request


def test_long_attribute_names_are_split_over_variables(job: Path, tmp_path: Path) -> None:
    names = [f"{number:02d}-{'ä' * 40}" for number in range(16)]
    augmented = AUGMENTED.replace("[source-ref, class]", json.dumps(names))
    job.write_text(laid_over_base(f"code: {{directory: src, entry_point: train.py}}\nchannels: {{{augmented}}}"))
    environ = launcher.plan(job, name="one").request["Environment"]
    assert len(environ) > 5
    assert {len(text) for text in environ.values()} <= {512, len([*environ.values()][-1])}
    config = tmp_path / "ml" / contract.CONFIG_DIR
    config.mkdir(parents=True)
    (config / contract.INPUT_DATA_CONFIG_FILE).write_text('{"train": {}}')
    assert load_environment(tmp_path / "ml", environ).channels["train"].attribute_names == tuple(names)


def test_a_missing_entry_point_is_named(job: Path) -> None:
    job.write_text(laid_over_base("code: {directory: src, entry_point: trian.py}"))
    with pytest.raises(SpecError) as caught:
        launcher.plan(job)
    (problem,) = caught.value.problems
    assert "did you mean train.py?" in problem.message
    assert problem.location is not None


def test_made_job_names_are_legal_and_unique() -> None:
    spec = launcher.parse_spec(laid_over_base(f"base_name: {'a' * 60}"))
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    names = {job_name(spec, now) for _ in range(20)}
    assert len(names) > 1
    assert all(len(name) == 63 and "-20260102-030405-" in name for name in names)


def test_yaml_and_json_read_back_equal() -> None:
    awkward = {
        "a": [
            "1e-3",
            "012",
            "no",
            "12:30",
            "x: y",
            "",
            " ",
            "~",
            "null",
            "a\nb",
            "2024-01-01",
            "#x",
            "é",
            "1_0",
            "=",
            "<<",
            "0x1",
        ]
    }
    assert yaml.safe_load(show.as_yaml(awkward)) == awkward
    assert json.loads(show.as_json(awkward)) == awkward
    quoted = show.as_yaml({"rate": "1e-3"})
    assert quoted == "rate: '1e-3'\n"  # plain, a YAML 1.2 reader would make a number of it


def test_member_names_convert_to_keys_and_back() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    shapes = [model.operation_model("CreateTrainingJob").input_shape]
    seen = set()
    while shapes:
        shape = shapes.pop()
        if shape.name in seen:
            continue
        seen.add(shape.name)
        for name, member in getattr(shape, "members", {}).items():
            assert aws_name(spec_name(name)) == name
            shapes.append(member)
        shapes += [inner for inner in (getattr(shape, "member", None), getattr(shape, "value", None)) if inner]


def test_aws_cli_accepts_the_request(job: Path) -> None:
    shape = (
        botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    )
    report = ParamValidator().validate(json.loads(show.as_json(launcher.plan(job, name="one").request)), shape)
    assert not report.has_errors(), report.generate_report()


def test_planning_reads_no_clock_file_or_environment(job: Path) -> None:
    """A dry run opens no socket, writes no file and imports nothing heavy, with an environment that names nothing."""
    program = """
import os, sys
heavy = {"boto3", "botocore", "sagemaker", "torch", "rich", "s3torchconnector", "pathspec"}
heavy |= {"launcher.aws.account", "importlib.metadata", "difflib", "gzip", "tarfile"}
heavy |= {"launcher.reference.stories"}
def audit(event, args):
    if event.startswith("socket.") or event in ("os.mkdir", "os.remove", "os.rename", "subprocess.Popen"):
        raise RuntimeError(f"{event} {args}")
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        raise RuntimeError(f"{event} {args}")
sys.addaudithook(audit)
sys.dont_write_bytecode = True
from launcher.cli import main
try:
    main([sys.argv[1], "--dry-run", "--name", "one"])
finally:
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(job)], env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "code      1 file, 18 bytes\n[]\n"
    assert yaml.safe_load(done.stdout) == launcher.plan(job, name="one").request


CODE = "code: {directory: src, entry_point: train.py}"


@pytest.mark.parametrize(
    ("overlay", "code"),
    [
        ("code: {directory: src, entry_point: train.py, s3_uri: my-bucket/code}", "code-places"),
        (f"output_data_config: {{s3_output_path: s3://b/{'x' * 1000}}}\n{CODE}", "aws-max"),
        ("code: {directory: nowhere, entry_point: train.py}\nrole_arn: arn:aws:iam::1:role/x", "code-unreadable"),
    ],
    ids=["no uri", "too long", "no folder"],
)  # fmt: skip
def test_limits_broken_by_the_code_are_reported_at_the_code(job: Path, overlay: str, code: str) -> None:
    job.write_text(laid_over_base(overlay))
    with pytest.raises(SpecError) as caught:
        launcher.plan(job, name="one")
    found = {problem.code: problem for problem in caught.value.problems}
    assert found.pop(code).path[0] == "code"
    # The role's problem is reported beside the folder's.
    assert set(found) == ({"aws-pattern"} if code == "code-unreadable" else set())


def problems_of(job: Path, overlay: str, name: str | None = "one", **variables: str) -> list[str]:
    job.write_text(laid_over_base(overlay))
    with pytest.raises(SpecError) as caught:
        launcher.plan(launcher.load(job, environ=variables), name=name)
    return [str(problem).replace(f"{job}:", "") for problem in caught.value.problems]


IN_A_GROUP = "channels: {a: {s3_uri: s3://bucket/a/, instance_group_names: [g]}}\n"


@pytest.mark.parametrize(
    "overlay",
    [
        IN_A_GROUP,
        IN_A_GROUP + "resource_config: null",
        IN_A_GROUP + "resource_config: {instance_groups: [{instance_type: ml.m5.large}]}",
        "request: {InputDataConfig: [{}]}",
        "request: {InputDataConfig: x}",
        "request: {InputDataConfig: [{ChannelName: a, DataSource: null}]}",
        "request: {OutputDataConfig: 5}",
        "request: {AlgorithmSpecification: x}",
        "request: {HyperParameters: x, Environment: [y]}",
        "role_arn: my-role",
        "base_name: my_job",
        "training_job_name: my_job\nbase_name: null",
        "tags: {team: x*}",
        "channels: {b c: s3://bucket/b/}",
        "output_data_config: null",
        "channels:\n" + "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(21)),
    ],
)
def test_code_changes_no_other_problem(job: Path, overlay: str) -> None:
    alone = problems_of(job, overlay, None)
    for more in ("", ", delivery: channel", ", delivery: submit_directory"):
        code = CODE.replace("}", f"{more}}}")
        told = problems_of(job, f"{overlay.rstrip()}\n{code}", None)
        assert [each for each in told if ": code" not in each] == alone


def test_toolkit_settings_beyond_the_limits_are_refused(job: Path) -> None:
    code = CODE.replace("}", ", delivery: submit_directory}")
    full = ", ".join(f"a{index}: b" for index in range(99))
    told = problems_of(job, f"{code}\nhyperparameters: {{{full}}}")
    assert any("8:1: code: adds to HyperParameters, which then has more than the 100 entries" in each for each in told)
    told = problems_of(job, f"{code}\nenvironment: {{PYTHONPATH: {'x' * 510}}}")
    assert any("8:1: code: adds Environment.PYTHONPATH, which has" in each for each in told)
    (message,) = problems_of(job, f"code: {{directory: src, entry_point: train.py, requirements: {'r' * 300}}}")
    assert "code.requirements" in message


@pytest.mark.parametrize("entry_point", ["/abs/train.py", "../train.py", "train.ipynb"])
def test_entry_point_outside_the_folder_is_reported_once(job: Path, entry_point: str) -> None:
    (message,) = problems_of(job, f"code: {{directory: src, entry_point: {entry_point}}}")
    assert message.endswith("[code-entry-point]")


@pytest.mark.parametrize("code", ["", CODE])
@pytest.mark.parametrize(
    "overlay", ['hyperparameters: {p: "${S}"}', 'environment: "${S}"', 'request: {Environment: "${S}"}',
                'request: {HyperParameters: ["${S}"]}', 'request: "${S}"', 'environment: ["${S}"]']
)  # fmt: skip
def test_a_secret_of_a_wrong_form_is_not_shown(job: Path, overlay: str, code: str) -> None:
    told = problems_of(job, f"{overlay}\n{code}", S="hunter2\nx")
    assert len(told) == 1
    assert "hunter2" not in told[0]


def test_wrong_name_option_is_reported_at_the_option(job: Path) -> None:
    job.write_text(laid_over_base("base_name: null"))
    assert launcher.plan(job, name="abc").request["TrainingJobName"] == "abc"
    for base in ("base_name: null", "base_name: mine", "base_name: null\ntraining_job_name: mine"):
        (message,) = problems_of(job, base, "x y")
        assert message.startswith("--name: 'x y' does not match")


def test_wrong_base_name_is_quoted_as_written(job: Path) -> None:
    (message,) = problems_of(job, "base_name: my_job", None)
    assert message.startswith("7:1: base_name: 'my_job' does not match")
    with pytest.raises(SpecError) as caught:
        launcher.plan(launcher.load(job, sets=[f"base_name={'a_' * 150}"]))
    assert {str(problem.location) for problem in caught.value.problems} == {"--set base_name"}
    job.write_text(laid_over_base(f"base_name: {'a' * 43}"))
    assert [warning.code for warning in launcher.plan(job).warnings] == ["base-name-room"]
    assert launcher.plan(job, name="one").warnings == ()


def test_code_uri_follows_the_output_path_of_the_request(job: Path) -> None:
    base = "".join(line for line in BASE.splitlines(keepends=True) if not line.startswith("output_data_config"))
    job.write_text(
        base
        + "code: {directory: src, entry_point: train.py}\nrequest: {OutputDataConfig: {S3OutputPath: s3://other/out}}\n"
    )
    assert str(launcher.plan(job, name="one").code_uri).startswith("s3://other/out/code/")


def test_circular_links_are_walked_once(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.py").touch()
        for number in range(3):
            (tmp_path / name / f"to-{other}-{number}").symlink_to(tmp_path / other)
    names = [name for name in read_code(tmp_path).names() if not name.startswith("launcher_bundle")]
    assert len(names) == 2 + 2 * 3
