"""Pages of a listing of S3 by botocore's requests: from any key on, many at a time, parsed in a millisecond each.

The connector's client lists only from a prefix's beginning, one page after the other. So a long listing is completed here, if
botocore is installed, as it is in SageMaker's images. What fails here is left to the client, which reports why.

The keys after a given one are divided into ranges, as more of them are known. A thread lists a range page by page. If fewer threads
run than may, it leaves the second half of what seems to be left of its range to another one: the middle is a key made of the
characters that keys have had so far. The ranges always cover all keys, so a bad guess costs a request, but never an object.
"""

from __future__ import annotations

import operator
import os
import re
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from html import unescape
from itertools import takewhile
from queue import SimpleQueue
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from sagemaker_channels.contract import DIRECTORY_BUCKET
from sagemaker_channels.sources.background import in_background
from sagemaker_channels.sources.connector_client import Place
from sagemaker_channels.sources.listing import Page, page_of, version_of
from sagemaker_channels.sources.s3_owners import owner_of

# Requests a page: the first one after a key, or the one of a token. Returns it and the token of the next one (None: no more).
Request = Callable[[bytes, str | None], tuple[Page, str | None]]

THREADS = 32
_SPLIT = 2000  # keys that a range must seem to have left
_SPLITS = 8  # of one range after a page: keys that begin with the same unknown characters need many
_DIGITS = 40  # characters of a key that are compared
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.2  # before the second attempt; doubles each time
_TIMEOUT = 20  # seconds, to connect and for each byte
_OBJECT = re.compile(
    r"<Contents><Key>([^<]*)</Key>(?:<LastModified>[^<]*</LastModified>)?<ETag>([^<]*)</ETag>"
    r"(?:<Checksum\w+>[^<]*</Checksum\w+>)*<Size>(\d+)</Size>"
)
_TOKEN = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_PLAIN_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


class UnsuitableError(Exception):
    """The store cannot be listed in this way, but perhaps page by page."""


class _Ranges:
    def __init__(self, prefix: bytes, request: Request) -> None:
        self.found: SimpleQueue[Page | BaseException | None] = SimpleQueue()  # None: a range has ended
        self.begun = 0  # ranges
        self.stopped = False
        self._prefix, self._request = prefix, request
        self._lock, self._running = threading.Lock(), 0
        self._letters: list[str] = []

    def begin(self, low: bytes, high: bytes | None) -> None:
        """List the keys after `low` up to `high`, None for all, in a thread."""
        self.begun += 1
        self._running += 1
        in_background(lambda: self._run(low, high), "listing")

    def _run(self, low: bytes, high: bytes | None) -> None:
        try:
            self._list(low, high)
        except BaseException as error:  # noqa: BLE001 - raised by `pages_after`
            self.found.put(error)
        with self._lock:
            self._running -= 1
        self.found.put(None)

    def _list(self, low: bytes, high: bytes | None) -> None:
        start, count, token = low, 0, None
        while not self.stopped:
            page, token = self._request(low, token)
            keys = page.keys
            if keys and not (low < keys[0] and all(map(operator.lt, keys, keys[1:]))):
                raise UnsuitableError("the keys are not in order")
            inside = len(keys) if high is None else bisect_right(keys, high)
            self.found.put(Page(keys[:inside], page.sizes[:inside], page.versions[:inside]))
            if token is None or inside < len(keys):
                return
            if keys:
                low, count = keys[-1], count + inside
                with self._lock:
                    self._letters = sorted({*self._letters, *b"".join(keys[::97]).decode("utf-8", "replace")})
                    high = self._split(start, low, high, count)

    def _split(self, start: bytes, low: bytes, high: bytes | None, count: int) -> bytes | None:
        """Leave the end of a range to other threads, and return where it ends then; `count` keys after `start` are listed."""
        for _ in range(min(_SPLITS, THREADS - self._running)):
            common = self._prefix if high is None else _common(start, high)
            base = len(self._letters) + 1
            first, reached = self._number(start, common), self._number(low, common)
            last = base**_DIGITS if high is None else self._number(high, common)
            if count * (last - reached) < _SPLIT * (reached - first):
                break
            number, digits = (reached + last) // 2, list[int]()
            for _ in range(_DIGITS):
                number, digit = divmod(number, base)
                digits.append(digit)
            letters = (self._letters[digit - 1] for digit in takewhile(bool, reversed(digits)))  # The key ends at a 0.
            middle = common + "".join(letters).encode()
            if not (low < middle and (high is None or middle < high)):
                break
            self.begin(middle, high)
            high = middle
        return high

    def _number(self, key: bytes, common: bytes) -> int:
        """Return a key that begins with `common` as a number with a digit for each of the next characters."""
        number, base = 0, len(self._letters) + 1
        for letter in key[len(common) :].decode("utf-8", "replace")[:_DIGITS].ljust(_DIGITS, "\0"):
            number = number * base + (bisect_left(self._letters, letter) + 1 if letter != "\0" else 0)
        return number


