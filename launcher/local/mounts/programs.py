"""The programs that mount folders of buckets lazily and read-only by FUSE: how each is started, and how its mount ends.

Access keys are passed in the environment, since every user of the machine can read a command line. Every program runs in the
foreground as a child of `keeper`, a process that lives long enough after ours to clean up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from launcher.local.mounts import keeper
from launcher.local.mounts.keeper import is_mounted, unmount

Which = Callable[[str], str | None]  # shutil.which, or a test's replacement that hides or replaces programs

_LIVE_SECONDS = 30.0  # from the program's start to a live mount
_LOOK_SECONDS = 0.02  # between two checks


class MountFailedError(Exception):
    """A program could not mount the folder; the message names the program and the reason."""


@dataclass(frozen=True)
class View:
    """What to mount where: each folder (its key is empty or ends in `/`) in the subdirectory of its name.

    A program that cannot combine folders gets one folder and mounts it at `directory` itself.
    """

    folders: Mapping[str, tuple[str, str]]  # -> bucket and key
    directory: Path
    scratch: Path  # for logs and caches
    store_environ: Mapping[str, str]
    only: Path | None = None  # a file with the paths to show, one per line; None shows all
    # Whether they can read it, too; only root can allow it unless /etc/fuse.conf has user_allow_other.
    other_users: bool = False

    @property
    def folder(self) -> tuple[str, str]:
        """The only folder's bucket and key."""
        [folder] = self.folders.values()
        return folder

    @property
    def endpoint(self) -> str:
        """The URL of an S3-compatible store; empty for AWS itself."""
        return self.store_environ.get("AWS_ENDPOINT_URL", "")

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return self.store_environ.get("AWS_REGION", "us-east-1")


@dataclass(frozen=True)
class MountTool:
    """One program: its command line, and the variables that give it the store and the access keys."""

    program: str
    options: Callable[[View], list[str]]  # the arguments
    environ: Callable[[View], Mapping[str, str]] = lambda view: view.store_environ
    can_select: bool = False  # whether it supports `View.only`
    can_combine: bool = False  # whether it mounts several folders; `environ` names them


def _mount_s3(view: View) -> list[str]:
    options = ["--foreground", "--read-only", "--region", view.region]
    if view.endpoint:
        options += ["--endpoint-url", view.endpoint, "--force-path-style"]
    options += ["--allow-other"] * view.other_users
    bucket, key = view.folder
    if key:
        options += ["--prefix", key]
    return [*options, bucket, str(view.directory)]


def _rclone(view: View, remote: str) -> list[str]:
    # Times come from the listing, since an object's own time costs a request per file. The data does not change, so
    # directories and attributes are requested only once.
    options = ["--read-only", "--use-server-modtime", "--dir-cache-time=24h", "--attr-timeout=1h", "--poll-interval=0"]
    options += ["--buffer-size=4M", "--vfs-read-chunk-size=16M"]  # a quarter of the memory per open file; no slower
    # The readers have 64 threads: rclone sends no more requests at a time than checkers and transfers together, 12 by default,
    # and the kernel keeps only 12 asynchronous reads in flight, those of later files among them.
    options += ["--checkers=32", "--transfers=32", "--async-read=false"]
    options += ["--allow-other"] * view.other_users
    if view.only:
        options.append(f"--files-from-raw={view.only}")
    return ["mount", *options, remote, str(view.directory)]


def _rclone_folder(view: View) -> list[str]:
    return _rclone(view, ":s3:" + "/".join(view.folder))


def _rclone_combined(view: View) -> list[str]:
    return _rclone(view, ":combine:")


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
    upstreams = (f"{name}=:s3:{bucket}/{key}" for name, (bucket, key) in view.folders.items())
    quoted = " ".join('"' + upstream.replace('"', '""') + '"' for upstream in upstreams)
    return {**_rclone_environ(view), "RCLONE_COMBINE_UPSTREAMS": quoted}


