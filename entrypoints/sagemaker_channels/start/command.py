"""The command of `code.command`: what is started in the container, with which arguments, and what a launcher learns of the hosts.

A text is a line of bash, a list is a program with its arguments, which no shell reads. torchrun takes its place among the hosts
from PET_* variables, as its options' defaults, so `torchrun train.py` is right on any number of hosts; other launchers get it as
options, which the user writes with $NODE_RANK, $SM_HOST_COUNT, $MASTER_ADDR and $MASTER_PORT. mpirun is in `mpi`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from sagemaker_channels import contract

Command = str | Sequence[str]
_NAME_LENGTH = 80
_ARGUMENTS = ("$@", "$*", "${@", "${*")


def command_words(command: Command, arguments: Sequence[str], path: str | None) -> list[str]:
    """Return the program and arguments to start. The hyperparameters are `$@` of a shell line; without it they follow its end."""
    if not isinstance(command, str):
        return [*command, *arguments]
    line = command.strip()
    if not has_arguments(line):
        line += ' "$@"'
    bash = shutil.which("bash", path=path)
    shell = [bash, "-eo", "pipefail", "-c"] if bash else ["/bin/sh", "-ec"]
    return [*shell, line, "sh", *arguments]


def has_arguments(line: str) -> bool:
    """Return whether a shell line says where the hyperparameters belong."""
    return any(each in line for each in _ARGUMENTS)


def program_of(command: Command) -> str:
    """Return the name of the program that a command begins with; empty if it begins with something else."""
    words = command.split(maxsplit=1) if isinstance(command, str) else command
    return PurePosixPath(words[0]).name if words else ""


def name_of(command: Command) -> str:
    text = " ".join((command if isinstance(command, str) else " ".join(command)).split())
    return text if len(text) <= _NAME_LENGTH else f"{text[:_NAME_LENGTH]}..."


def command_files(command: Command) -> list[str]:
    """Return the scripts that a command names by a relative path."""
    words = command.split() if isinstance(command, str) else command
    return [word for word in words if re.fullmatch(r"[\w.][\w./-]*\.(py|sh)", word)]


def show_bundled_scripts(command: Command, code_dir: Path, bundle: Path) -> None:
    """Let a command name the bundled scripts by `entrypoints/<name>.py`, as an entry point does, if the code has no such folder."""
    named = code_dir / contract.SCRIPTS_DIR
    words = [command] if isinstance(command, str) else command
    if any(f"{contract.SCRIPTS_DIR}/" in word for word in words) and not named.exists():
        named.symlink_to(bundle / contract.SCRIPTS_DIR)


def host_variables(variables: Mapping[str, str], processes: int) -> dict[str, str]:
    """Return this host's place among the hosts, for launchers: NODE_RANK, and the defaults of torchrun's options.

    `processes` is their number on each host.

    torchrun gets a static rendezvous, since every host knows its rank. RANK and WORLD_SIZE are those of a process, which its
    launcher sets: set for a host, they would be taken for those of a launcher by accelerate and Lightning.
    """
    several = variables["SM_HOST_COUNT"] != "1"
    return {
        "NODE_RANK": variables["SM_CURRENT_HOST_RANK"],
        "PET_NNODES": variables["SM_HOST_COUNT"],
        "PET_NODE_RANK": variables["SM_CURRENT_HOST_RANK"],
        "PET_NPROC_PER_NODE": str(processes),
        "PET_MASTER_ADDR": variables["SM_MASTER_ADDR"] if several else "127.0.0.1",
        "PET_MASTER_PORT": variables["SM_MASTER_PORT"],
    }
