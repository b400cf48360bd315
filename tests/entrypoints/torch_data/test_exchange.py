"""What ranks ask each other through the job's store."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from patience import PATIENCE
from sagemaker_channels.torch_data import ranks

SCRIPT = """
import os, subprocess, sys, time
from datetime import timedelta
import torch.distributed as distributed
from sagemaker_channels.torch_data import ranks
server = "import torch.distributed as d, time; s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)"
server += "; print(s.port, flush=True); time.sleep(600)"
rank_0 = subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True)
port = int(rank_0.stdout.readline())
store = distributed.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=600))
distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
ranks.STORE_SECONDS = 1.0
rank_0.kill()
rank_0.wait()
print(ranks.exchange("objects", "1"), flush=True)
os._exit(0)
"""


def test_rank_0_that_has_died_is_not_waited_for_as_long_as_the_group_would(tmp_path: Path) -> None:
    library = str(Path(__file__).parents[3] / "entrypoints")
    process = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {library!r})\n{SCRIPT}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert process.stdout == "None\n"
    assert "objects: is not compared with what other ranks read" in process.stderr


def test_torch_without_libuv_compares_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's build refuses even clients that ask for it, as they do by default."""
    distributed: Any = torch.distributed
    server = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def without_libuv(*args: Any, use_libuv: bool = True, **others: Any) -> Any:
        if use_libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was built without libuv support")
        return store(*args, **others, use_libuv=False)

    store = distributed.TCPStore
    monkeypatch.setattr(distributed, "TCPStore", without_libuv)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(server.port))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setattr(ranks, "stores", {})
    assert ranks.exchange("objects", "1") == "1"


def test_store_that_is_connected_but_never_answers_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As that of a rank 0 that was killed, whose workers have inherited its socket: they waited for ever, as orphans."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(listening.getsockname()[1]))
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
        monkeypatch.setattr(ranks, "STORE_SECONDS", 1.0)
        monkeypatch.setattr(ranks, "stores", {})
        assert ranks.exchange("objects", "1") is None
        assert ranks.exchange("objects", "1") is None  # at once
    assert "the job's store has not answered for 1.5 s" in capfd.readouterr().err
