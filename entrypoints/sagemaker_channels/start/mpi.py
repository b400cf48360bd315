"""mpirun on all hosts of a job, without ssh.

mpirun runs on the first host and starts a daemon of its own on the others, by a program such as ssh, which SageMaker's hosts have
only if the image has sshd and a key (the toolkit's and SDK v3's MPI need both). Here that program is this module: for each other
host it waits until the host connects, and sends it the daemon's command. The other hosts run `join` meanwhile. Only the first host
listens, and no host runs what an unknown one has sent: each has connected to the first host by its name.

All settings are defaults of mpirun's in variables, for Open MPI 4 (OMPI_MCA_*) and 5 (PRTE_MCA_*), so that the command's own
options win. Each rank has the variables of its own host.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread

PROGRAMS = ("mpirun", "mpiexec")
_JOIN = [sys.executable, "-m", "sagemaker_channels.start.mpi"]
_AGENT = " ".join(_JOIN)
_PAUSE_SECONDS = 0.2  # between two attempts to reach the first host
_START_SECONDS = 300  # for a host to connect: it may still install its requirements
_END_SECONDS = 30
_END = ""  # the command after which a host ends


def words_on(variables: Mapping[str, str], words: list[str]) -> list[str]:
    """Return what this host runs of an mpirun command: the first host the command, the others what waits for mpirun's daemons."""
    return words if _is_first(variables) else _JOIN


def variables_of(hostfile: str, interface: str | None, grace_seconds: int) -> dict[str, str]:
    """Return mpirun's settings: the hosts, how it starts its daemons, no binding to cores, and time to save after SIGTERM."""
    both = {
        "rmaps_base_oversubscribe": "1",  # `-np` can be more than one process for each accelerator.
        "odls_base_sigkill_timeout": str(grace_seconds),  # between its SIGTERM and SIGKILL; 1 s by default
    }
    four = {
        "orte_default_hostfile": hostfile,
        "plm_rsh_agent": _AGENT,
        "plm_rsh_no_tree_spawn": "1",  # The first host starts all.
        "hwloc_base_binding_policy": "none",  # By default, two ranks get a core each, with all their DataLoader workers.
        "btl_vader_single_copy_mechanism": "none",  # Containers may not read other processes' memory.
        **({"btl_tcp_if_include": interface, "oob_tcp_if_include": interface} if interface else {}),
    }
    five = {
        "prte_default_hostfile": hostfile,
        "plm_ssh_agent": _AGENT,
        "plm_ssh_no_tree_spawn": "1",
        "hwloc_default_binding_policy": "none",
        "rmaps_default_mapping_policy": "slot:oversubscribe",
        **({"prte_if_include": interface} if interface else {}),
    }
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **{f"OMPI_MCA_{name}": value for name, value in (both | four).items()},
        **{f"PRTE_MCA_{name}": value for name, value in (both | five).items()},
    }


def end(variables: Mapping[str, str]) -> None:
    """On the first host, end the others: mpirun has ended."""
    until = time.monotonic() + _END_SECONDS
    for host in _hosts(variables)[1:] if _is_first(variables) else ():
        with suppress(OSError), _connected(variables, host, max(until - time.monotonic(), 0.1)) as connection:
            connection.sendall(json.dumps(_END).encode() + b"\n")


def _start_daemon(host: str, command: str) -> int:
    """Run the command of mpirun's daemon on a host and return its exit code."""
    if host == os.environ["SM_CURRENT_HOST"]:
        return subprocess.call(["/bin/sh", "-c", command])
    try:
        with _connected(os.environ, host, _START_SECONDS) as connection:
            connection.sendall(json.dumps(command).encode() + b"\n")
            return int(connection.makefile().readline() or 1)
    except TimeoutError:
        print(f"boot: {host} did not connect within {_START_SECONDS} s; see that host's log", file=sys.stderr)
    except OSError as error:
        print(f"boot: {host} cannot be reached: {error}; see that host's log", file=sys.stderr)
    return 1


def _join() -> int:
    """Run the commands that the first host sends, until it sends the end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)  # mpirun passes on its own.
    address = (os.environ["SM_MASTER_ADDR"], _port(os.environ, os.environ["SM_CURRENT_HOST"]))
    while True:
        try:
            connection = socket.create_connection(address, timeout=_START_SECONDS)
            if connection.getsockname() == connection.getpeername():  # A port of this machine can connect to itself.
                connection.close()
                continue
            line = connection.makefile().readline()
        except OSError:  # mpirun is not running yet, or it runs
            time.sleep(_PAUSE_SECONDS)
            continue
        command = json.loads(line) if line else None
        if command == _END:
            return 0
        if command is not None:
            process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL)
            Thread(target=_report, args=(process, connection), daemon=True).start()


def _report(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    code = process.wait()
    with suppress(OSError), connection:  # The agent has gone.
        connection.sendall(f"{code}\n".encode())


def _connected(variables: Mapping[str, str], host: str, seconds: float) -> socket.socket:
    """Return the connection of another host. Raises OSError if there is none in time."""
    with socket.create_server(("", _port(variables, host))) as server:
        server.settimeout(seconds)
        connection, _ = server.accept()
        connection.settimeout(None)
        return connection


def _is_first(variables: Mapping[str, str]) -> bool:
    return _hosts(variables)[0] == variables["SM_CURRENT_HOST"]


def _hosts(variables: Mapping[str, str]) -> list[str]:
    return sorted(json.loads(variables["SM_HOSTS"]))


def _port(variables: Mapping[str, str], host: str) -> int:
    """Return the port of the first host to which another host connects; MASTER_PORT itself is the training's."""
    return int(variables["SM_MASTER_PORT"]) + _hosts(variables).index(host)


def main(arguments: Sequence[str]) -> int:
    """Be the agent of mpirun, with a host and a command, or without arguments one of the other hosts."""
    return _start_daemon(arguments[0], " ".join(arguments[1:])) if arguments else _join()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
