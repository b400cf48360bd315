"""Children of the tests do not find the machine's team file, which has no variable: Python imports this module at its start."""

from __future__ import annotations

import errno
import os
import sys

_HIDDEN = os.environ.get("HIDDEN_FILE")


def _hide(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and str(arguments[0]) == _HIDDEN:
        raise FileNotFoundError(errno.ENOENT, "hidden from tests", _HIDDEN)


if _HIDDEN:
    sys.addaudithook(_hide)
