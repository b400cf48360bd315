"""The Python API: what the documentation's recipes (test_doc_recipes.py) do not show of it."""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import launcher
from aws_stand_in import StandIn
from launcher.rules.examples import BASE


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, launcher; print(*(name for name in ('pydantic', 'yaml', 'boto3', 'click') if name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("name", launcher.__all__)
def test_each_name_is_found_and_hides_no_module(name: str) -> None:
    assert getattr(launcher, name) is not None
    assert importlib.util.find_spec(f"launcher.{name}") is None


def test_dir_lists_the_public_names() -> None:
    assert {*launcher.__all__, "__version__"} <= {*dir(launcher)}


def test_every_option_of_a_local_run_is_documented() -> None:
    text = inspect.getdoc(launcher.LocalOptions) or ""
    assert [each.name for each in fields(launcher.LocalOptions) if f"\n    {each.name}: " not in text] == []


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        launcher.plans  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("name", ["check", "run_local", "submit", "upload_code"])
def test_spec_in_place_of_its_plan_is_an_error_with_the_right_call(name: str) -> None:
    with pytest.raises(TypeError, match=r"expected a plan, not str: pass what launcher\.plan returns for it"):
        getattr(launcher, name)("job.yaml")


def test_set_values_are_sent_as_written() -> None:
    settings = {"a": "1e-3", "b": 'x "y": #z', "c": True, "d": 7, "e": [1, "é"], "f": "${HOME}x"}
    plan = launcher.plan(
        {
            "training_job_name": "one",
            "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1",
            "role_arn": "arn:aws:iam::123456789012:role/trainer",
            "resource_config": {"instance_type": "ml.m5.large", "instance_count": 1, "volume_size_in_gb": 10},
            "stopping_condition": {"max_runtime_in_seconds": 3600},
            "output_data_config": {"s3_output_path": "s3://bucket/out/"},
            "hyperparameters": {"z": 1},
        },
        set={"resource_config.instance_count": 2, **{f"hyperparameters.{key}": each for key, each in settings.items()}},
    )
    sent = {"z": "1", "a": "1e-3", "b": 'x "y": #z', "c": "true", "d": "7", "e": '[1, "é"]'}
    assert {**plan.request["HyperParameters"], "f": None} == {**sent, "f": None}
    assert plan.request["HyperParameters"]["f"].startswith("/")
    assert plan.request["ResourceConfig"]["InstanceCount"] == 2


def test_mapping_with_a_problem_names_the_key() -> None:
    with pytest.raises(launcher.SpecError, match="nme: is not a key of a spec"):
        launcher.plan({"nme": "x"})


def test_unknown_code_to_ignore_is_one_of_the_specs_problems(tmp_path: Path) -> None:
    """The codes of account checks are known, although planning never imports them; `ignore=` has the place of `--ignore`."""
    job = tmp_path / "job.yaml"
    job.write_text(BASE.replace("instance_count: 1", "instance_count: 0") + "ignore: [bucket-missing, bucket-mising]\n")
    with pytest.raises(launcher.SpecError) as caught:
        launcher.plan(job, ignore=("role-missing", "prefix-emty"))
    assert [(problem.code, problem.location and problem.location.line) for problem in caught.value.problems] == [
        ("ignore-code", 1),
        ("instance-count-positive", 4),
        ("ignore-code", 8),
    ]
    assert "'bucket-mising' is not a code; did you mean bucket-missing?" in str(caught.value)


def test_set_on_a_loaded_spec_is_refused() -> None:
    with pytest.raises(TypeError, match="pass it to load"):
        launcher.plan(launcher.parse_spec(BASE), set={"base_name": "x"})


def test_run_local_returns_the_outcome_that_follow_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(
        "import os, sys\n"
        "open(os.environ['SM_MODEL_DIR'] + '/model.pt', 'w').close()\n"
        "print('loss=0.5')\n"
        "sys.exit(3 if '--fail' in sys.argv else 0)\n"
    )
    metrics = 'metric_definitions: [{name: loss, regex: "loss=([0-9.]+)"}]\n'
    (tmp_path / "job.yaml").write_text(BASE + metrics + "code: {directory: src, entry_point: train.py}\n")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a").touch()
    monkeypatch.chdir(tmp_path)
    program = """
import json, launcher
options = launcher.LocalOptions(channels=("train=./images",), no_namespaces=True)
good = launcher.run_local(launcher.plan("job.yaml", name="one"), options=options, raise_on_failure=True)
failing = [launcher.plan("job.yaml", name=name, set={"hyperparameters.fail": True}) for name in ("two", "three")]
bad = launcher.run_local(failing[0], options=options)
try:
    launcher.run_local(failing[1], options=options, raise_on_failure=True)
except launcher.LaunchError as error:
    raised = error
found = [[each.name, each.status, each.exit_code, str(each.folder), each.model, dict(each.metrics)] for each in (good, bad)]
print(json.dumps([*found, bad.reason, repr(good), repr(bad), type(raised).__name__, str(raised), bad.as_data()]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    good, bad, reason, good_repr, bad_repr, error, message, data = json.loads(done.stdout.splitlines()[-1])
    folder = tmp_path / ".launch"
    model = str(folder / "one/s3/bucket/out/one/output/model.tar.gz")
    assert good == ["one", "Completed", 0, str(folder / "one"), model, {"loss": 0.5}]
    assert bad == ["two", "Failed", 4, str(folder / "two"), None, {"loss": 0.5}]
    assert reason == "train.py ended with exit code 3" and data["ExitCode"] == 4
    assert good_repr == f"<Outcome of one: Completed, model {model}>"
    assert bad_repr == f"<Outcome of two: Failed: {reason.splitlines()[0]}>"
    assert (error, message) == ("TrainingFailedError", f"three: Failed: {reason.splitlines()[0]}")


def test_follow_raises_for_a_failed_job_if_asked(aws: StandIn) -> None:
    aws.client("sagemaker").create_training_job(**launcher.plan(launcher.parse_spec(BASE), name="failing").request)
    aws.script({"after": 0, "status": "Failed", "reason": "AlgorithmError: exit code 1"}, name="failing")
    assert launcher.follow("failing").reason == "AlgorithmError: exit code 1"
    with pytest.raises(launcher.LaunchError, match="failing: Failed: AlgorithmError: exit code 1") as raised:
        launcher.follow("failing", raise_on_failure=True)
    assert raised.value.exit_code == 4


def test_plan_and_spec_as_the_last_line_of_a_cell_are_one_line_without_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "a-secret-value")
    (tmp_path / "job.yaml").write_text(BASE + "environment: {HF_TOKEN: '${TOKEN}'}\n")
    spec = launcher.load(str(tmp_path / "job.yaml"))
    assert repr(launcher.plan(spec, name="one")) == "<Plan of one: 1 x ml.m5.xlarge; channels train>"
    assert repr(spec) == f"<JobSpec of {spec.base_name} in {tmp_path / 'job.yaml'}>"
