"""FastFile mode: a lazy, read-only mount of the channel's folder by rclone, over FUSE.

A job that lists, seeks, or opens thousands of files behaves over a mount as under FastFile, but not over a copy, so a copy is the
last resort and causes a warning. Like FastFile, a mount has folders only, so the URI must name one. If a host gets only some of the
objects (its shard, or a sample), rclone shows only those.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import RefusedError
from launcher.local.channels.copied import copied
from launcher.local.channels.delivery import Delivery, empty_directory
from launcher.local.channels.selection import NoObjectsError, S3Object, as_tree
from launcher.local.leftovers import at_the_end, is_mounted
from launcher.request.view import s3_source, with_source
from launcher.s3.uri import S3Location, parse_s3_uri

FUSE = Path("/dev/fuse")
_LIVE_SECONDS = 30.0  # from rclone's start to its mount
_LOOK_SECONDS = 0.02  # between two checks
# The program and its helpers first, which may be about to mount. Then detached even while files are open: the job that is being
# killed may still have some.
_UNMOUNT = 'kill -9 -"$2"; fusermount3 -uz "$1" || fusermount -uz "$1" || umount -l "$1"'


class MountFailedError(Exception):
    """rclone could not mount the folder; the message has the reason."""


@dataclass(frozen=True)
class View:
    place: S3Location  # the bucket, and a key that is empty or ends in "/"
    directory: Path  # absolute, without links in it
    scratch: Path  # for the log and caches
    store_environ: Mapping[str, str]  # AWS_* variables that name the store and the keys
    only: Path | None = None  # a file with the paths to show, one per line; None shows all
    other_users: bool = False  # can read it, too; only root can allow it unless /etc/fuse.conf has user_allow_other


@contextmanager
def provide(delivery: Delivery) -> Iterator[None]:
    """Mount the host's objects at `delivery.directory`, or copy them with a warning; both end on leaving.

    Raises RefusedError if the URI is not a folder with objects, keys cannot be files, or a copy fails.
    """
    place, objects, is_whole = _found(delivery)
    with ExitStack() as stack:
        reason = _why_no_mount()
        if not reason and objects:
            try:
                stack.enter_context(_mounted_objects(delivery, place, objects, is_whole=is_whole))
            except MountFailedError as error:
                reason = str(error)
        elif not reason:
            stack.enter_context(empty_directory(delivery))
        if reason:
            delivery.on_warning(f"FastFile channels are copied here, not mounted: {reason}")
            stack.enter_context(copied(delivery, objects))
        delivery.on_delivered("a copy" if reason else "a FUSE mount", not reason)
        yield


def _found(delivery: Delivery) -> tuple[S3Location, list[S3Object], bool]:
    """Return the channel's folder, the objects in it that the host gets, and whether those are all."""
    source = s3_source(delivery.channel)
    what = f"channel {delivery.name!r}: FastFile"
    if source["S3DataType"] != "S3Prefix":
        raise RefusedError(f"{what} supports S3DataType S3Prefix only, not {source['S3DataType']}; use Pipe or File")
    place = parse_s3_uri(source["S3Uri"])
    if partial_name := bool(place.key) and not place.key.endswith("/"):
        place = S3Location(place.bucket, f"{place.key}/")
    channel = with_source(delivery.channel, S3Uri=str(place))
    try:
        found = as_tree(delivery.store.listed(channel, delivery.sample))
    except NoObjectsError as error:
        raise NoObjectsError(f"{error} ({what} needs a folder, not the beginning of a name)") from error
    if partial_name:
        reason = "FastFile reads whole folders, not the beginning of a name"
        delivery.on_warning(f"{what} reads {source['S3Uri']} as the folder {place}; end it with '/': {reason}")
    objects = delivery.select(found)
    return place, objects, delivery.sample is None and len(objects) == len(found)


