"""An S3 that is far away: the time that passes before the first byte of each answer, for measurements and tests.

Readers differ in how many requests they have under way at once, and on loopback, where an answer takes a tenth of a
millisecond, that does not show. At S3 the first byte takes 10 to 100 ms. Not an option of the launcher: a local run has
nothing to gain from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from launcher.local.s3_server.wire import Answer, Request, Response


def delayed(seconds: float) -> Callable[[Answer], Answer]:
    """For `serve`'s `around`: every answer begins `seconds` later. Each connection waits for itself, as at S3."""

    def around(answer: Answer) -> Answer:
        def late(request: Request) -> Response:
            time.sleep(seconds)
            return answer(request)

        return late

    return around
