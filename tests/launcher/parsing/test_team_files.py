"""The files below every spec: which are read, what they default, and that what they demand cannot be lifted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import launcher
from launcher.errors import InputError, SpecError
from launcher.estimator import estimator_inputs
from launcher.parsing import team_files
from launching import launch

ROLE = "arn:aws:iam::123456789012:role/team"
SPEC = """\
base_name: digits
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1
resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 10}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://mine/out/}
channels: {train: s3://mine/train/}
"""
TEAM = """\
defaults:
  role_arn: arn:aws:iam::123456789012:role/team
  tags: {cost-center: "4711", owner: "${OWNER:-all}"}
locked:
  vpc_config: {subnets: [subnet-0a1b2c3d], security_group_ids: [sg-0a1b2c3d]}
  max_cost: 200
required:
  tags.team: vision|audio
  output_data_config.kms_key_id:
accounts: ["123456789012"]
regions: [us-east-1]
"""
MET = {"tags.team": "vision", "output_data_config.kms_key_id": "alias/team"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a spec in a folder of its own, and a home, both without files below the specs."""
    for name in ("LAUNCH_TEAM", "SAGEMAKER_ADMIN_CONFIG_OVERRIDE", "SAGEMAKER_USER_CONFIG_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path}/xdg:/elsewhere")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(team_files, "MACHINE_FILE", tmp_path / "etc/team.yaml")
    write(tmp_path / "project/jobs/job.yaml", SPEC)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def problems(**values: Any) -> list[str]:
    """Return the problems of the spec with some values, by place and code."""
    with pytest.raises(SpecError) as raised:
        launcher.plan("jobs/job.yaml", set=values)
    return [f"{str(each.location).partition(':')[0]} [{each.code}]" for each in raised.value.problems]


def test_defaults_and_locked_values_are_below_the_spec(project: Path) -> None:
    file = write(project / ".launch.yaml", TEAM)
    plan = launcher.plan("jobs/job.yaml", set=MET)
    assert plan.spec.team.files == (str(file),)
    assert plan.request["RoleArn"] == ROLE
    assert plan.request["VpcConfig"] == {"Subnets": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
    assert {each["Key"]: each["Value"] for each in plan.request["Tags"]} == {
        "cost-center": "4711",
        "owner": "all",
        "team": "vision",
    }
    assert "${OWNER:-all}" in str(plan.masked_request()["Tags"])
    bare = launcher.plan("jobs/job.yaml", set={**MET, "tags.cost-center": None, "role_arn": ROLE + "-2", "max_cost": 5})
    assert [each["Key"] for each in bare.request["Tags"]] == ["owner", "team"]
    assert bare.request["RoleArn"] == ROLE + "-2"


def test_request_cannot_lift_a_key_of_ours_that_sets_a_member(project: Path) -> None:
    write(
        project / ".launch.yaml",
        f"defaults: {{role_arn: '{ROLE}'}}\nlocked: {{bucket_owners: {{bucket: '123456789012'}}}}",
    )
    code = {"code.entry_point": "entrypoints/read_channels.py"}

    def variables(request: dict[str, Any]) -> Any:
        return launcher.plan("jobs/job.yaml", set={**code, "request": request}).request["Environment"]

    assert {"A", "LAUNCHER_BUCKET_OWNERS_0"} <= variables({"Environment": {"A": "b"}}).keys()
    for over in (None, {"LAUNCHER_BUCKET_OWNERS_0": None}):
        with pytest.raises(SpecError, match=r"--set request.* \[team-locked\]"):
            variables({"Environment": over})


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"vpc_config": None}, "--set vpc_config [team-locked]"),
        ({"vpc_config.subnets": ["subnet-0b1b2c3d"]}, "--set vpc_config.subnets [team-locked]"),
        ({"max_cost": 99999}, "--set max_cost [team-locked]"),
        ({"max_cost": None}, "--set max_cost [team-locked]"),
        ({"tags": None}, "--set tags [team-required]"),
        ({"tags.team": None}, "--set tags.team [team-required]"),
        ({"tags.team": "visions"}, "--set tags.team [team-required]"),
        ({"tags.team": ""}, "--set tags.team [team-required]"),
        ({"output_data_config.kms_key_id": None}, "--set output_data_config.kms_key_id [team-required]"),
        ({"request": {"VpcConfig": None}}, "--set request [team-locked]"),
        ({"request": {"OutputDataConfig": {"KmsKeyId": None}}}, "--set request [team-required]"),
        ({"request": {"Tags": [{"Key": "team", "Value": "vision"}]}}, "--set request [team-required]"),
        ({"role_arn": "arn:aws:iam::210987654321:role/x"}, "--set role_arn [team-account]"),
        ({"region": "eu-west-1"}, "--set region [team-region]"),
    ],
)
def test_demands_are_not_lifted(project: Path, values: dict[str, Any], place: str) -> None:
    write(project / ".launch.yaml", TEAM)
    write(project / "jobs/job.yaml", SPEC + "tags: {team: vision}\n")
    found = {each for each in problems(**{**MET, **values}) if "[team-" in each}
    assert found == {place}


