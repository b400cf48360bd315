"""The entry point of `launch` and of `python -m launcher`, in which Ctrl-C never ends in a traceback.

SIGTERM and SIGHUP count as Ctrl-C, so that a stopped command removes its temporary files. Until the command line is imported, and
after it has ended, Ctrl-C ends the process directly; in between it raises KeyboardInterrupt.
"""

from __future__ import annotations

import gc
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_INTERRUPTED = 130
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # `kill` and a closed terminal end a command as Ctrl-C does


def main() -> None:
    """Run the command line and exit with its code."""
    # `nohup` and `&` make the shell ignore some.
    heard = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    _handle(heard, _end)
    gc.set_threshold(50_000)  # collecting among the many objects of imports takes 6 % of a dry run
    from launcher.cli import main as run

    try:
        _handle(heard, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # just before or after the command line handles it
        _end()
    finally:
        _handle(heard, _end)
        gc.freeze()  # otherwise Python searches all modules for cycles at its exit: 12 % of a dry run


def _handle(numbers: list[signal.Signals], handler: Callable[[int, FrameType | None], object]) -> None:
    for number in numbers:
        signal.signal(number, handler)


def _end(*_: object) -> None:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
