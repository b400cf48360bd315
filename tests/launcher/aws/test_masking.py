"""No output contains a secret, in whatever form AWS repeats it."""

from __future__ import annotations

import html
import json
import threading
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

import launcher
from aws_stand_in import StandIn
from launcher.aws.session import Account, AwsError
from launcher.console import Console
from launcher.errors import LaunchError
from launcher.jobs.submission import submit
from launcher.masking import is_secret_name, settings_to_hide
from launching import launch
from sagemaker_channels.mask import Mask
from submitted_spec import SPEC

PEM = "-----BEGIN KEY-----\nMIIabc&def<ghi>'\"jkl\nQWERTYUIOPASDFGHJKLZXCVBNM\n-----END KEY-----\n"
TOKEN = "hf_AbCdEf0123456789"
ESCAPES: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "on one line": lambda text: " ".join(text.split()),
    "html": html.escape,
    "json": json.dumps,
    "repr": repr,
    "url": urllib.parse.quote,
    "its beginning": lambda text: text[:40],
    "its end": lambda text: text[30:],
    "a line of it": lambda text: text.splitlines()[min(2, text.count("\n"))],
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
@pytest.mark.parametrize("value", [PEM, TOKEN, "100%41 of &amp; \\n it"])
def test_value_is_masked_in_every_form(value: str, escape: Callable[[str], str]) -> None:
    mask = Mask()
    mask.add(value, "${NAME}")
    said = mask.apply(f"Value '{escape(value)}' at 'environment' failed")
    if len(escape(value)) > 12:
        assert "${NAME}" in said
    assert said.startswith("Value '")
    assert said.endswith(" at 'environment' failed")
    rest = "".join(said.split())
    for start in range(len(value) - 11):
        assert value[start : start + 12] not in rest


def test_values_can_be_added_while_another_thread_masks() -> None:
    class Met(str):
        """A value that, when a text is searched for it, has another thread add a value."""

        def __len__(self) -> int:
            thread = threading.Thread(target=mask.add, args=("another-value",))
            thread.start()
            thread.join()
            return super().__len__()

    mask = Mask()
    mask.add(Met("a-first-value"))
    mask.add("a-second-value")
    assert mask.apply("a-first-value and a-second-value") == "*** and ***"


def test_short_values_are_masked_only_as_words() -> None:
    mask = Mask()
    mask.add("5", "${EPOCHS}")
    mask.add("")
    assert mask.apply("epochs 5 of 500") == "epochs ${EPOCHS} of 500"
    assert Mask().apply("nothing is known") == "nothing is known"


