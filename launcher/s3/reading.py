"""Reading one object to its end, and errors that state why S3 refuses it.

Providers read S3 through `read_object` only, so one place resumes a connection that breaks in the middle of a large object, and
all refusals have one form: object, endpoint, reason, remedy.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any

from launcher.errors import RefusedError
from launcher.s3.uri import S3Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Stream = Generator[bytes, None, None]  # closing it early closes the connection
CHUNK = 1 << 19  # bytes; large enough that Python's cost per chunk does not show, small enough to hold several
_ATTEMPTS = 5  # per object, counted again after each byte received

_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, for this endpoint"
_PERMISSIONS = "the credentials in use need s3:ListBucket on the bucket and s3:GetObject on its objects"
_ELSEWHERE = "set AWS_REGION to the bucket's region"
_ROWS = (  # error codes, reason, remedy; HEAD answers have no body, so their codes are the status
    ("NoSuchBucket", "there is no such bucket", "check its name; with --data DIR it is the folder DIR/s3/{bucket}"),
    ("InvalidBucketName", "this is not a valid bucket name", "check the URI"),
    ("NoSuchKey 404", "there is no such object", "check the key"),
    ("AccessDenied 403", "access is denied", _PERMISSIONS),
    ("InvalidAccessKeyId SignatureDoesNotMatch InvalidToken", "the credentials are not accepted", _CREDENTIALS),
    ("ExpiredToken", "the credentials have expired", "fetch new ones"),
    ("RequestTimeTooSkewed", "this machine's clock is wrong by minutes", "set it, for example with NTP"),
    ("PermanentRedirect AuthorizationHeaderMalformed 301", "the bucket is in another region", _ELSEWHERE),
    ("InvalidObjectState", "the object is archived", "restore it first"),
    ("PreconditionFailed 412", "the object changed while it was being read", "run again when no process writes to it"),
)
_REFUSALS = {code: (reason, remedy) for codes, reason, remedy in _ROWS for code in codes.split()}


@contextmanager
def refusals(client: S3Client, place: S3Location) -> Iterator[None]:
    """Turn botocore's exceptions into a RefusedError of one line: object, endpoint, reason, remedy."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        reason, remedy = _explained(error)
        where = f"{place} at {client.meta.endpoint_url}"
        raise RefusedError(f"{where}: {reason}; {remedy.format(bucket=place.bucket)}") from error


def _explained(error: Exception) -> tuple[str, str]:
    from botocore import exceptions as bc

    if isinstance(error, bc.ClientError):
        answer = error.response.get("Error", {})
        said = f"the store answered {answer.get('Code')}: {answer.get('Message')}"
        return _REFUSALS.get(str(answer.get("Code")), (said, "check the store's documentation of this code"))
    no_credentials = bc.NoCredentialsError | bc.PartialCredentialsError | bc.CredentialRetrievalError
    if isinstance(error, no_credentials | bc.ProfileNotFound):
        return "no AWS credentials were found", f"{_CREDENTIALS}, or read from a folder of this machine"
    if isinstance(error, bc.HTTPClientError | bc.ConnectionError | bc.IncompleteReadError):
        return f"no connection ({error})", "check AWS_ENDPOINT_URL (with its protocol), AWS_REGION and the network"
    return str(error), "check the URI and the AWS settings of the environment"


def read_object(client: S3Client, place: S3Location) -> Stream:
    """Yield the object's bytes, at most CHUNK at a time; resume a broken connection where it broke.

    Raises:
        RefusedError: The store refuses, the connection breaks again and again, or the object has changed meanwhile.
    """
    from botocore import exceptions as bc

    position, etag, failures = 0, "", 0
    bucket, key = place
    with refusals(client, place):
        while True:
            try:
                if position:
                    answer = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={position}-", IfMatch=etag)
                else:
                    answer = client.get_object(Bucket=bucket, Key=key)
                if not (etag := answer.get("ETag", "")):
                    remedy = "check AWS_ENDPOINT_URL and proxies"
                    raise RefusedError(f"{place} at {client.meta.endpoint_url}: the answer is not from S3; {remedy}")
                with closing(answer["Body"]) as body:
                    while chunk := body.read(CHUNK):
                        position, failures = position + len(chunk), 0
                        yield chunk
            except (bc.HTTPClientError, bc.IncompleteReadError):
                failures += 1
                if failures == _ATTEMPTS:
                    raise
            else:
                return


def as_file(chunks: Iterator[bytes]) -> BufferedReader:
    """Return a file to read chunks from."""
    return BufferedReader(_Raw(chunks), CHUNK)


class _Raw(RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or memoryview(next(filter(None, self._chunks), b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
