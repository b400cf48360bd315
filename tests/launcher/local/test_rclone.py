"""The command line and environment of rclone: access keys are never on a command line."""

from __future__ import annotations

from pathlib import Path

from launcher.local.channels.mounted import View, rclone_command, rclone_environ
from launcher.s3.uri import S3Location

KEYS = {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}
MINIO = {**KEYS, "AWS_ENDPOINT_URL": "https://minio:9000", "AWS_REGION": "eu-west-1", "AWS_CA_BUNDLE": "/ca.pem"}


def view(environ: dict[str, str], folder: str = "a b/train/") -> View:
    return View(S3Location("bucket", folder), Path("/data/train"), Path("/scratch"), environ)


def test_access_keys_are_passed_in_the_environment_only() -> None:
    line = " ".join(rclone_command(view(MINIO)))
    assert not [value for value in KEYS.values() if value in line]
    inherited = {"PATH": "/bin", "AWS_PROFILE": "other", "AWS_SESSION_TOKEN": "stale", "RCLONE_S3_ENDPOINT": "other"}
    environ = rclone_environ(view(MINIO), inherited)
    assert environ.items() >= {**KEYS, "PATH": "/bin"}.items()
    assert "AWS_PROFILE" not in environ
    assert "other" not in environ.values()


def test_compatible_store_uses_its_url_and_path_style_and_aws_neither() -> None:
    environ = rclone_environ(view(MINIO), {})
    assert environ["RCLONE_S3_ENDPOINT"] == "https://minio:9000"
    assert environ["RCLONE_S3_REGION"] == "eu-west-1"
    assert environ["RCLONE_S3_FORCE_PATH_STYLE"] == "true"
    aws = rclone_environ(view(KEYS), {})
    assert (aws["RCLONE_S3_ENDPOINT"], aws["RCLONE_S3_FORCE_PATH_STYLE"]) == ("", "false")


def test_ca_bundle_is_passed_by_rclones_own_variable() -> None:
    environ = rclone_environ(view(MINIO), {"AWS_CA_BUNDLE": "/ca.pem"})
    assert environ["RCLONE_CA_CERT"] == "/ca.pem"
    assert "AWS_CA_BUNDLE" not in environ


def test_folder_keeps_its_spaces_and_a_whole_bucket_has_no_prefix() -> None:
    assert ":s3:bucket/a b/train/" in rclone_command(view(KEYS))
    assert ":s3:bucket/" in rclone_command(view(KEYS, ""))
