"""`python -m aws_stand_in --port 0`: start the stand-in, print its address, and serve until it is ended."""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import threading

from aws_stand_in.server import Server, serve


def main() -> None:
    """Parse the arguments and serve; ends on SIGINT and SIGTERM, and with `--with-stdin` at the end of standard input."""
    parser = argparse.ArgumentParser(prog="aws_stand_in", description="A stand-in for AWS, in front of moto.")
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
    server = Server(arguments.port)
    serve(server)
    gc.freeze()  # Else collections of garbage go through moto's objects.
    gc.set_threshold(50_000)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    ended.wait()
    server.shutdown()


def _end_with_stdin(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
