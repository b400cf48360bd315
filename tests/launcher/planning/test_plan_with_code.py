"""Plans with code: its place is known beforehand, and its problems are reported at the code."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

import launcher
from launcher import SpecError
from launcher.code.archive import read_code
from launcher.rules.examples import BASE, laid_over_base


def channels(request: dict[str, object]) -> list[str]:
    entries = request.get("InputDataConfig", [])
    assert isinstance(entries, list)
    return [entry["ChannelName"] for entry in entries]


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
    overlay = f"code: {{directory: src, entry_point: train.py}}\nchannels:\n{names}"
    job.write_text(laid_over_base(overlay))
    plan = launcher.plan(job, name="one")
    assert len(channels(plan.request)) == 20
    assert plan.request["HyperParameters"] == {
        "sagemaker_program": "train.py",
        "sagemaker_submit_directory": f"{plan.code_uri}code.tar.gz",
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
        ("command: torchrun train.py, delivery: submit_directory", "command"),
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
            "channels: {train: {s3_uri: s3://bkt/t/, instance_group_names: [g]}}"
        )
    )
    code = launcher.plan(job, name="one").request["InputDataConfig"][1]
    assert code["DataSource"]["S3DataSource"]["InstanceGroupNames"] == ["g"]


def test_missing_entry_point_is_reported_with_the_nearest(job: Path) -> None:
    job.write_text(laid_over_base("code: {directory: src, entry_point: trian.py}"))
    with pytest.raises(SpecError) as caught:
        launcher.plan(job)
    (problem,) = caught.value.problems
    assert "did you mean train.py?" in problem.message
    assert problem.location is not None


CODE = "code: {directory: src, entry_point: train.py}"


@pytest.mark.parametrize(
    ("overlay", "code"),
    [
        ("code: {directory: src, entry_point: train.py, s3_uri: my-bucket/code}", "code-places"),
        (f"output_data_config: {{s3_output_path: s3://bkt/{'x' * 1000}}}\n{CODE}", "aws-max"),
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
def test_code_changes_no_other_problem(problems_of: Callable[..., list[str]], overlay: str) -> None:
    alone = problems_of(overlay, None)
    for more in ("", ", delivery: channel", ", delivery: submit_directory"):
        code = CODE.replace("}", f"{more}}}")
        found = problems_of(f"{overlay.rstrip()}\n{code}", None)
        assert [each for each in found if ": code" not in each] == alone


def test_toolkit_settings_beyond_the_limits_are_refused(problems_of: Callable[..., list[str]]) -> None:
    code = CODE.replace("}", ", delivery: submit_directory}")
    full = ", ".join(f"a{index}: b" for index in range(99))
    found = problems_of(f"{code}\nhyperparameters: {{{full}}}")
    assert any("8:1: code: adds to HyperParameters, which then has more than the 100 entries" in each for each in found)
    found = problems_of(f"{code}\nenvironment: {{PYTHONPATH: {'x' * 510}}}")
    assert any("8:1: code: adds Environment.PYTHONPATH, which has" in each for each in found)
    (message,) = problems_of(f"code: {{directory: src, entry_point: train.py, requirements: {'r' * 300}}}")
    assert "code.requirements" in message


@pytest.mark.parametrize("entry_point", ["/abs/train.py", "../train.py", "train.ipynb"])
def test_entry_point_outside_the_folder_is_reported_once(
    problems_of: Callable[..., list[str]], entry_point: str
) -> None:
    (message,) = problems_of(f"code: {{directory: src, entry_point: {entry_point}}}")
    assert message.endswith("[code-entry-point]")


def test_code_uri_follows_the_output_path_of_the_request(job: Path) -> None:
    base = "".join(line for line in BASE.splitlines(keepends=True) if not line.startswith("output_data_config"))
    job.write_text(
        base
        + "code: {directory: src, entry_point: train.py}\nrequest: {OutputDataConfig: {S3OutputPath: s3://other/out}}\n"
    )
    assert str(launcher.plan(job, name="one").code_uri).startswith("s3://other/out/code/")
