"""Run a script or notebook whose calls to AWS all reach the recorder of `launch import`; for any Python, without the launcher.

botocore's clients get the recorder's endpoints and keys, whatever the script gives them. As a second barrier, connections to other
addresses, names to look up and other programs are refused, also in libraries that do not use botocore.
"""

from __future__ import annotations

import json
import linecache
import logging
import os
import re
import runpy
import sys
import traceback
from contextlib import suppress
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

_PROGRAMS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile", "pty.spawn")
_IPYTHON = re.compile(r"\s*[%!?]|[\w\s,]+=\s*[%!]|[\w.]+\?+\s*$")  # `%pip install x`, `!ls`, `files = !ls`, `boto3?`
_OF_PYTHON_CELLS = ("%%time", "%%timeit", "%%capture")  # others hold another language, or write a file


def main() -> None:
    """Run the script that the first argument names, with the others."""
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # noqa: PTH100, PTH120 - as Python does for a script
    aws, s3 = os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_ENDPOINT_URL_S3"]
    _redirect(aws, s3, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    for part in ("", ".core"):  # the SDK's telemetry is refused as well, which is no news to the user
        logging.getLogger(f"sagemaker{part}.telemetry.telemetry_logging").setLevel(logging.CRITICAL)
    _refuse_others({(end.hostname, end.port) for end in map(urlsplit, (aws, s3))})
    if sys.argv[0].endswith(".ipynb"):
        _run_notebook(sys.argv[0])
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def _run_notebook(path: str) -> None:
    """Run a notebook's code cells as one script in the notebook's folder. Tracebacks name the cell, counted as after `Run All`."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as a string, which any Python opens
        cells = [cell["source"] for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
    os.chdir(sys.path[0])
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__["display"] = print
    # Python's own shows no line of a cell before 3.13.
    sys.excepthook = lambda *error: traceback.print_exception(*error)
    for number, source in enumerate(cells, 1):
        name = f"{os.path.basename(path)}, cell {number}"  # noqa: PTH119
        text = _without_ipython("".join(source), name)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), module.__dict__)


def _without_ipython(text: str, name: str) -> str:
    """Return a cell with `pass` for each line that is IPython's, which is named on standard error."""
    with suppress(SyntaxError):
        compile(text, name, "exec")
        return text
    is_other = text.startswith("%%") and not text.startswith(_OF_PYTHON_CELLS)
    kept: list[str] = []
    continues = is_other  # a line that is left out continues on the next one
    for number, line in enumerate(text.split("\n"), 1):
        is_left_out = continues or _IPYTHON.match(line) is not None
        if is_left_out and (number == 1 or not is_other):
            print(f"launch import: left out {name}, line {number}: {line.strip()}", file=sys.stderr)  # noqa: T201 - no launcher
        indent = line[: len(line) - len(line.lstrip())]
        kept.append(line if not is_left_out else "" if continues else f"{indent}pass")
        continues = is_other or (is_left_out and line.endswith("\\"))
    return "\n".join(kept)


def _redirect(aws: str, s3: str, key_id: str, secret: str) -> None:
    """Give every client of botocore the recorder's endpoint and keys. Some SDKs name AWS's own endpoints, as for STS."""
    try:
        from botocore.session import Session
    except ImportError:
        return
    create = Session.create_client

    def create_client(self: Any, service_name: str, region_name: Any = None, **settings: Any) -> Any:
        settings["endpoint_url"] = s3 if service_name == "s3" else aws
        settings |= {"aws_access_key_id": key_id, "aws_secret_access_key": secret, "aws_session_token": None}
        return create(self, service_name, region_name, **settings)

    setattr(Session, "create_client", create_client)  # noqa: B010 - mypy knows the method's own type


def _refuse_others(allowed: set[tuple[str | None, int | None]]) -> None:
    """Refuse connections to other addresses and starting other programs, with an OSError, which libraries handle."""
    hosts = {host for host, _ in allowed}

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            is_refused = address is not None and (not isinstance(address, tuple) or address[:2] not in allowed)
        elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            is_refused = arguments[0] not in hosts
        else:
            is_refused = event in _PROGRAMS
        if is_refused:
            what = arguments[1] if event.startswith("socket.") and len(arguments) > 1 else arguments[0]
            raise PermissionError(f"launch import: the script may reach only the recorder; refused: {event} {what!r}")

    try:
        import _posixsubprocess  # which multiprocessing uses without an event

        setattr(_posixsubprocess, "fork_exec", lambda *arguments: check("os.exec", arguments[:1]))  # noqa: B010
    except ImportError:
        pass
    sys.addaudithook(check)


if __name__ == "__main__":
    main()
