"""FUSE programs that mount the prefix as a folder, which plain `open()` reads: what is nearest to FastFile outside SageMaker."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sagemaker_channels.mounts.programs import TOOLS, MountFailedError, View, mounted
from sagemaker_channels.ways import ours
from sagemaker_channels.ways.card import Need, Source, Way

_log = logging.getLogger(__name__)


def _over_mount(program: str, source: Source) -> Any:
    """Mount the prefix until `source.exits` is closed, and read its files by `open()`.

    Raises:
        MountFailedError: The program cannot mount it.
    """
    scratch = Path(source.exits.enter_context(tempfile.TemporaryDirectory(prefix=f"{program}-"))).resolve()
    (directory := scratch / "mount").mkdir()
    bucket, _, prefix = str(source.channel.s3_uri).removeprefix("s3://").partition("/")
    key = f"{prefix}/" if prefix and not prefix.endswith("/") else prefix
    store = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    view = View({"": (bucket, key)}, directory, scratch, store)
    reasons = []
    for tool in TOOLS:
        if tool.program == program and not tool.can_combine:
            try:
                source.exits.enter_context(mounted(tool, view, shutil.which, _log.warning))
            except MountFailedError as error:
                reasons.append(str(error))
                continue
            return ours.plain_files(replace(source, channel=replace(source.channel, path=directory)))
    raise MountFailedError("; ".join(dict.fromkeys(reasons)))


WAYS = tuple(
    Way(
        name=name,
        title=f"{name} mount",
        row=15,
        arrivals=("s3",),
        needs=(Need(program, install, is_program=True), Need("fusermount3", "apt-get install fuse3", is_program=True)),
        open=partial(_over_mount, program),
    )
    for name, program, install in (
        ("rclone", "rclone", "apt-get install rclone"),
        ("s3fs-fuse", "s3fs", "apt-get install s3fs"),
        ("mount-s3", "mount-s3", "see https://github.com/awslabs/mountpoint-s3"),
        ("goofys", "goofys", "see https://github.com/kahing/goofys"),
    )
)
