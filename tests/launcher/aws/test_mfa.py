"""A profile that assumes a role with an MFA device: its code is typed once, for the AWS CLI and for us, and only on a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aws_stand_in import StandIn
from patience import PATIENCE
from terminals import on_terminal

LIST = (sys.executable, "-m", "launcher.cli", "list", "--profile", "mfa")
CONFIG = """\
[profile base]
aws_access_key_id = base-key-id
aws_secret_access_key = base-secret
[profile mfa]
role_arn = arn:aws:iam::123456789012:role/trainer
source_profile = base
mfa_serial = arn:aws:iam::123456789012:mfa/me
"""
CODE = "Enter MFA code for arn:aws:iam::123456789012:mfa/me: "


@pytest.fixture
def home(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a home folder with the profile, where no other credentials are found."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(CONFIG)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    return tmp_path


def without_terminal(folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        LIST, cwd=folder, input=stdin, capture_output=True, text=True, start_new_session=True, timeout=PATIENCE
    )


@pytest.mark.parametrize("stdin", ["", "123456\n"])
def test_mfa_profile_without_terminal_ends_with_one_line(aws: StandIn, home: Path, stdin: str) -> None:
    done = without_terminal(home, stdin)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "error: the profile needs an MFA code of arn:aws:iam::123456789012:mfa/me, and there is no"
    )
    assert aws.calls() == []


def test_typed_code_is_used_by_later_commands_and_by_the_aws_cli(aws: StandIn, home: Path) -> None:
    with on_terminal(LIST, home) as terminal:
        terminal.wait_for(CODE)
        terminal.type("123456\n")
        assert terminal.end() == 0, terminal.shown
    (kept,) = (home / ".aws/cli/cache").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    assert without_terminal(home).returncode == 0
    (assumed,) = aws.calls("sts:AssumeRole")
    assert assumed["parameters"]["TokenCode"] == "123456"
    assert _cli_finds_credentials(kept)


def _cli_finds_credentials(kept: Path) -> bool:
    """Return whether a session with the cache of the AWS CLI, as the CLI sets it, has credentials without asking."""
    import botocore.session
    from botocore.utils import JSONFileCache

    session = botocore.session.Session(profile="mfa")
    resolver = session.get_component("credential_provider")
    resolver.get_provider("assume-role").cache = JSONFileCache(str(kept.parent))
    credentials = session.get_credentials()
    return credentials is not None and bool(credentials.get_frozen_credentials().token)


def test_wrong_code_ends_with_one_line(aws: StandIn, home: Path) -> None:
    aws.refuse(
        "sts:AssumeRole", "AccessDenied", "MultiFactorAuthentication failed with invalid MFA one time pass code."
    )
    with on_terminal(LIST, home) as terminal:
        terminal.wait_for(CODE)
        terminal.type("000000\n")
        assert terminal.end() == 3
    assert "Traceback" not in terminal.shown
    (line,) = [line for line in terminal.shown.splitlines() if line.startswith("error: ")]
    assert "invalid MFA one time pass code" in line
