"""Added latency before the first byte of each response, for measurements and tests.

Readers differ in the number of their concurrent requests. This shows at S3, where the first byte takes 10 to 100 ms, but not on
loopback, where it takes 0.1 ms. It is not an option of the launcher, since a local run gains nothing from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from launcher.local.s3_server.wire import Answer, Request, Response


def delayed(seconds: float) -> Callable[[Answer], Answer]:
    """Return a value for `serve`'s `around` that delays every response by `seconds`; connections wait independently."""

    def around(answer: Answer) -> Answer:
        def late(request: Request) -> Response:
            time.sleep(seconds)
            return answer(request)

        return late

    return around