def test_password_of_a_url_is_masked_even_if_it_is_no_setting(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://user:Pa55@localhost:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(AwsError, match=r'endpoint URL: "http://\*\*\*@localhost:1/b"'):
        Account().call("s3", "head_bucket", Bucket="b")


def test_names_of_secrets_are_recognised() -> None:
    secret = ["api-key", "HF_TOKEN", "token", "dbPassword", "AWS_SECRET_ACCESS_KEY", "wandb_apikey", "Credentials"]
    secret += [
        "DB_PASS",
        "dbPass",
        "pass",
        "PGPASS",
        "GITHUB_PAT",
        "gh-pat",
        "SENTRY_DSN",
        "sessionCookie",
        "jwt",
        "bearer",
    ]
    assert [name for name in secret if not is_secret_name(name)] == []
    plain = [
        "epochs",
        "tokenizer",
        "max_tokens",
        "keypoints",
        "learning-rate",
        "authors",
        "bypass",
        "path",
        "patience",
        "spat",
    ]
    assert [name for name in plain if is_secret_name(name)] == []


@pytest.mark.parametrize(
    ("value", "is_hidden"),
    [
        ("postgresql://me:hush@db.example/x", True),
        ("see HTTPS://user:t0k%21n@host", True),
        ("https://host:8080/a@b", False),
        ("https://me@host/x:y", False),
        ("s3://bucket/a:b@c", False),
        ("a:b@c", False),
    ],
)
def test_url_with_a_password_is_hidden_under_any_name(value: str, is_hidden: bool) -> None:
    hidden = settings_to_hide({"HyperParameters": {"data": value}})
    assert bool(hidden) == is_hidden


@pytest.fixture
def folder(submittable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKEN", TOKEN)
    return tmp_path


@pytest.mark.parametrize(("code", "status"), [("ThrottlingException", 400), ("InternalFailure", 500)])
@pytest.mark.usefixtures("quick_sleep")
def test_retried_refusals_mask_values(
    aws: StandIn, folder: Path, code: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.refuse("sagemaker:CreateTrainingJob", code, f"slow down: {TOKEN}", status=status, count=-1)
    with pytest.raises(LaunchError, match=r"slow down: \$\{TOKEN:-hidden-value\}") as caught:
        submit(launcher.plan("job.yaml"), Account(), Console())
    err = capsys.readouterr().err
    assert "trying again" in err
    assert TOKEN not in err + str(caught.value)


def test_settings_of_a_past_job_are_masked_in_rerun_and_diff(aws: StandIn, folder: Path) -> None:
    (folder / "job.yaml").write_text(SPEC.replace("{epochs: 5}", '{epochs: 5, api-key: "${TOKEN}", plain: "x y"}'))
    assert launch("job.yaml", "--no-check").returncode == 0
    assert aws.requests()[0]["HyperParameters"]["api-key"] == TOKEN
    for arguments in (["--dry-run"], ["--dry-run", "--json"]):
        done = launch("rerun", "digits-1", *arguments)
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
    assert json.loads(done.stdout)["Environment"] == {"TOKEN": "***"}
    assert json.loads(done.stdout)["HyperParameters"] == {"epochs": "5", "api-key": "***", "plain": "x y"}
    assert TOKEN in launch("rerun", "digits-1", "--dry-run", "--show-secrets").stdout

    changed = [
        "--set",
        "hyperparameters.epochs=7",
        "--set",
        "environment=null",
        "--set",
        "hyperparameters.api-key=other",
    ]
    done = launch("diff", "job.yaml", "digits-1", *changed, "--json")
    assert TOKEN not in done.stdout + done.stderr
    found = {each["path"]: (each["job"], each["plan"]) for each in json.loads(done.stdout)}
    assert found["HyperParameters.epochs"] == ("5", "7")
    assert found["HyperParameters.api-key"] == ("***", "other")
    assert found["Environment"] == ({"TOKEN": "***"}, None)
    assert TOKEN in launch("diff", "job.yaml", "digits-1", *changed, "--show-secrets").stdout

    aws.refuse("sagemaker:CreateTrainingJob", "ValidationException", f"{TOKEN} is bad")
    done = launch("rerun", "digits-1", "--no-check")
    assert done.returncode == 3
    assert "AWS refused: sagemaker:CreateTrainingJob: *** is bad" in done.stderr

    done = launch("rerun", "digits-1", "--no-check", "--set", "environment.MORE=${TOKEN}")
    assert done.returncode == 0, done.stderr
    assert aws.requests()[1]["Environment"] == {"TOKEN": TOKEN, "MORE": TOKEN}
    assert aws.requests()[1]["HyperParameters"] == aws.requests()[0]["HyperParameters"]


def test_short_settings_of_a_past_job_are_not_masked_in_words(aws: StandIn, folder: Path) -> None:
    assert launch("job.yaml", "--no-check", "--set", "environment={VERBOSE: 'no', API_KEY: xyz}").returncode == 0
    aws.refuse("sagemaker:CreateTrainingJob", "ValidationException", "there is no such thing as xyz")
    assert "there is no such thing as ***" in launch("rerun", "digits-1", "--no-check").stderr


@pytest.mark.usefixtures("quick_sleep")
def test_failure_that_quotes_the_command_masks_its_secrets(aws: StandIn, folder: Path) -> None:
    assert launch("job.yaml", "--no-check", "--set", "hyperparameters.api-key=${TOKEN}").returncode == 0
    said = f'AlgorithmError: ExecuteUserScriptError: ExitCode 2 Command "python3 train.py --api-key {TOKEN}"'
    aws.job("digits-1", "Training")
    aws.log("digits-1", [f"train.py: error: unrecognized arguments: --api-key {TOKEN}"])
    aws.job("digits-1", "Failed", reason=said)
    for arguments in (["status"], ["status", "--json"], ["logs", "--follow"], ["logs", "--follow", "--json"]):
        done = launch(arguments[0], "digits-1", *arguments[1:])
        ours = done.stderr + (done.stdout if arguments[0] == "status" else done.stdout.splitlines()[-1])
        assert "train.py --api-key ***" in ours, arguments
        assert (TOKEN in ours) is (arguments == ["logs", "--follow"]), (
            arguments
        )  # there, the last line is the job's own
        assert TOKEN not in done.stderr


def test_account_keys_are_masked(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    session = "IQoJb3JpZ2luX2VjEXAMPLE/session+token=="
    monkeypatch.setenv("AWS_SESSION_TOKEN", session)
    said = f"The request signature does not match: 'x-amz-security-token:{session}' 'stand-in-secret' stand-in-key-id"
    aws.refuse("sagemaker:ListTrainingJobs", "SignatureDoesNotMatch", said, status=403, count=-1)
    with pytest.raises(AwsError, match="does not match: 'x-amz-security-token:") as caught:
        Account().call("sagemaker", "list_training_jobs")
    for key in (session, "stand-in-secret", "stand-in-key-id"):
        assert key not in str(caught.value)