def _common(one: bytes, other: bytes) -> bytes:
    count = next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[:count].decode("utf-8", "ignore").encode()


def pages_after(prefix: bytes, after: bytes, request: Request) -> Iterator[Page]:
    """Yield all pages of a prefix after a key with that prefix, in any order. Raises UnsuitableError if that fails."""
    ranges, ended = _Ranges(prefix, request), 0
    try:
        ranges.begin(after, None)
        while ended < ranges.begun:
            found = ranges.found.get()
            if isinstance(found, BaseException):
                raise UnsuitableError(str(found)) from found
            if found is None:
                ended += 1
            else:
                yield found
    finally:
        ranges.stopped = True


def rest(bucket: str, prefix: str, where: Place, after: bytes) -> Iterator[Page]:
    """Yield all pages of a prefix after a key, in any order. Raises UnsuitableError if that is impossible or fails."""
    try:
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UnsuitableError(str(error)) from error
    try:
        request = _requests(bucket, prefix, where)
    except BotoCoreError as error:
        raise UnsuitableError(str(error)) from error
    yield from pages_after(prefix.encode(), after, request)


def _requests(bucket: str, prefix: str, where: Place) -> Callable[[bytes, str | None], tuple[Page, str | None]]:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import HTTPClientError
    from botocore.httpsession import URLLib3Session
    from botocore.session import Session
    from botocore.utils import get_environ_proxies

    url, credentials = _url(bucket, where), Session().get_credentials()
    if credentials is None:
        raise UnsuitableError("no credentials")
    verify: Any = os.environ.get("AWS_CA_BUNDLE") or True
    session = URLLib3Session(verify, get_environ_proxies(url), _TIMEOUT, THREADS)
    owner = owner_of(bucket, os.environ, is_own=False)
    headers = {"x-amz-expected-bucket-owner": owner} if owner else {}

    def page(after: bytes, token: str | None) -> tuple[Page, str | None]:
        query = {"list-type": "2", "encoding-type": "url", "max-keys": "1000", "prefix": prefix}
        query |= {"start-after": after.decode()} if token is None else {"continuation-token": token}
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_SECONDS * 2 ** (attempt - 1) if attempt else 0)
            request = AWSRequest("GET", url, headers=dict(headers), params=query)
            S3SigV4Auth(credentials.get_frozen_credentials(), "s3", where.region).add_auth(request)
            try:
                answer = session.send(request.prepare())
            except HTTPClientError:
                continue
            if answer.status_code == 200:
                return parse(answer.content.decode())
            if answer.status_code < 500 and answer.status_code not in (408, 429):
                raise UnsuitableError(f"status {answer.status_code}")
        raise UnsuitableError(f"{_ATTEMPTS} attempts failed")

    return page


def _url(bucket: str, where: Place) -> str:
    if bucket.endswith(DIRECTORY_BUCKET):
        raise UnsuitableError("a directory bucket, whose keys have no order")
    if where.endpoint is not None:
        return f"{where.endpoint.rstrip('/')}/{quote(bucket)}"
    if not _PLAIN_BUCKET.fullmatch(bucket):
        raise UnsuitableError("an access point, or a name with dots")
    return f"https://{bucket}.s3.{where.region}.amazonaws.com{'.cn' if where.region.startswith('cn-') else ''}/"


def parse(text: str) -> tuple[Page, str | None]:
    """Return the objects of a page, without folder markers, and the next page's token. Raises UnsuitableError for another form."""
    found = _OBJECT.findall(text)
    token = _TOKEN.search(text)
    if (
        len(found) != text.count("<Contents>")
        or "</ListBucketResult>" not in text[-100:]
        or ("<IsTruncated>true" in text) != (token is not None)
    ):
        raise UnsuitableError("a page of an unknown form")
    keys, etags, sizes = zip(*found, strict=True) if found else ((), (), ())
    names = _decoded("\n".join(keys), "<EncodingType>url</EncodingType>" in text) if found else []
    versions = map(version_of, "\n".join(etags).replace("&quot;", "").replace("&#34;", "").split("\n"))
    objects = [each for each in zip(names, map(int, sizes), versions, strict=False) if not each[0].endswith(b"/")]
    return page_of(objects), unescape(token[1]) if token else None


def _decoded(lines: str, is_encoded: bool) -> list[bytes]:
    if not is_encoded:
        return [unescape(line).encode() for line in lines.split("\n")]
    if "%" in lines or "+" in lines:
        return [unquote_to_bytes(line.replace("+", " ")) for line in lines.split("\n")]
    return lines.encode().split(b"\n")
