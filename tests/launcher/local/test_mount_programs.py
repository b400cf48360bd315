"""The command lines and environments of FUSE programs: access keys are never on a command line."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from launcher.local.mounts import programs
from launcher.local.mounts.programs import TOOLS, MountFailedError, MountTool, View, mounted, tool_environ
from patience import PATIENCE

KEYS = {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
MINIO = {**KEYS, "AWS_ENDPOINT_URL": "https://minio:9000", "AWS_REGION": "eu-west-1", "AWS_CA_BUNDLE": "/ca.pem"}


def view(environ: dict[str, str], folder: str = "a b/train/") -> View:
    return View({"train": ("bucket", folder)}, Path("/data/train"), Path("/scratch"), environ)


@pytest.mark.parametrize("tool", TOOLS)
def test_access_keys_are_passed_in_the_environment_only(tool: MountTool) -> None:
    line = " ".join(tool.options(view(MINIO)))
    assert not [value for value in KEYS.values() if value in line]
    inherited = {"PATH": "/bin", "AWS_PROFILE": "other", "AWS_SESSION_TOKEN": "stale", "RCLONE_S3_ENDPOINT": "other"}
    environ = tool_environ(tool, view({**MINIO, "AWS_SESSION_TOKEN": "token"}), inherited)
    assert environ.items() >= {**KEYS, "PATH": "/bin"}.items()
    assert "AWS_PROFILE" not in environ
    assert "other" not in environ.values()


@pytest.mark.parametrize("tool", TOOLS)
def test_compatible_store_uses_its_url_and_path_style_and_aws_neither(tool: MountTool) -> None:
    def settings(environ: dict[str, str]) -> str:
        settings = tool_environ(tool, view(environ), {})
        own = [f"{name}={value}" for name, value in settings.items() if not name.startswith("AWS_")]
        return " ".join([*tool.options(view(environ)), *own])

    assert "https://minio:9000" in settings(MINIO)
    words = ("--force-path-style", "use_path_request_style", "PATH_STYLE=true")
    # goofys has path style by default.
    assert tool.program == "goofys" or any(word in settings(MINIO) for word in words)
    assert "eu-west-1" in settings(MINIO)
    aws = settings(KEYS)
    assert "minio" not in aws
    assert not any(word in aws for word in words)


@pytest.mark.parametrize("rclone", [tool for tool in TOOLS if tool.program == "rclone"])
def test_ca_bundle_is_passed_to_rclone_by_its_own_variable(rclone: MountTool) -> None:
    environ = tool_environ(rclone, view(MINIO), {"AWS_CA_BUNDLE": "/ca.pem"})
    assert environ["RCLONE_CA_CERT"] == "/ca.pem"
    assert "AWS_CA_BUNDLE" not in environ


@pytest.mark.parametrize("tool", TOOLS)
def test_whole_bucket_has_no_prefix(tool: MountTool) -> None:
    whole = view(KEYS, folder="")
    options = [*tool.options(whole), *tool.environ(whole).values()]
    assert "--prefix" not in options
    assert {"bucket", ":s3:bucket/", '"train=:s3:bucket/"'} & set(options)


def test_combined_folders_keep_spaces_and_quotes_of_their_names() -> None:
    """rclone reads them as CSV with spaces in place of commas."""
    [rclone] = [tool for tool in TOOLS if tool.can_combine]
    folders = {"train": ("bucket", 'a "b" c/'), "val": ("other", "")}
    upstreams = rclone.environ(View(folders, Path("/data"), Path("/scratch"), KEYS))["RCLONE_COMBINE_UPSTREAMS"]
    assert upstreams == '"train=:s3:bucket/a ""b"" c/" "val=:s3:other/"'


def test_program_that_ends_after_mounting_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As s3fs does for an option that it does not know: its mount exists for a moment, but nothing answers."""
    monkeypatch.setattr(programs, "is_mounted", lambda directory: True)
    dead = View({"": ("bucket", "")}, tmp_path / "dead", tmp_path, {})
    with (
        pytest.raises(MountFailedError, match="false ended with exit code 1"),
        mounted(MountTool("false", lambda view: []), dead, shutil.which, lambda text: None),
    ):
        pytest.fail("a mount that nothing serves is used")


def test_program_that_ends_while_its_mount_is_silent_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "is_mounted", lambda directory: True)
    over = threading.Event()

    class Silent(type(tmp_path)):  # type: ignore[misc]
        def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
            assert over.wait(PATIENCE), "the program's end is not noticed"
            raise OSError

    dead = View({"": ("bucket", "")}, Silent(tmp_path / "dead"), tmp_path, {})
    with (
        pytest.raises(MountFailedError, match="false ended with exit code 1"),
        mounted(MountTool("false", lambda view: []), dead, shutil.which, lambda text: None),
    ):
        pytest.fail("a mount that does not answer is used")
    over.set()
