"""Ranks as processes of this machine, forked from a server that has imported the frameworks once."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import socket
import traceback
import warnings
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from unittest import mock

from patience import PATIENCE

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["framework_loops"])
_HERE = Path(__file__).parent


class RankError(Exception):
    """What a rank has raised; the others, which may wait for it, are killed."""


def ranks(count: int, function: str, *arguments: Any) -> list[Any]:
    """Return what a function (`module.name`) returns on each of so many ranks, with the variables of a job of one host."""
    with mock.patch.dict(os.environ, PYTHONPATH=f"{_HERE}:{_HERE.parent}/entrypoints", OMP_NUM_THREADS="1"):
        forkserver.ensure_running()  # Before Python 3.13, its imports do not see this process's sys.path.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes, waiting = [], dict[Any, int]()
    for rank in range(count):
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_run, args=(sender, rank, count, port, function, arguments))
        process.start()
        sender.close()
        processes.append(process)
        waiting[receiver] = rank
    results: list[Any] = [None] * count
    try:
        while waiting:
            ready: Any = wait([*waiting], PATIENCE)
            if not ready:
                raise RankError(f"ranks {sorted(waiting.values())} hang")
            for receiver in ready:
                results[waiting.pop(receiver)] = receiver.recv()
            errors = [result for result in results if isinstance(result, RankError)]
            if errors:
                raise errors[0]
    finally:
        for process in processes:
            process.kill()
            process.join()
    return results


def _run(sender: Connection, rank: int, count: int, port: int, function: str, arguments: Any) -> None:
    warnings.simplefilter("ignore")
    multiprocessing.set_start_method("fork", force=True)  # for a DataLoader's workers
    variables = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count}
    os.environ.update({name: str(value) for name, value in variables.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        module, _, name = function.rpartition(".")
        sender.send(getattr(importlib.import_module(module), name)(*arguments))
    except BaseException:  # noqa: BLE001 - the test reports it
        sender.send(RankError(traceback.format_exc()))
    sender.close()
    os._exit(0)  # gloo's threads abort some exits
