"""The Python API: what the README's recipes (test_readme_recipes.py) do not show of it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import launcher
from launcher.checks.examples import BASE


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
    text = launcher.LocalOptions.__doc__ or ""
    assert [each.name for each in fields(launcher.LocalOptions) if f"\n        {each.name}: " not in text] == []


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        launcher.plans  # noqa: B018


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
    """Preflight's codes are known, although planning never imports preflight; `ignore=` has the place of `--ignore`."""
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


def test_run_local_returns_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("import sys; sys.exit(3)\n")
    (tmp_path / "job.yaml").write_text(BASE + "code: {directory: src, entry_point: train.py}\n")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a").touch()
    monkeypatch.chdir(tmp_path)
    program = """
import launcher
options = launcher.LocalOptions(channels=("train=./images",), no_namespaces=True)
raise SystemExit(launcher.run_local(launcher.plan("job.yaml", name="one"), options=options) + 40)
"""
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 44
