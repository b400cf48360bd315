"""Helpers of the tee's tests: a Pipe whose epochs are larger than the ring, and readers in processes of their own."""

from __future__ import annotations

import hashlib
import json
import os
import random
import textwrap
from contextlib import closing
from pathlib import Path
from subprocess import PIPE
from typing import Any

from forked import Forked
from patience import in_threads, wait_for
from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sources import pipe_record, tee

DATA = random.Random(1).randbytes(20_000_003)


def content(fifo: int) -> bytes:
    return b"%d:" % fifo + DATA


def digest(data: bytes) -> str:
    return f"{data[:20].split(b':')[0].decode()} {len(data)} {hashlib.sha256(data).hexdigest()}"


def whole(fifo: int) -> str:
    """What a reader reports of an epoch that it has read whole."""
    return digest(content(fifo))


def pipe(root: Path, name: str = "lines") -> Channel:
    return Channel(name, "Pipe", None, "FullyReplicated", "None", root / contract.DATA_DIR / name)


def bytes_of(channel: Channel, epoch: int, readers: int, reader: int) -> bytes:
    stream = tee.open_stream(channel, epoch, readers, reader=reader)
    assert stream is not None
    with closing(stream):
        return stream.read()


def opened(channel: Channel, epoch: int, readers: int) -> list[Any]:
    """The streams of all readers of an epoch."""
    return in_threads(lambda number: tee.open_stream(channel, epoch, readers, reader=number), readers)


def side_by_side(channel: Channel, epoch: int, readers: int) -> list[Any]:
    """What each of several threads reads, as `digest` says, or its error."""

    def read(number: int) -> str:
        try:
            return digest(bytes_of(channel, epoch, readers, number))
        except ChannelError as error:
            return str(error)

    return in_threads(read, readers)


def wait_for_requests(channel: Channel, count: int) -> None:
    wait_for(lambda: len(pipe_record.table_of(channel)) >= count)


SCRIPT = """
    import json, os, sys
    from contextlib import closing
    from pathlib import Path
    from sagemaker_channels.sources import ring
    from sagemaker_channels.sources.tee import open_stream
    from tee_readers import digest, pipe

    root, readers, number, how, *epochs = json.loads(sys.argv[1])
    if how == "comes too late":
        ring.RingStream = lambda *arguments: os.kill(os.getpid(), 9)
    for epoch in epochs:
        is_first = epoch == epochs[0]
        stream = open_stream(pipe(Path(root)), epoch, readers, finished=how == "finished" and is_first, reader=number)
        if stream is None:
            print(json.dumps(None), flush=True)
            continue
        if how == "dies":  # in the middle of a read of the FIFO
            read = os.readv
            os.readv = lambda *arguments: (read(*arguments), os.kill(os.getpid(), 9))[0]
        with closing(stream):
            if how == "begins":  # and waits to be ended
                stream.read(1)
                print(json.dumps("begun"), flush=True)
                sys.stdin.read()
            print(json.dumps(digest(stream.read(1 if how == "leaves" and is_first else -1))), flush=True)
        if how == "pauses":
            sys.stdin.readline()
"""


def started(root: Path, readers: int, number: int, how: str, *epochs: int, **environ: str) -> Forked:
    """A process of its own that reads these epochs and prints, in JSON, what `digest` says of each."""
    command = ["-c", textwrap.dedent(SCRIPT), json.dumps([str(root), readers, number, how, *epochs])]
    return Forked((__name__,), command, environ={**os.environ, **environ}, streams=(PIPE, PIPE, PIPE))