def _why_no_mount() -> str:
    """Return why nothing can be mounted, and the remedy; empty if rclone can try."""
    if sys.platform != "linux":
        return "FUSE mounts need Linux"
    if not os.access(FUSE, os.R_OK | os.W_OK):
        remedy = f"run as root, or let root run `modprobe fuse` and `chmod a+rw {FUSE}`"
        remedy += f"; start a container around this with --device {FUSE} --cap-add SYS_ADMIN"
        return f"this user cannot open {FUSE}; {remedy}"
    if shutil.which("rclone") is None:
        return "rclone is not installed; let root run `apt-get install fuse3 rclone`"
    return ""


@contextmanager
def _mounted_objects(
    delivery: Delivery, place: S3Location, objects: list[S3Object], *, is_whole: bool
) -> Iterator[None]:
    scratch = delivery.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    only = None if is_whole else scratch / "only.txt"
    if only:
        only.write_text("".join(f"{each.path}\n" for each in objects), encoding="utf-8")
    with empty_directory(delivery) as directory:
        view = View(place, directory.resolve(), scratch, delivery.store.environ, only, delivery.other_users)
        with mounted(view):
            odd = [each.path for each in objects if not each.path.isprintable()]  # rclone changes control characters
            for path in [objects[0].path, *odd]:
                if not os.path.exists(directory / path):  # noqa: PTH110 - treats every error of the program alike
                    raise MountFailedError(f"rclone does not show {path!r}; rename that object")
            yield


@contextmanager
def mounted(view: View) -> Iterator[None]:
    """Mount the view at its directory; unmount it on leaving, or when this process is killed.

    Raises MountFailedError if rclone does not start, ends, or does not mount within half a minute.
    """
    log = view.scratch / f"rclone-{view.directory.name}.log"
    with mounted_by(rclone_command(view), rclone_environ(view, os.environ), view.directory, log):
        yield


@contextmanager
def mounted_by(command: list[str], environ: Mapping[str, str], directory: Path, log: Path) -> Iterator[None]:
    """Run a program that mounts something at a directory and serves it, as `mounted` does."""
    program = command[0]
    try:
        with log.open("wb") as output:
            # A new session, so that Ctrl-C at the terminal reaches the job first, which reads from this mount until it ends.
            process = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
    except OSError as error:
        raise MountFailedError(f"{program} cannot be started: {error.strerror}") from None
    with process, at_the_end(_UNMOUNT, directory, str(process.pid)):
        deadline = time.monotonic() + _LIVE_SECONDS
        while not is_mounted(directory):
            if process.poll() is not None:
                *_, last = ["no output", *filter(None, map(str.strip, log.read_text(errors="replace").split("\n")))]
                ended = f"{program} ended with exit code {process.returncode} ({last})"
                raise MountFailedError(f"{ended}; run as root, or where FUSE is open to every user")
            if time.monotonic() > deadline:
                raise MountFailedError(f"{program} did not mount within {_LIVE_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)
        yield


def rclone_command(view: View) -> list[str]:
    """Return the command; without keys, since every user of the machine can read a command line."""
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
    return ["rclone", "mount", *options, f":s3:{view.place.bucket}/{view.place.key}", str(view.directory)]


def rclone_environ(view: View, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return rclone's environment, without inherited variables that could name another store."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(("AWS_", "RCLONE_"))}
    store = dict(view.store_environ)
    if bundle := store.pop("AWS_CA_BUNDLE", ""):
        kept["RCLONE_CA_CERT"] = bundle  # rclone's own name for it; 1.60 cannot start with AWS_CA_BUNDLE set
    endpoint = store.get("AWS_ENDPOINT_URL", "")
    return {
        **kept,
        **store,
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CACHE_DIR": str(view.scratch),
        "RCLONE_S3_ENV_AUTH": "true",
        "RCLONE_S3_PROVIDER": "Other" if endpoint else "AWS",
        "RCLONE_S3_ENDPOINT": endpoint,
        "RCLONE_S3_REGION": store.get("AWS_REGION", "us-east-1"),
        "RCLONE_S3_LIST_VERSION": "2",
        "RCLONE_S3_FORCE_PATH_STYLE": "true" if endpoint else "false",
    }
