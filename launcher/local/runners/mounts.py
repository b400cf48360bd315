"""What containers get of this machine's folders: the options that mount them, and the rights of the image's user."""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount
from launcher.local.hosts import WARM_POOLS
from launcher.local.runners import HostProcess
from launcher.local.runners.engine import Dialect
from sagemaker_channels import contract


def target_of(host: HostProcess, path: Path) -> Path:
    """Return the path in the container of a mount's target."""
    root = host.root.absolute()
    return Path(contract.BASE_DIR, path.relative_to(root)) if path.is_relative_to(root) else path


def folder_mounts(host: HostProcess, volumes: Sequence[str]) -> Iterator[str]:
    """Yield the options that mount SageMaker's own folders, and the image's volumes inside them, which would hide files.

    The rest of /opt/ml is the image's, which may have its code there. A mount also cannot be replaced by a link, which would lead
    to another file of this machine than of the container. The container cannot write where this machine writes files while it runs.
    """
    names = [contract.CONFIG_DIR, contract.DATA_DIR, contract.MODEL_DIR, contract.OUTPUT_DIR]
    places = [Path(volume) for volume in volumes if ".." not in Path(volume).parts]
    inside = [place.relative_to(contract.BASE_DIR) for place in places if place.is_relative_to(contract.BASE_DIR)]
    names += [str(place) for place in inside if not {*names}.isdisjoint(map(str, place.parents))]
    bound = {bind.target for bind in host.binds}
    for folder in (host.root.absolute() / name for name in names):
        if folder not in bound:
            folder.mkdir(parents=True, exist_ok=True)
            mode = ["readonly"] if folder == host.root.absolute() / contract.CONFIG_DIR else []
            yield from (
                "--mount",
                csv_line("type=bind", f"source={folder}", f"target={target_of(host, folder)}", *mode),
            )


def mount_options(host: HostProcess, bind: BindMount, dialect: Dialect, label: str) -> tuple[str, str]:
    """Return the options of `create` for a channel; an overlay ends with its container, or is a volume with the label."""
    target = target_of(host, bind.target)
    if bind.written is None:
        fields = ("type=bind", f"source={bind.source}", f"target={target}", *(["readonly"] if bind.read_only else []))
        return "--mount", csv_line(*fields)
    lower = bind.written / "lower"
    lower.symlink_to(bind.source)
    for name in ("upper", "work"):
        (bind.written / name).mkdir()
    (bind.written / "upper").chmod(0o777)  # the mode of the channel's folder
    # Paths in the options of an overlay must not contain commas or colons, so they are those of a link.
    layers = Path(host.temporary, f"layers-{len(list(Path(host.temporary).iterdir()))}")
    if odd := {*",:\\"} & {*str(layers)}:
        remedy = "set TMPDIR to a folder without it"
        raise RefusedError(
            f"TMPDIR {tempfile.gettempdir()}: mount options cannot have a path with {odd.pop()!r}; {remedy}"
        )
    layers.symlink_to(bind.written.absolute())
    if not dialect.has_daemon:
        return "--volume", f"{layers}/lower:{target}:O,upperdir={layers}/upper,workdir={layers}/work"
    overlay = ",".join(f"{name}dir={layers}/{name}" for name in ("lower", "upper", "work"))
    options = (f"volume-opt={each}" for each in ("type=overlay", "device=overlay", f"o={overlay}"))
    return "--mount", csv_line(
        "type=volume", f"target={target}", "volume-nocopy", f"volume-label={label}", "volume-driver=local", *options
    )


def csv_line(*fields: str) -> str:
    """Return the fields as --mount takes them: one line of CSV. Raises RefusedError for a path that it cannot name."""
    for field in fields:
        if odd := re.search("[\n\r\udc80-\udcff]", field):
            path = field.partition("=")[2]
            raise RefusedError(f"{path!r}: containers cannot mount a path with {odd[0]!r}; rename the folder")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def let_all_users_in(host: HostProcess) -> list[Path]:
    """Let the image's user, which may be any, read and write as in SageMaker; outside, only this user may enter the folders.

    Returns:
        The host's folders outside the run's own, whose owner must be this user again after the run.
    """
    for file in (host.root / contract.CONFIG_DIR).iterdir():
        file.chmod(0o644)
    pools = host.root.parents[2].absolute() / WARM_POOLS
    binds = [bind.source for bind in host.binds if not bind.read_only and bind.written is None]
    own = [folder for folder in binds if folder.is_relative_to(host.root.parent.absolute())]
    kept = [folder for folder in binds if folder.is_relative_to(pools)]
    for folder in (host.root, *kept):
        folder.parent.chmod(0o700)
    written = (host.root / name for name in (contract.MODEL_DIR, contract.OUTPUT_DIR, contract.OUTPUT_DATA_DIR))
    for folder in (host.root, *written):
        folder.chmod(0o777)
    for folder in (*own, *kept):
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink() and os.geteuid() in (0, path.stat().st_uid):
                path.chmod(path.stat().st_mode & 0o777 | (0o777 if path.is_dir() else 0o666))
    return kept
