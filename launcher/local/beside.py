"""Run a program beside a job's script, or before that has started, beside PID 1, with its variables and working directory.

    python3 -c TEXT_OF_THIS_FILE MARK COMMAND...

MARK is in the variables of the job's processes. Any Python 3 of an image runs this, without the launcher. Ctrl-C is for the
command alone, and nsenter, which ignores it, cannot pass on that a signal ended the command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path


def main(mark: str, command: Sequence[str]) -> int:
    found = {int(each.name): _variables_of(each) for each in Path("/proc").glob("[0-9]*")}
    pids = sorted((b"\0SM_CURRENT_HOST=" not in text, pid) for pid, text in found.items() if mark.encode() in text)
    if not pids:
        sys.exit("launch exec: the job has no process in this host now")
    pid = pids[0][1]
    environ = dict(each.split(b"=", 1) for each in found[pid].split(b"\0") if b"=" in each)
    environ.pop(b"LAUNCHER_SECRETS", None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    code = subprocess.call(command, env=environ, cwd=f"/proc/{pid}/cwd", preexec_fn=default)
    return code if code >= 0 else 128 - code


def _variables_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