def test_region_that_is_not_allowed_is_named_once(project: Path) -> None:
    file = write(project / ".launch.yaml", TEAM)
    write(project / "jobs/job.yaml", SPEC + "tags: {team: vision}\n")
    done = launch("jobs/job.yaml", "--dry-run", "--set", "region=eu-west-1")
    assert f"--set region: eu-west-1 is not one of those that the team's file allows ({file}:" in done.stderr


def test_violation_names_both_lines_on_the_command_line_and_whatever_the_option(project: Path) -> None:
    file = write(project / ".launch.yaml", TEAM)
    write(project / "jobs/job.yaml", SPEC + "tags: {team: vision}\nvpc_config: null\n")
    done = launch("jobs/job.yaml", "--dry-run", "--yes", "--ignore", "spot-without-checkpoints")
    assert done.returncode == 2
    assert f"layers    {file}\n" in done.stderr
    assert re.search(
        rf"error: jobs/job.yaml:8:1: vpc_config.subnets: is locked .*\({file}:5\).* \[team-locked\]", done.stderr
    )
    # A key that is missing is so in the spec, although the team's file has the mapping around it.
    write(project / "jobs/job.yaml", SPEC)
    done = launch("jobs/job.yaml", "--dry-run")
    assert (
        f"jobs/job.yaml:1:1: tags.team: is required by the team's file ({file}:8) to match 'vision|audio'; write it"
        in done.stderr
    )
    assert launch("jobs/job.yaml", "--local", "--yes").returncode == 2
    done = launch("jobs/job.yaml", "--dry-run", "--ignore", "team-required")
    assert "errors cannot be ignored" in done.stderr
    assert "[team-required]" in done.stderr
    write(project / ".launch.yaml", r"required: {resource_config.instance_type: ml\.g5\..*}")
    assert r"does not match 'ml\.g5\..*', which" in launch("jobs/job.yaml", "--dry-run").stderr


def test_specs_of_commands_and_of_python_take_the_layers(project: Path) -> None:
    write(project / ".launch.yaml", TEAM)
    met = [word for path, value in MET.items() for word in ("--set", f"{path}={value}")]
    for command in (["reshard", "s3://mine/a/", "s3://mine/b/"], ["measure", "s3://mine/a/"]):
        refused = launch(*command, "--dry-run")
        assert (refused.returncode, "[team-required]" in refused.stderr) == (2, True)
        shown = launch(*command, "--dry-run", *met)
        assert (shown.returncode, ROLE in shown.stdout, "subnet-0a1b2c3d" in shown.stdout) == (0, True, True), (
            shown.stderr
        )
    with pytest.raises(SpecError, match="team-required"):
        estimator_inputs("jobs/job.yaml")
    with pytest.raises(SpecError, match=r"<spec>: tags\.team: is required"):
        launcher.plan({"base_name": "x"})
    # A spec parsed without the environment has no defaults, but what the team demands holds.
    with pytest.raises(SpecError, match="team-locked"):
        launcher.plan(launcher.parse_spec(SPEC, "job.yaml"))