def _s3fs(view: View) -> list[str]:
    options = ["ro", f"endpoint={view.region}", f"tmpdir={view.scratch}", f"uid={os.getuid()}", f"gid={os.getgid()}"]
    options += ["umask=0022", *["allow_other"] * view.other_users]
    if view.endpoint:
        options += [f"url={view.endpoint}", "use_path_request_style"]
    bucket, key = view.folder
    folder = f":/{key.rstrip('/')}" if key else ""
    return [f"{bucket}{folder}", str(view.directory), "-f", "-o", ",".join(options)]


def _s3fs_with_folders(view: View) -> list[str]:
    # Show folders that exist only as parts of keys, as everywhere in S3: the default until 1.91, an option since.
    return [*_s3fs(view), "-o", "compat_dir"]


def _goofys(view: View) -> list[str]:
    bucket, key = view.folder
    endpoint = ["--endpoint", view.endpoint] if view.endpoint else []  # by path, unless --subdomain is given
    mode, place = "ro,allow_other" if view.other_users else "ro", f"{bucket}:{key}" if key else bucket
    return ["-f", "-o", mode, "--region", view.region, *endpoint, place, str(view.directory)]


TOOLS = (  # in the order of preference; the next is tried if one fails
    MountTool("mount-s3", _mount_s3),
    MountTool("rclone", _rclone_folder, _rclone_environ, can_select=True),
    MountTool("rclone", _rclone_combined, _rclone_combined_environ, can_select=True, can_combine=True),  # since 1.59
    MountTool("s3fs", _s3fs_with_folders),
    MountTool("s3fs", _s3fs),
    MountTool("goofys", _goofys),
)


def tool_environ(tool: MountTool, view: View, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the tool's environment, without inherited variables that could name another store."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(("AWS_", "RCLONE_"))}
    return {**kept, **tool.environ(view)}


@contextmanager
def mounted(tool: MountTool, view: View, which: Which, on_warning: Callable[[str], None]) -> Iterator[None]:
    """Mount the view at its directory (absolute, without links in it); unmount it on leaving.

    Raises:
        MountFailedError: The program does not start, ends, or does not mount within half a minute.
    """
    log = view.scratch / f"{tool.program}-{view.directory.name}.log"
    program = [which(tool.program) or tool.program, *tool.options(view)]
    # A new session, so that Ctrl-C at the terminal reaches the job first, which reads from this mount until it ends.
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(view.directory), *program],
            env=tool_environ(tool, view, os.environ),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            _wait_until_live(tool.program, process, view.directory, log)
            yield
        finally:
            # The end of its standard input is not enough: forked processes may have it open, too.
            process.communicate(b"\n")
            unmount(view.directory)  # in case the keeper was killed
            if is_mounted(view.directory):
                on_warning(f"{view.directory} is still mounted; unmount it by `fusermount3 -uz {view.directory}`")


def _wait_until_live(program: str, process: subprocess.Popen[bytes], directory: Path, log: Path) -> None:
    deadline = time.monotonic() + _LIVE_SECONDS
    live, look = threading.Event(), threading.Thread()
    while not live.is_set():
        if is_mounted(directory) and not look.is_alive():
            # In a thread, because it blocks as long as the program or its store is silent.
            look = threading.Thread(target=_look, args=(directory, live), daemon=True)
            look.start()
        if process.poll() is not None:
            *_, last = ["no output", *filter(None, map(str.strip, log.read_text(errors="replace").split("\n")))]
            raise MountFailedError(f"{program} ended with exit code {process.returncode} ({last}; log in {log})")
        if time.monotonic() > deadline:
            raise MountFailedError(f"{program} did not mount within {_LIVE_SECONDS:.0f} s (log in {log})")
        time.sleep(_LOOK_SECONDS)


def _look(directory: Path, live: threading.Event) -> None:
    """Set the event if the program serves its mount: s3fs mounts first, and ends if it then finds an unknown option."""
    with suppress(OSError):
        directory.stat()
        live.set()
