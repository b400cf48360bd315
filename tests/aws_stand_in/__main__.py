"""`python -m aws_stand_in --port 0`: start moto and the stand-in in front of it, print its address, and serve until it is ended."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from typing import IO

from aws_stand_in.server import Server, serve


def main() -> None:
    """Parse the arguments and serve; ends on SIGINT and SIGTERM, and with `--with-stdin` at the end of standard input."""
    parser = argparse.ArgumentParser(prog="aws_stand_in", description="A stand-in for AWS, in front of a moto server.")
    parser.add_argument("--port", type=int, default=0, help="where to listen on 127.0.0.1; 0 takes a free port")
    parser.add_argument(
        "--with-stdin", action="store_true", help="end when standard input ends, as it does with its parent"
    )
    arguments = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    if arguments.with_stdin:
        threading.Thread(target=_end_with_stdin, args=(ended,), daemon=True).start()
    environ = {"MOTO_EC2_LOAD_DEFAULT_AMIS": "false", **os.environ}
    command = [sys.executable, "-m", "moto.server", "-p", "0"]
    moto = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert moto.stderr is not None
        server = Server(arguments.port, _port_of(moto.stderr))
        threading.Thread(target=_drain, args=(moto.stderr,), daemon=True).start()
        serve(server)
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        while not ended.wait(0.5):
            if moto.poll() is not None:
                sys.exit(f"moto's server has ended by itself, with status {moto.returncode}")
        server.shutdown()
    finally:
        moto.terminate()
        moto.wait()


def _port_of(lines: IO[str]) -> int:
    """Return the port that moto reports. Exits if it reports none."""
    printed = []
    for line in lines:
        printed.append(line)
        if "Running on http://" in line:
            return int(line.rstrip().rpartition(":")[2].split("/")[0])
    sys.exit("moto's server does not start:\n" + "".join(printed))


def _end_with_stdin(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def _drain(lines: IO[str]) -> None:
    for _ in lines:
        pass


if __name__ == "__main__":
    main()
