"""The entry point of `launch` and of `python -m launcher`, in which Ctrl-C never ends in a traceback.

SIGTERM and SIGHUP count as Ctrl-C, so that a stopped command removes its temporary files.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

_INTERRUPTED = 130


def main() -> None:
    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32":
        numbers.append(signal.SIGHUP)
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` and `&` make the shell ignore some
            signal.signal(number, signal.default_int_handler)
    gc.set_threshold(50_000)  # this and `freeze` spare 50 ms of a dry run, whose imports make many objects
    try:
        from launcher.cli import main as run

        run()
    except KeyboardInterrupt:  # just before or after the command line handles it
        os._exit(_INTERRUPTED)
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
