"""Pipe mode: a FIFO per epoch, `<channel>_0`, `<channel>_1`, and so on without end, each filled while it is read.

When an epoch has been written, or its reader has closed the FIFO, the next epoch's FIFO replaces it. One thread per channel does
this. It never blocks in the kernel, so leaving is prompt even if a reader is slow or never opens the FIFO.

If the store fails in the middle of an epoch, the reader must not treat the part it has as the whole: `on_error` lets the runner
end the job, and until then the pipe stays open without data, so the reader waits instead of seeing an end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery
from launcher.local.providers.directories import for_each_delivery, remove_tree
from launcher.local.providers.pipe_content import Epochs, open_epochs
from launcher.local.providers.read_ahead import in_order, read_ahead
from sagemaker_channels.contract import epochs_name, fifo_name

_CAPACITY = 1 << 20  # bytes of the pipe, of 64 KiB by default: fewer switches between writer and reader
_SHORT, _LONG = 0.001, 0.05  # seconds between two attempts to find a reader: at first, and at most
_NO_FIFO = (errno.ENOENT, errno.ELOOP, errno.EISDIR)  # it is gone, or a link or a folder is in its place
_LOOK_MILLISECONDS = 100  # between two checks of the stop event while the pipe is full


@for_each_delivery
@contextmanager
def provide(delivery: Delivery) -> Iterator[Sequence[BindMount]]:
    """Make and write the FIFOs of all epochs, one after another; on leaving, no FIFO is left.

    Raises:
        RefusedError: The content cannot be found (see `open_epochs`), or a file has the FIFO's name.
    """
    delivery.data_dir.mkdir(parents=True, exist_ok=True)
    with open_epochs(delivery) as epochs:
        stop = Event()
        note = delivery.data_dir / epochs_name(delivery.name)  # its readers keep notes about the FIFOs of a run here
        note.unlink(missing_ok=True)
        first = _make_fifo(delivery, 0)
        delivery.on_delivered("a FIFO for each epoch", True)
        feeder = Thread(target=_feed, args=(delivery, epochs, first, stop), name=f"pipe-{delivery.name}", daemon=True)
        feeder.start()
        try:
            yield ()
        finally:
            stop.set()
            feeder.join()
            note.unlink(missing_ok=True)


def _make_fifo(delivery: Delivery, epoch: int) -> Path:
    path = delivery.data_dir / fifo_name(delivery.name, epoch)
    try:
        os.mkfifo(path)
    except OSError as error:
        what = f"channel {delivery.name!r}: cannot make the FIFO of epoch {epoch}, {path} ({error.strerror})"
        raise RefusedError(f"{what}; if another channel has this name, rename it") from error
    return path


def _feed(delivery: Delivery, epochs: Epochs, path: Path, stop: Event) -> None:
    """Write one epoch after another until `stop`; the feeder thread runs this."""
    for epoch in count():
        following = None
        try:
            with read_ahead(epochs(epoch), stop) if delivery.store.remote else in_order(epochs(epoch)) as chunks:
                following = _feed_epoch(delivery, path, epoch, chunks, stop)
        except Exception as error:  # noqa: BLE001 - the thread that runs the job handles every error
            _fail(delivery, error, stop)
        finally:
            remove_tree(path, delivery.on_warning)  # the job may have replaced it
        if following is None or stop.is_set():
            remove_tree(following or path, delivery.on_warning)
            return
        path = following


def _feed_epoch(delivery: Delivery, path: Path, epoch: int, chunks: Iterator[bytes], stop: Event) -> Path | None:
    """Write one epoch; return the next epoch's FIFO, or None after `stop`.

    The next FIFO is made before this one ends, so that a script can open it as soon as it has seen the end.
    """
    pipe = _open_when_read(path, stop)
    if pipe is None:
        return None
    try:
        with suppress(BrokenPipeError):  # the reader closed before the end: start the next epoch
            _send(delivery, pipe, chunks, stop)
        return None if stop.is_set() else _make_fifo(delivery, epoch + 1)
    except Exception as error:  # noqa: BLE001 - the thread that runs the job handles every error
        _fail(delivery, error, stop)
        return None
    finally:
        os.close(pipe)


def _fail(delivery: Delivery, error: Exception, stop: Event) -> None:
    """Report the error to the runner, and keep the pipe open until it leaves, so that the reader sees no end."""
    delivery.on_error(error)
    stop.wait()


def _open_when_read(path: Path, stop: Event) -> int | None:
    """Return the FIFO's writing end, non-blocking, once a reader has opened it; None after `stop`.

    If the job has removed or replaced the FIFO, it does not want the channel: wait for `stop`. Nothing is written into what is in
    its place: a link could lead a job in a container to files of this machine that only this user can write.
    """
    pause = _SHORT
    while not stop.wait(pause):
        try:
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _NO_FIFO:
                stop.wait()
                return None
            if error.errno != errno.ENXIO:  # no process reads it yet
                raise
        else:
            if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
                os.close(pipe)
                stop.wait()
                return None
            with suppress(AttributeError, OSError):  # not Linux, or beyond the user's limit for all pipes together
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CAPACITY)
            return pipe
        pause = min(2 * pause, _LONG)
    return None


def _send(delivery: Delivery, pipe: int, chunks: Iterable[bytes], stop: Event) -> None:
    writable = select.poll()
    writable.register(pipe, select.POLLOUT)
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            if stop.is_set():
                return
            try:
                sent = os.write(pipe, rest)
            except BlockingIOError:
                writable.poll(_LOOK_MILLISECONDS)
            else:
                rest = rest[sent:]
                delivery.on_bytes(sent)
