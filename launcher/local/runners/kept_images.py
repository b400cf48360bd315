"""Containers of hosts that have ended, kept as images for a look.

A container itself could not start again, since its network and its channels' mounts are gone. An image has what the job wrote
outside its volumes and the folders of this machine, which the command that enters it mounts. It has no variable and no argument of
the job, since they were never part of the container's settings.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from launcher.console import Console
from launcher.errors import RefusedError
from launcher.local.runners import BEST_SHELL, HostProcess, Kept
from launcher.local.runners.engine import Engine, Image
from launcher.local.runners.mounts import folder_mounts, mount_options


def kept_images(engine: Engine, image: Image, hosts: Mapping[str, HostProcess], label: str, console: Console) -> Kept:
    """Make an image of each host's container, which starts a shell, and warn of those of which that fails.

    Args:
        engine: The engine.
        image: The containers' image.
        hosts: The hosts, by the names of their containers.
        label: Replaces the run's label, by which containers of the image would be removed.
        console: Where warnings are printed.
    """
    entry, *arguments = BEST_SHELL
    changes = (f"LABEL {label}", f"ENTRYPOINT {json.dumps([entry])}", f"CMD {json.dumps(arguments)}")
    enter, made = {}, []
    for name, host in hosts.items():
        kept = f"launch-kept:{name}"
        try:
            engine.ask("commit", *(word for each in changes for word in ("--change", each)), name, kept)
        except RefusedError as error:
            console.warn(f"{host.name} is kept without an image ({error})")
            continue
        made.append(kept)
        checkpoints = [bind for bind in host.binds if bind.source.parent == host.root.parent.absolute()]
        mounts = [option for bind in checkpoints for option in mount_options(host, bind, engine.dialect, label)]
        options = ("--rm", "-it", "--security-opt", "label=disable", *folder_mounts(host, image.volumes), *mounts)
        enter[host.name] = shlex.join([engine.name, "run", *options, kept])
    return Kept(enter, (shlex.join([engine.name, "rmi", *made]),) if made else ())
