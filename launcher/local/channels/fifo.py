"""Pipe mode: a FIFO per epoch, `<channel>_0`, `<channel>_1`, and so on without end, each filled while it is read.

When an epoch has been written, or its reader has closed the FIFO, the next epoch's FIFO replaces it. One thread per channel does
this. It never blocks in the kernel, so leaving is prompt even if a reader is slow or never opens the FIFO.

If the store fails in the middle of an epoch, the reader must not treat the part it has as the whole: `on_error` lets the runner
end the job, and until then the pipe stays open without data, so the reader waits instead of seeing an end.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread

from launcher.errors import RefusedError
from launcher.local.channels.delivery import Delivery
from launcher.local.channels.pipe_content import Epochs, epochs_of, joined
from launcher.local.leftovers import remove_tree
from sagemaker_channels.contract import epochs_name, fifo_name

_SHORT, _LONG = 0.001, 0.05  # seconds between two attempts to find a reader: at first, and at most
_LOOK_MILLISECONDS = 100  # between two checks of the stop event while the pipe is full
_QUIT_SECONDS = 2  # to wait for the feeder; if the network hangs, its own timeout ends it later


@contextmanager
def provide(delivery: Delivery) -> Iterator[None]:
    """Make and write the FIFOs of all epochs, one after another; on leaving, no FIFO is left.

    Raises RefusedError if the content cannot be found (see `epochs_of`), or if a file has the FIFO's name.
    """
    delivery.data_dir.mkdir(parents=True, exist_ok=True)
    epochs, stop = epochs_of(delivery), Event()
    note = delivery.data_dir / epochs_name(delivery.name)  # its readers keep notes about the FIFOs of a run here
    note.unlink(missing_ok=True)
    made = [_make_fifo(delivery, 0)]
    delivery.on_delivered("a FIFO for each epoch", True)
    feeder = Thread(target=_feed, args=(delivery, epochs, made, stop), name=f"pipe-{delivery.name}", daemon=True)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join(_QUIT_SECONDS)
        for path in made[-2:]:
            remove_tree(path, delivery.on_warning)  # the job may have replaced it
        note.unlink(missing_ok=True)


def _make_fifo(delivery: Delivery, epoch: int) -> Path:
    path = delivery.data_dir / fifo_name(delivery.name, epoch)
    try:
        os.mkfifo(path)
    except OSError as error:
        what = f"channel {delivery.name!r}: cannot make the FIFO of epoch {epoch}, {path} ({error.strerror})"
        raise RefusedError(f"{what}; if another channel has this name, rename it") from error
    return path


def _feed(delivery: Delivery, epochs: Epochs, made: list[Path], stop: Event) -> None:
    """Write one epoch after another until `stop`, each into the last of the FIFOs `made`; the feeder thread runs this.

    The next FIFO is made before this one ends, so that a script can open it as soon as it has seen the end.
    """
    for epoch in count():
        pipe = -1
        try:
            with closing(joined(epochs(epoch))) as chunks:
                pipe = _open_when_read(made[-1], stop)
                with suppress(BrokenPipeError):  # the reader closed before the end: start the next epoch
                    _send(delivery, pipe, chunks, stop)
            if not stop.is_set():
                made.append(_make_fifo(delivery, epoch + 1))
        except Exception as error:  # noqa: BLE001 - the thread that runs the job handles every error
            delivery.on_error(error)
            stop.wait()  # the pipe stays open, so that the reader sees no end
        finally:
            if pipe >= 0:
                os.close(pipe)
        if stop.is_set():
            return
        remove_tree(made[-2], delivery.on_warning)  # the job may have replaced it


def _open_when_read(path: Path, stop: Event) -> int:
    """Return the FIFO's writing end, non-blocking, once a reader has opened it; -1 after `stop`.

    If the job has removed or replaced the FIFO, it does not want the channel: wait for `stop`. Nothing is written into what is in
    its place: a link could lead a job in a container to files of this machine that only this user can write.
    """
    pause = _SHORT
    while not stop.wait(pause):
        if not path.is_fifo() or path.is_symlink():
            stop.wait()
            break
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no process reads it yet
                raise
        pause = min(2 * pause, _LONG)
    return -1


def _send(delivery: Delivery, pipe: int, chunks: Iterable[bytes], stop: Event) -> None:
    if pipe < 0:
        return
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
