"""The entry point of `launch` and of `python -m launcher`, in which no Ctrl-C is lost or ends in a traceback.

Until the command line is imported, and after it has ended, Ctrl-C ends the process directly. In between it raises
KeyboardInterrupt, and raises it again if Python dropped it inside a destructor or another callback: the import of each
module ends with such a callback.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_INTERRUPTED = 130
_AGAIN_SECONDS = 0.02


def main() -> None:
    """Run the command line and exit with its code."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # `nohup` and `&` make the shell ignore it
    if is_usual:
        signal.signal(signal.SIGINT, _end)
    gc.set_threshold(50_000)  # collecting among the many objects of imports takes 6 % of a dry run
    from launcher.cli import main as run

    try:
        if is_usual:
            sys.unraisablehook = _raise_again
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # just before or after the command line handles it
        _end()
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, _end)
        gc.freeze()  # otherwise Python searches all modules for cycles at its exit: 12 % of a dry run


def _end(*_: object) -> None:
    os._exit(_INTERRUPTED)


def _raise_again(dropped: UnraisableHookArgs) -> None:
    if dropped.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(dropped)
        return
    import _thread
    import threading

    timer = threading.Timer(_AGAIN_SECONDS, _thread.interrupt_main)
    timer.daemon = True
    timer.start()  # later, since Python drops what is raised here, too


if __name__ == "__main__":
    main()
