"""The programs that can mount a folder of a bucket lazily and read-only by FUSE: command line and environment of each.

Access keys are passed in the environment, since every user of the machine can read a command line. Every program runs in the
foreground as our child, so that ending it is certain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.s3.uri import S3Location

_DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class View:
    """What to mount where: each folder (its key is empty or ends in `/`) in the subdirectory of its name.

    A program that cannot combine folders gets one folder and mounts it at `directory` itself.
    """

    folders: Mapping[str, S3Location]
    directory: Path
    scratch: Path  # for logs and caches
    store_environ: Mapping[str, str]
    only: Path | None = None  # a file with the paths to show, one per line; None shows all

    @property
    def folder(self) -> S3Location:
        """The only folder."""
        [folder] = self.folders.values()
        return folder

    @property
    def endpoint(self) -> str:
        """The URL of an S3-compatible store; empty for AWS itself."""
        return self.store_environ.get("AWS_ENDPOINT_URL_S3") or self.store_environ.get("AWS_ENDPOINT_URL") or ""

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return self.store_environ.get("AWS_REGION") or self.store_environ.get("AWS_DEFAULT_REGION") or _DEFAULT_REGION


@dataclass(frozen=True)
class MountTool:
    """One program: its command line, and the variables that give it the store and the access keys."""

    program: str
    options: Callable[[View], list[str]]  # the arguments
    environ: Callable[[View], dict[str, str]]
    can_select: bool = False  # whether it supports `View.only`
    can_combine: bool = False  # whether it mounts several folders; `environ` names them


def _mount_s3(view: View) -> list[str]:
    options = ["--foreground", "--read-only", "--region", view.region]
    if view.endpoint:
        options += ["--endpoint-url", view.endpoint, "--force-path-style"]
    if view.folder.key:
        options += ["--prefix", view.folder.key]
    return [*options, view.folder.bucket, str(view.directory)]


def _rclone(view: View) -> list[str]:
    return [*_rclone_options(view), f":s3:{view.folder.bucket}/{view.folder.key}", str(view.directory)]


def _rclone_combined(view: View) -> list[str]:
    return [*_rclone_options(view), ":combine:", str(view.directory)]


def _rclone_options(view: View) -> list[str]:
    # Times come from the listing, since an object's own time costs a request per file. The data does not change, so
    # directories and attributes are requested only once.
    options = ["--read-only", "--use-server-modtime", "--dir-cache-time=24h", "--attr-timeout=1h", "--poll-interval=0"]
    options += ["--buffer-size=4M", "--vfs-read-chunk-size=16M"]  # a quarter of the memory per open file; no slower
    if view.only:
        options.append(f"--files-from-raw={view.only}")
    return ["mount", *options]


def _rclone_environ(view: View) -> dict[str, str]:
    settings = {
        **{name: value for name, value in view.store_environ.items() if name != "AWS_CA_BUNDLE"},
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CACHE_DIR": str(view.scratch),
        "RCLONE_S3_ENV_AUTH": "true",
        "RCLONE_S3_PROVIDER": "Other" if view.endpoint else "AWS",
        "RCLONE_S3_ENDPOINT": view.endpoint,
        "RCLONE_S3_REGION": view.region,
        "RCLONE_S3_LIST_VERSION": "2",
        "RCLONE_S3_FORCE_PATH_STYLE": "true" if view.endpoint else "false",
    }
    if bundle := view.store_environ.get("AWS_CA_BUNDLE"):
        settings["RCLONE_CA_CERT"] = bundle  # rclone's own name for it; 1.60 cannot start with AWS_CA_BUNDLE set
    return settings


def _rclone_combined_environ(view: View) -> dict[str, str]:
    upstreams = (f"{name}=:s3:{folder.bucket}/{folder.key}" for name, folder in view.folders.items())
    quoted = " ".join('"' + upstream.replace('"', '""') + '"' for upstream in upstreams)
    return {**_rclone_environ(view), "RCLONE_COMBINE_UPSTREAMS": quoted}


def _s3fs(view: View) -> list[str]:
    options = ["ro", f"endpoint={view.region}", f"tmpdir={view.scratch}", f"uid={os.getuid()}", f"gid={os.getgid()}"]
    options.append("umask=0022")
    if view.endpoint:
        options += [f"url={view.endpoint}", "use_path_request_style"]
    folder = f":/{view.folder.key.rstrip('/')}" if view.folder.key else ""
    return [f"{view.folder.bucket}{folder}", str(view.directory), "-f", "-o", ",".join(options)]


def _s3fs_with_folders(view: View) -> list[str]:
    # Show folders that exist only as parts of keys, as everywhere in S3: the default until 1.91, an option since.
    return [*_s3fs(view), "-o", "compat_dir"]


TOOLS = (  # in the order of preference; the next is tried if one fails
    MountTool("mount-s3", _mount_s3, lambda view: dict(view.store_environ)),
    MountTool("rclone", _rclone, _rclone_environ, can_select=True),
    MountTool("rclone", _rclone_combined, _rclone_combined_environ, can_select=True, can_combine=True),  # since 1.59
    MountTool("s3fs", _s3fs_with_folders, lambda view: dict(view.store_environ)),
    MountTool("s3fs", _s3fs, lambda view: dict(view.store_environ)),
)


def tool_environ(tool: MountTool, view: View, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the tool's environment, without inherited variables that could name another store."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(("AWS_", "RCLONE_"))}
    return {**kept, **tool.environ(view)}
