"""Settings that are or name secrets, in specs and local runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import launcher
from aws_stand_in import StandIn
from launcher.errors import SpecError
from launcher.masking import holds_secret, is_secret, without_secrets
from launcher.rules.examples import laid_over_base
from launching import launch

CODE = "code: {entry_point: entrypoints/train.py}\n"
TOKEN = "hf_" + "abcdefghij0123456789" * 2


def test_reference_stays_in_the_request_and_variables_beside_it_are_replaced() -> None:
    text = laid_over_base(CODE + 'environment: {A: "${secretsmanager:prod/hf#key}", B: "${NAME}:${ssm:/x}"}\n')
    request = launcher.plan(launcher.parse_spec(text, environ={"NAME": "me"})).request
    assert request["Environment"] == {"A": "${secretsmanager:prod/hf#key}", "B": "me:${ssm:/x}"}


@pytest.mark.parametrize(
    "text", ['tags: {a: "${ssm:/x}"}', 'hyperparameters: {a: {b: "${ssm:/x}"}}', 'base_name: "${ssm:/x}"']
)
def test_reference_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="names a secret, which only values of environment and hyperparameters can"):
        launcher.parse_spec(laid_over_base(CODE + text))


@pytest.mark.parametrize(
    "wrong", ["${secretsmanager:}", "${secretsmanager:a#}", "${ssm:a b}", "${ssm:/a#b}", "${ssm:/a"]
)
def test_wrong_reference_is_refused_with_the_right_forms(wrong: str) -> None:
    for text in (wrong, f"${{ssm:/x}}-{wrong}"):
        with pytest.raises(SpecError) as raised:
            launcher.parse_spec(laid_over_base(CODE + f"environment: {{A: '{text}'}}"))
        assert [each.message.partition(", but a secret is ${")[0] for each in raised.value.problems] == [f"has {wrong}"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is read only by jobs with code:"),
        (CODE + "enable_network_isolation: true\n", "cannot be read with enable_network_isolation"),
        ("code: {entry_point: entrypoints/train.py, delivery: submit_directory}\n", "if the toolkit starts the code"),
    ],
)
def test_reference_that_nothing_would_read_is_an_error(text: str, reason: str) -> None:
    spec = launcher.parse_spec(laid_over_base(text + 'environment: {A: "${ssm:/x}"}\n'))
    with pytest.raises(SpecError, match=reason) as caught:
        launcher.plan(spec)
    assert "secret-not-readable" in [problem.code for problem in caught.value.problems]


SURE = {
    "HF_TOKEN": TOKEN,
    "note": f"use {TOKEN}",
    "DB_PASSWORD": "hunter2",
    "url": "postgres://me:hush@db/x",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
}
NOT_SURE = {
    "eos_token": "<eos>",
    "image_key": "jpg",
    "max_tokens": "1024",
    "SECRET_ARN": "arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/hf-a1b2c3",
    "KMS_KEY": "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
    "HF_TOKEN": "${secretsmanager:prod/hf}",
    "DB_PASSWORD": "",
    "key_file": "/opt/ml/input/data/keys/a1",
    "password": "/run/secrets/password",
}


def test_secret_is_found_by_its_value_or_by_name_and_value() -> None:
    assert [name for name, value in SURE.items() if not holds_secret(name, value)] == []
    assert [name for name, value in NOT_SURE.items() if holds_secret(name, value)] == []
    assert not is_secret("HF_TOKEN", "${secretsmanager:prod/hf}")  # which status, diff and rerun show


def test_warning_of_a_secret_does_not_show_it() -> None:
    spec = launcher.parse_spec(
        laid_over_base(CODE + 'environment: {HF_TOKEN: "${HF_TOKEN}"}\n'), environ={"HF_TOKEN": TOKEN}
    )
    (warning,) = [each for each in launcher.plan(spec).warnings if each.code == "credentials-in-settings"]
    assert "write ${secretsmanager:ID} or ${ssm:NAME} in its place" in warning.message
    assert TOKEN not in warning.message


def test_line_of_a_problem_does_not_show_a_secret_that_is_in_it(tmp_path: Path) -> None:
    """The mark below the line stays at its column."""
    settings = (
        f"{{PWD: '${{PW}}', B: b, A_TOKEN: {TOKEN}, 'DB': \"postgres://me:hush@host/db\", password: 'two words'}}"
    )
    (tmp_path / "job.yaml").write_text(laid_over_base(f"{CODE}environment: {settings}\n"))
    done = launch(str(tmp_path / "job.yaml"), "--dry-run", "--set", f"environment.API_TOKEN={TOKEN}", "--set", "a=1")
    assert done.returncode == 2 and "[credentials-in-settings]" in done.stderr
    assert [secret for secret in (TOKEN, "hush", "two words") if secret in done.stderr] == []
    assert f"{{PWD: '${{PW}}', B: b, A_TOKEN: {'*' * len(TOKEN)}" in done.stderr
    assert f"environment.API_TOKEN={'*' * len(TOKEN)}" in done.stderr


@pytest.mark.parametrize(
    "value", ["correct horse battery", "ab,cd{e}f", "'it''s hush'", '"a\\"bcd hush"', "!!str hush5", "&x hush5"]
)
def test_secret_is_hidden_to_the_end_of_its_line(value: str) -> None:
    assert without_secrets(f"  DB_PASSWORD: {value}") == f"  DB_PASSWORD: {'*' * len(value)}"


def test_secret_is_looked_for_in_a_long_word_in_little_time() -> None:
    line = "a" * 300_000 + " password: hush"
    assert without_secrets(line) == line.replace("hush", "****")


def test_local_run_reads_secrets_as_the_user_and_keeps_none(
    aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    aws.client("ssm").put_parameter(Name="/team/key", Value="of-the-account-1", Type="SecureString")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(
        "import os, sys\nfound = [os.environ['A'], os.environ['B'], *sys.argv[1:]]\n"
        "assert [each[::-1] for each in found] == ['1-tnuocca-eht-fo', '22-resu-eht-fo', 'yek--', '1-tnuocca-eht-fo']\n"
        "assert 'LAUNCHER_SECRETS' not in os.environ\n"
        "raise SystemExit('failed with ' + os.environ['A'])\n"
    )
    (tmp_path / "job.yaml").write_text(
        laid_over_base(
            "training_job_name: job\nbase_name: null\nchannels: null\ncode: {directory: src, entry_point: train.py}\n"
            'environment: {A: "${ssm:/team/key}", B: "${secretsmanager:prod/hf}"}\nhyperparameters: {key: "${ssm:/team/key}"}\n'
        )
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("B", "of-the-user-22")
    done = launch("local", "job.yaml", "-v")
    assert done.returncode == 4, done.stderr
    assert "failed with ${ssm:/team/key}" in (tmp_path / ".launch/job/result.json").read_text()
    shown = done.stderr + capfd.readouterr().err
    assert "secret    A: AWS, read with your credentials, not the job's role" in shown
    assert "secret    B: the variable B of your environment, not the job's role" in shown
    files = [file for file in (tmp_path / ".launch").rglob("*") if file.is_file() and "log" not in file.name]
    kept = b"".join(file.read_bytes() for file in files)
    assert [value for value in (b"of-the-account-1", b"of-the-user-22") if value in kept] == []


def test_local_run_without_permission_names_what_to_do(
    aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.deny("ssm:GetParameter")
    (tmp_path / "job.yaml").write_text(laid_over_base(CODE + 'channels: null\nenvironment: {A: "${ssm:/x}"}\n'))
    monkeypatch.chdir(tmp_path)
    done = launch("local", "job.yaml")
    assert done.returncode == 3, done.stderr
    assert "error: Environment.A: " in done.stderr and "ssm:GetParameter" in done.stderr
    assert "; set A in your environment to run without it" in done.stderr
