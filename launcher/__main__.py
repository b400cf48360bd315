"""The entry point of `launch` and of `python -m launcher`, which lets no Ctrl-C end in a traceback or be lost.

Until the command line is imported, and after it has ended, Ctrl-C ends the process directly. In between it is raised as
KeyboardInterrupt, and raised again if it came inside a destructor or another callback, where Python drops exceptions: the
import of each module ends with such a callback.
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
    """Run the command line, and exit with its code."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it is ignored below `nohup` and `&`
    if is_usual:
        signal.signal(signal.SIGINT, _end)
    gc.set_threshold(50_000)  # collections among the many objects that imports make take 6 % of a dry run
    from launcher.cli import main as run

    try:
        if is_usual:
            sys.unraisablehook = _raise_again
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # just before or just after the command line's own handling
        _end()
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, _end)
        gc.freeze()  # otherwise Python searches all modules for cycles when it ends: 12 % of a dry run


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
    timer.start()  # not at once: Python drops what is raised here, too


if __name__ == "__main__":
    main()
