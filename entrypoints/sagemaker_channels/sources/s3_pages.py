"""Pages of a listing of S3 by botocore's requests: from any key on, many at a time, parsed in a millisecond each.

The connector's client lists only from a prefix's beginning, one page after the other. So a long listing is completed here, if
botocore is installed, as it is in SageMaker's images. What fails here is left to the client, which reports why.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from sagemaker_channels.contract import DIRECTORY_BUCKET
from sagemaker_channels.sources.connector_client import Place, requester_pays
from sagemaker_channels.sources.key_ranges import THREADS, UnsuitableError, pages_after
from sagemaker_channels.sources.listing import Page, page_of, version_of
from sagemaker_channels.sources.s3_owners import owner_of

_ATTEMPTS = 4
_PAUSE_SECONDS = 0.2  # before the second attempt; doubles each time
_TIMEOUT = 20  # seconds, to connect and for each byte
_OBJECT = re.compile(
    r"<Contents><Key>([^<]*)</Key>(?:<LastModified>[^<]*</LastModified>)?<ETag>([^<]*)</ETag>"
    r"(?:<Checksum\w+>[^<]*</Checksum\w+>)*<Size>(\d+)</Size>"
)
_TOKEN = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_PLAIN_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


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
    headers = {"x-amz-request-payer": "requester"} if requester_pays(os.environ) else {}
    if owner := owner_of(bucket, os.environ, is_own=False):
        headers["x-amz-expected-bucket-owner"] = owner

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
    """Return the keys of these lines."""
    if not is_encoded:
        return [unescape(line).encode() for line in lines.split("\n")]
    if "%" in lines or "+" in lines:
        return [unquote_to_bytes(line.replace("+", " ")) for line in lines.split("\n")]
    return lines.encode().split(b"\n")
