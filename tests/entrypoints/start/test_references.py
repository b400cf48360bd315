"""Settings that name secrets: the script gets the values, and nothing else has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aws_stand_in import StandIn
from boot_container import SHOW, Container, shown
from sagemaker_channels.start.references import mask_of

VALUE = "hush-5f1c-hush"
NAMED = {"HF_TOKEN": "${secretsmanager:prod/hf}", "URL": "postgres://me:${secretsmanager:prod/db#password}@db/x"}


@pytest.fixture
def account(aws: StandIn) -> StandIn:
    aws.client("secretsmanager").create_secret(Name="prod/hf", SecretString=VALUE)
    aws.client("secretsmanager").create_secret(Name="prod/db", SecretString='{"password": "p-4711"}')
    aws.client("ssm").put_parameter(Name="/team/key", Value="k-4711", Type="SecureString")
    return aws


def run(folder: Path, aws: StandIn, script: str = SHOW, **settings: str) -> tuple[Container, Any]:
    parameters = {"api-key": "${ssm:/team/key}", "n": "3"}
    container = Container(folder / "ml", {"train.py": script}, hyperparameters=parameters)
    return container, container.run("train.py", **aws.environ, **settings)


def test_script_gets_the_values_in_variables_and_arguments(account: StandIn, tmp_path: Path) -> None:
    container, finished = run(tmp_path, account, **NAMED)
    arguments, environ, _ = shown(finished)
    assert (environ["HF_TOKEN"], environ["URL"]) == (VALUE, "postgres://me:p-4711@db/x")
    assert arguments[1:] == ["--api-key", "k-4711", "-n", "3"]
    assert json.loads(environ["SM_HPS"]) == {"api-key": "k-4711", "n": 3}
    kept = b"".join(file.read_bytes() for file in container.root.rglob("*") if file.is_file())
    assert not [value for value in (VALUE, "p-4711", "k-4711") if value.encode() in kept]


def test_failure_reason_has_the_reference_in_place_of_the_value(account: StandIn, tmp_path: Path) -> None:
    script = "import os\nraise ValueError('wrong token ' + os.environ['HF_TOKEN'])\n"
    container, finished = run(tmp_path, account, script, **NAMED)
    assert finished.returncode == 1
    assert str(container.failure).startswith("ValueError: wrong token ${secretsmanager:prod/hf}\n")
    assert VALUE not in str(container.failure)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("${secretsmanager:prod/nowhere}", "does not exist in us-east-1; "),
        ("${ssm:/nowhere}", "does not exist in us-east-1; "),
        ("${secretsmanager:prod/hf#password}", "the secret is not JSON with a key 'password'; "),
        ("${secretsmanager:prod/db#user}", "the secret is not JSON with a key 'user'; "),
    ],
)
def test_secret_that_cannot_be_read_ends_the_job(reference: str, reason: str, account: StandIn, tmp_path: Path) -> None:
    container, finished = run(tmp_path, account, HF_TOKEN=reference)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert str(container.failure).startswith(f"{reference}: {reason}")
    assert VALUE not in finished.stderr


def test_denied_secret_names_the_permission(account: StandIn, tmp_path: Path) -> None:
    account.deny("secretsmanager:GetSecretValue")
    container, _ = run(tmp_path, account, **NAMED)
    assert "the job's role is not allowed secretsmanager:GetSecretValue; allow it" in str(container.failure)


def test_image_without_boto3_ends_the_job(account: StandIn, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/boto3.py").write_text("raise ImportError\n")
    container, _ = run(tmp_path, account, **NAMED, PYTHONPATH=str(tmp_path / "hidden"))
    assert "the image has no boto3, which reads it; use an image that has it" in str(container.failure)


@pytest.mark.parametrize("form", ["{}", "{!r}"])
@pytest.mark.parametrize(
    "secret", ["two\n4711-lines", 'it\'s "4711-quoted"', '{"password": "p-4711", "hosts": ["h-4711"]}']
)
def test_secret_and_its_parts_are_hidden_however_they_are_quoted(secret: str, form: str) -> None:
    parts = ["p-4711", "h-4711"] if secret[0] == "{" else secret.split("\n")
    for part in (secret, *parts):
        assert "4711" not in mask_of({"${ssm:/a}": secret}).apply(f"x{form.format(part)}y")