@pytest.mark.linux
def test_order_is_sdk_then_machine_then_team(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = "SageMaker: {{TrainingJob: {{RoleArn: '{}', Tags: [{{Key: {}, Value: x}}]}}}}"
    admin = write(tmp_path / "xdg/sagemaker/config.yaml", sdk.format("arn:aws:iam::123456789012:role/admin", "admin"))
    user = write(tmp_path / "home/.config/sagemaker/config.yaml", sdk.format(ROLE + "-user", "user"))
    assert launcher.plan("jobs/job.yaml").request["RoleArn"] == ROLE + "-user"
    machine = write(team_files.MACHINE_FILE, f"defaults: {{role_arn: '{ROLE}-machine'}}\nlocked: {{max_cost: 50}}")
    assert launcher.plan("jobs/job.yaml").request["RoleArn"] == ROLE + "-machine"
    near = write(project / "jobs/.launch.yaml", f"defaults: {{role_arn: '{ROLE}'}}\nlocked: {{max_cost: 80}}")
    write(project / ".launch.yaml", "defaults: {role_arn: not-read}")
    with pytest.raises(SpecError) as raised:
        launcher.plan("jobs/job.yaml")
    # The machine's file holds for the team's, too.
    assert [str(each).partition(" by ")[0] for each in raised.value.problems] == [
        f"{near}:2:10: max_cost: may be at most 50"
    ]
    plan = launcher.plan("jobs/job.yaml", set={"max_cost": 50})
    assert plan.spec.team.files == tuple(map(str, (admin, user, machine, near)))
    assert (plan.request["RoleArn"], {each["Key"] for each in plan.request["Tags"]}) == (ROLE, {"admin", "user"})
    other = write(tmp_path / "other.yaml", f"defaults: {{role_arn: '{ROLE}-other'}}")
    monkeypatch.setenv("LAUNCH_TEAM", str(other))
    assert launcher.plan("jobs/job.yaml").request["RoleArn"] == ROLE + "-other"
    monkeypatch.setenv("LAUNCH_TEAM", "")
    assert launcher.plan("jobs/job.yaml").spec.team.files == tuple(map(str, (admin, user, machine)))


def test_sdk_configuration_gives_members_of_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The members are those of the SDK's schema of a training job; its other sections are not read."""
    text = f"""\
SchemaVersion: '1.0'
SageMaker:
  PythonSDK: {{Modules: {{RemoteFunction: {{InstanceType: ml.m5.large}}}}}}
  TrainingJob:
    EnableInterContainerTrafficEncryption: true
    Environment: {{SOME_Name: a}}
    OutputDataConfig: {{KmsKeyId: alias/k}}
    ResourceConfig: {{VolumeKmsKeyId: alias/v}}
    ProfilerConfig: {{DisableProfiler: true}}
    RoleArn: {ROLE}
    VpcConfig: {{SecurityGroupIds: [sg-0a1b2c3d], Subnets: [subnet-0a1b2c3d]}}
    Tags: [{{Key: a, Value: b}}]
"""
    folder = write(tmp_path / "sdk/config.yaml", text).parent
    monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", str(folder))
    monkeypatch.setenv("SAGEMAKER_ADMIN_CONFIG_OVERRIDE", "s3://admins/config.yaml")
    plan = launcher.plan("jobs/job.yaml")
    unread = [str(each) for each in plan.warnings if each.code == "sdk-config-unread"]
    assert [each.partition(":")[0] for each in unread] == ["SAGEMAKER_ADMIN_CONFIG_OVERRIDE"]
    request = plan.request
    assert request["EnableInterContainerTrafficEncryption"] is True
    assert request["Environment"] == {"SOME_Name": "a"}
    assert request["OutputDataConfig"] == {"KmsKeyId": "alias/k", "S3OutputPath": "s3://mine/out/"}
    assert request["ResourceConfig"]["VolumeKmsKeyId"] == "alias/v"
    assert request["ProfilerConfig"] == {"DisableProfiler": True}
    assert request["VpcConfig"]["Subnets"] == ["subnet-0a1b2c3d"]
    assert request["Tags"] == [{"Key": "a", "Value": "b"}]
    write(folder / "config.yaml", text.replace("RoleArn", "RoleArm"))
    with pytest.raises(SpecError, match=rf"{folder}/config.yaml:10:5: role_arm: is not a key"):
        launcher.plan("jobs/job.yaml")
    monkeypatch.setenv("SAGEMAKER_USER_CONFIG_OVERRIDE", str(tmp_path / "none.yaml"))
    with pytest.raises(InputError, match=r"none.yaml, which SAGEMAKER_USER_CONFIG_OVERRIDE names: cannot be read"):
        launcher.plan("jobs/job.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("default: {}", r":1:1: default: is not a key of a team's file; did you mean defaults\? \[team-file\]"),
        ("- x", r":1:1: is not a mapping"),
        ("defaults: [role_arn]", r":1:1: defaults: must be a mapping"),
        ("accounts: [12]", r":1:12: accounts\[0\]: is '12', but the 12 digits"),
        ("regions: eu-west-1", r":1:1: regions: must be a list"),
        ("defaults:\n  code: {directory: x}", r":2:3: defaults.code: describes one job"),
        ("locked:\n  extends: x.yaml", r":2:3: locked.extends: describes one job"),
        ("defaults:\n  role: x", r":2:3: role: is not a key of a spec"),
        ("locked:\n  max_cost: much", r":2:3: max_cost: is 'much', but a number of US dollars"),
        ("locked: {region: '${NOT_SET}'}", r":1:10: region: names the variable NOT_SET, which is not set"),
        ("required:\n  vpc_confg:", r":2:3: vpc_confg: is not a key of a spec; did you mean vpc_config\?"),
        ("required: {tags.team: '['}", r":1:12: .*is not a regular expression"),
        ("required: {'a..b': x}", r":1:12: .*is not the path of a key"),
        ("locked: {max_cost: 1, max_cost: 2}", r"max_cost: is written twice"),
        ("a: [", r":1:\d+: "),
    ],
)
def test_wrong_team_file_is_an_error_at_its_line(project: Path, text: str, expected: str) -> None:
    file = write(project / ".launch.yaml", text)
    with pytest.raises(SpecError, match=f"^{file}.*{expected[1:] if expected[0] == '^' else expected}"):
        launcher.plan("jobs/job.yaml")


