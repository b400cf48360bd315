"""Sweeps by --matrix: names by value, each job created once, at most some at a time, and a table with the worst exit code."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launcher
from aws_stand_in import StandIn
from forked import LAUNCHER, Forked
from launcher.commands.sweep import combinations
from launcher.errors import InputError, SpecError
from launcher.parsing.layers import Assignment
from launcher.rules.examples import laid_over_base
from launcher.sweeps import assignments, member_name, members
from launching import launch
from patience import PATIENCE, wait_for

SWEEP = ("job.yaml", "--no-check", "--matrix", "lr=1e-3,1e-4", "--matrix", "batch=32,64")
NAMES = [f"digits-1-lr-{lr}-batch-{batch}" for lr in ("1e-3", "1e-4") for batch in (32, 64)]


@pytest.fixture
def completing(aws: StandIn, submittable: None) -> StandIn:
    """Let each job complete as soon as it is created."""
    done = {"status": "Completed", "after": 0, "metrics": {"loss": 0.25}}
    aws.script({"status": "Training", "after": 0}, done)
    return aws


def created(aws: StandIn) -> list[str]:
    return [request["TrainingJobName"] for request in aws.requests()]


@pytest.mark.parametrize("value", ["1e-3", "-1", "0.5", "a b", "x" * 80, "a,b", "ü", "1_0"])
def test_names_are_valid_stable_and_differ_by_value(value: str) -> None:
    name = member_name("digits", {"lr": value})
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", name)
    assert name == member_name("digits", {"lr": value})
    assert name not in {member_name("digits", {"lr": other}) for other in ("1", "1-0", "a-b", "x" * 79, "u")}


def test_keys_are_hyperparameters_unless_they_are_keys_of_the_spec() -> None:
    values = {"lr": "1e-3", "resource_config.instance_type": "ml.g5.xlarge", "region": "b", '"a.b=c"': "1"}
    paths = [
        *("hyperparameters.lr=1e-3", "resource_config.instance_type=ml.g5.xlarge", "region=b"),
        'hyperparameters."a.b=c"=1',
    ]
    assert combinations([f"{key}={value}" for key, value in values.items()]) == [values]
    assert [f"{each.path}={each.value}" for each in assignments(values)] == paths
    with pytest.raises(SpecError, match=r"^--matrix epochs\[\]: is not path=value"):  # not --set, which no one wrote
        launcher.parse_spec({"base_name": "b"}, sets=assignments({"epochs[]": "1"}))
    with pytest.raises(InputError, match=r"^--matrix: lr and hyperparameters\.lr are the same key; write one of them"):
        assignments({"lr": "1", "epochs": "2", "hyperparameters.lr": "3"})
    for key in ("base_name", "training_job_name"):
        with pytest.raises(InputError, match=f"^--matrix: {key} cannot vary: .*; name the sweep by --name"):
            assignments({"lr": "1", key: "a"})


def test_values_of_the_function_are_data_and_those_of_the_option_are_read_as_yaml() -> None:
    values = {"a": "null", "resource_config.instance_count": np.int64(2)}
    spec = launcher.parse_spec(laid_over_base(""), sets=assignments(values))
    assert (spec.hyperparameters, spec.resource_config.instance_count) == ({"a": "null"}, 2)
    with pytest.raises(SpecError, match=r"--matrix a: hyperparameters\.a: has no value"):
        launcher.parse_spec(laid_over_base(""), sets=assignments(*combinations(["a=null"])))


class Optimizer(str, Enum):
    ADAM = "adam"


def test_members_of_text_enums_are_their_texts() -> None:
    spec = launcher.parse_spec(laid_over_base(""), sets=assignments({"optimizer": Optimizer.ADAM}))
    assert spec.hyperparameters == {"optimizer": "adam"}


@pytest.mark.parametrize("value", ["a\x01", "\udcff"])
def test_text_with_a_refused_character_is_refused(value: str) -> None:
    with pytest.raises(SpecError, match=r"--matrix a: holds the character U\+"):
        launcher.parse_spec(laid_over_base(""), sets=assignments({"a": value}))


def test_spec_is_read_once_for_each_job() -> None:
    asked = []

    def read(sets: Sequence[Assignment]) -> launcher.JobSpec:
        asked.append(sets)
        return launcher.parse_spec(laid_over_base(""), sets=sets)

    assert [job.name for job in members(read, [{"lr": "1"}, {"lr": "2"}], "s")] == ["s-lr-1", "s-lr-2"]
    assert len(asked) == 2


@pytest.mark.parametrize("text", ["lr", "lr=", "=1", "lr=1,,2", "batch=64"])
def test_wrong_matrix_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=rf"--matrix {text}: expected KEY=VALUE,VALUE, .* and each key once"):
        combinations(["batch=32", text])


@pytest.mark.usefixtures("quick_sleep")
def test_each_combination_is_one_job_with_tag_values_and_row(completing: StandIn) -> None:
    done = launch(*SWEEP)
    assert (done.returncode, created(completing)) == (0, NAMES), done.stderr
    for request, (lr, batch) in zip(completing.requests(), product(("1e-3", "1e-4"), ("32", "64")), strict=True):
        assert request["HyperParameters"] == {"epochs": "5", "lr": lr, "batch": batch}
        assert {"Key": "launch:sweep", "Value": "digits-1"} in request["Tags"]
    assert re.search(r"^sweep     4 jobs\ncost      at most \$\d", done.stderr, re.MULTILINE)
    titles, *rows = done.stdout.splitlines()
    assert titles.split() == ["name", "status", "trained", "lr", "batch", "loss"]
    assert [row.split()[0] for row in rows] == NAMES
    assert {row.index("Completed") for row in rows} == {titles.index("status")}
    again = launch(*SWEEP, "--json")
    assert [each["Matrix"]["lr"] for each in json.loads(again.stdout)] == ["1e-3", "1e-3", "1e-4", "1e-4"]
    assert len(completing.calls("CreateTrainingJob")) == 4  # the second command has created none
    assert len(completing.calls("PutObject")) == 2  # the code, once


@pytest.mark.usefixtures("quick_sleep")
def test_sweep_function_creates_each_job_once_and_returns_a_row_for_it(completing: StandIn) -> None:
    values = {"lr": [1e-5, "1e-3"], "deep": [True]}
    rows = launcher.sweep("job.yaml", values)
    sent = [request["HyperParameters"] for request in completing.requests()]
    assert sent == [{"epochs": "5", "lr": lr, "deep": "true"} for lr in ("1e-05", "1e-3")]
    assert [row["TrainingJobName"] for row in rows] == created(completing)
    assert [row["Matrix"] for row in rows] == [{"lr": lr, "deep": True} for lr in (1e-5, "1e-3")]
    assert [(row["TrainingJobStatus"], row["Metrics"]) for row in rows] == [("Completed", {"loss": 0.25})] * 2
    launcher.sweep("job.yaml", values)
    assert len(created(completing)) == 2
    refused: tuple[dict[str, Any], ...] = ({}, {"lr": "1e-3"}, {"lr": []})
    for wrong in refused:
        with pytest.raises(TypeError, match="lists of values"):
            launcher.sweep("job.yaml", wrong)


@pytest.mark.usefixtures("quick_sleep")
def test_throttled_look_at_an_ended_job_is_repeated(completing: StandIn) -> None:
    completing.fault("throttle", "sagemaker:ListTags", count=6)  # the attempts of one call
    done = launch(*SWEEP, "--json")
    assert (done.returncode, len(json.loads(done.stdout))) == (0, 4), done.stderr
    assert "sagemaker:ListTags: Rate exceeded [ThrottlingException]; trying again until it works" in done.stderr


@pytest.mark.usefixtures("quick_sleep")
def test_changed_spec_does_not_pass_for_the_same_sweep(completing: StandIn) -> None:
    assert launch(*SWEEP).returncode == 0
    changed = launch(*SWEEP, "--set", "hyperparameters.epochs=6")
    assert changed.returncode == 3
    assert f"a training job '{NAMES[0]}' exists already" in changed.stderr


def test_ctrl_c_and_restart_create_each_job_once_and_at_most_some_at_a_time(aws: StandIn, submittable: None) -> None:
    command = ["-m", "launcher", *SWEEP, "--max-parallel", "2"]
    with Forked(LAUNCHER, command) as process:
        wait_for(lambda: len(created(aws)) == 2)
        wait_for(lambda: len(aws.calls("DescribeTrainingJob")) >= 4)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, created(aws)) == (130, NAMES[:2])
    assert "2 jobs continue, 0 have ended, 2 do not exist yet; the same command resumes" in err
    for name in NAMES[:2]:
        aws.job(name, "Completed")
    aws.script({"status": "Failed", "after": 0}, name=NAMES[2])
    aws.script({"status": "Completed", "after": 0}, name=NAMES[3])
    done = launch(*SWEEP, "--max-parallel", "2")
    assert (done.returncode, created(aws)) == (4, NAMES)
    assert "Failed" in done.stdout


def test_ctrl_c_during_a_creation_counts_all_jobs(aws: StandIn, submittable: None) -> None:
    aws.fault("hang", "sagemaker:CreateTrainingJob", nth=2, seconds=2 * PATIENCE)
    with Forked(LAUNCHER, ["-m", "launcher", *SWEEP]) as process:
        wait_for(lambda: len(aws.calls("CreateTrainingJob")) == 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    aws.clear_faults()
    assert "1 jobs continue, 0 have ended, 3 do not exist yet" in err


@pytest.mark.usefixtures("quick_sleep")
def test_refusal_ends_the_creation_of_further_jobs(completing: StandIn) -> None:
    completing.refuse("sagemaker:CreateTrainingJob", "ResourceLimitExceeded", "The account-level service limit", nth=2)
    done = launch(*SWEEP)
    assert (done.returncode, created(completing)) == (3, NAMES[:1])
    assert done.stdout.count("not created") == 3
    assert re.search(rf"^error: {NAMES[1]}: .*; no more jobs are created$", done.stderr, re.MULTILINE)


@pytest.mark.usefixtures("quick_sleep")
def test_sweep_counts_all_jobs_against_max_cost_and_refuses_what_it_cannot_do(completing: StandIn) -> None:
    done = launch(*SWEEP, "--set", "max_cost=0.2")
    assert (done.returncode, created(completing)) == (3, [])
    assert "in each of 4 runs" in done.stderr
    assert launch("job.yaml", "--max-parallel", "2").returncode == 2
    for option in ("--follow", "--stop-on-exit", "--on-end=true"):
        assert f"--matrix and {option.partition('=')[0]} exclude each other" in launch(*SWEEP, option).stderr
    assert launch("-", "--matrix", "lr=1").returncode == 2


@pytest.mark.usefixtures("quick_sleep")
def test_sweep_on_a_queue_is_followed_to_the_end_of_its_service_jobs(aws: StandIn, submittable: None) -> None:
    aws.queue("gpu")
    command = ["-m", "launcher", "job.yaml", "--no-check", "--queue", "gpu", "--matrix", "lr=1,2"]
    with Forked(LAUNCHER, command) as process:
        wait_for(lambda: len(aws.calls("DescribeServiceJob")) >= 2)
        for lr in (1, 2):
            aws.job(aws.start_attempt(f"digits-1-lr-{lr}"), "Completed")
            aws.service_job(f"digits-1-lr-{lr}", "SUCCEEDED")
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.count("Completed")) == (0, 2), err
    assert (
        launch("job.yaml", "--queue", "gpu", "--matrix", "lr=1,2", "--max-parallel", "1", "--no-check").returncode == 2
    )


def test_local_sweep_runs_each_once(submittable: None, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train/1.txt").write_text("1")
    command = ("job.yaml", "--local", "--channel", "train=train", "--matrix", "lr=1,2", "--no-namespaces")
    with Forked(LAUNCHER, ["-m", "launcher", *command]) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.count("Completed")) == (0, 2), err
    (tmp_path / ".launch/digits-1-lr-2/result.json").unlink()  # as if the run had been killed
    again = launch(*command)
    assert (again.returncode, again.stderr.count("is not repeated")) == (0, 1), again.stderr
    assert "digits-1-lr-2, which was interrupted" in again.stderr
    for local in (["--local"], []):
        assert "lr:" in launch("compare", "digits-1", *local).stdout


def test_values_of_one_name_are_refused(submittable: None) -> None:
    done = launch("job.yaml", "--dry-run", "--matrix", "lr=1,1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "two jobs would be named digits-1-lr-1; write values that differ" in done.stderr


def test_requests_of_a_sweep_are_one_list(submittable: None) -> None:
    shown = json.loads(launch("job.yaml", "--dry-run", "--json", "--matrix", "lr=1,2").stdout)
    assert [each["HyperParameters"]["lr"] for each in shown] == ["1", "2"]