@pytest.mark.parametrize("text", ["[default]\nkey = hidden-4711\n", "key: hidden-4711\n", "hidden-4711"])
def test_lines_of_another_file_are_not_quoted(project: Path, text: str) -> None:
    """A wrong LAUNCH_TEAM may name a file of keys."""
    write(project / ".launch.yaml", text)
    with pytest.raises(SpecError) as caught:
        launcher.plan("jobs/job.yaml")
    assert not any(each.location and "4711" in each.location.quoted() for each in caught.value.problems)


def test_role_of_another_account_in_the_request_is_refused(project: Path) -> None:
    write(project / ".launch.yaml", "accounts: ['123456789012']")
    with pytest.raises(SpecError, match=r"request\.RoleArn: account 999999999999 is not one of those"):
        launcher.plan(
            "jobs/job.yaml", set={"role_arn": ROLE, "request.RoleArn": ROLE.replace("123456789012", "9" * 12)}
        )


def test_empty_team_file_demands_nothing(project: Path) -> None:
    write(project / ".launch.yaml", "# nothing yet\n")
    assert launcher.plan("jobs/job.yaml", set={"role_arn": ROLE}).spec.team.files == ()


def test_file_of_another_user_above_the_spec_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could name that user's role and bucket. One that LAUNCH_TEAM names is the user's own choice."""
    file = write(project / ".launch.yaml", f"defaults: {{role_arn: '{ROLE}'}}")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if file.stat().st_uid == 0:
        os.chown(file, 4242, -1)
    with pytest.raises(InputError, match=rf"{file}: belongs to another user .*set LAUNCH_TEAM={file}; to use none"):
        launcher.plan("jobs/job.yaml")
    monkeypatch.setenv("LAUNCH_TEAM", str(file))
    assert launcher.plan("jobs/job.yaml").request["RoleArn"] == ROLE


@pytest.mark.parametrize(
    "command",
    [
        ("measure", "jobs/job.yaml"),
        ("measure", "s3://mine/train/"),
        ("reshard", "s3://mine/train/", "s3://mine/new/", "--hosts=1"),
    ],
)
def test_measure_and_reshard_keep_what_the_team_locks(command: tuple[str, ...], project: Path) -> None:
    locked = {
        "checkpoint_config": {"s3_uri": "s3://mine/saved/"},
        "output_data_config": {"s3_output_path": "s3://team/out/"},
        "role_arn": ROLE,
    }
    file = write(project / ".launch.yaml", json.dumps({"locked": locked}))
    write(project / "jobs/job.yaml", SPEC.replace("s3://mine/out/", "s3://team/out/"))
    done = launch(*command, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    request = json.loads(done.stdout)
    assert request["CheckpointConfig"] == {"S3Uri": "s3://mine/saved/"}
    assert request["OutputDataConfig"]["S3OutputPath"] == "s3://team/out/"
    write(file, "locked: {resource_config: {instance_count: 3}}")
    done = launch(*command, "--dry-run")
    assert f"error: launch {command[0]}: resource_config.instance_count: is locked by" in done.stderr


def test_children_of_tests_do_not_read_the_team_file_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "of-the-machine.yaml", "required: {max_cost: }")
    monkeypatch.setenv("HIDDEN_FILE", str(file))
    code = "from launcher.parsing import team_files as t; "
    code += f"t.MACHINE_FILE = t.Path({str(file)!r}); print(t.read_team('<text>', {{}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "required=()" in done.stdout
