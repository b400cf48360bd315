"""The objects of S3, listed and read through an account: broken connections resume, refusals name the object and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

from launcher.aws.refusals import REMEDY, foreign
from launcher.aws.session import Account, AwsError
from launcher.aws.threads import concurrently
from launcher.errors import RefusedError, did_you_mean
from launcher.s3.reading import CHUNK, Stream
from launcher.s3.uri import S3Location

_HEADS_AT_ONCE = 8  # concurrent requests for the sizes of a manifest's objects
_HEADS_AHEAD = 100  # objects whose sizes are requested together
_SIBLINGS = 1000  # names searched for the nearest one: a single request
_ATTEMPTS = 5  # per object, counted again after each byte received
_PERMISSIONS = "the credentials in use need s3:ListBucket on the bucket and s3:GetObject on its objects"
_ROWS = (  # error codes, reason, remedy; HEAD answers have no body, so their codes are the status
    ("NoSuchBucket", "there is no such bucket", "check its name; with --data DIR it is the folder DIR/s3/{bucket}"),
    ("InvalidBucketName", "this is not a valid bucket name", "check the URI"),
    ("NoSuchKey 404", "there is no such object", "check the key"),
    ("AccessDenied 403", "access is denied", _PERMISSIONS),
    ("PermanentRedirect AuthorizationHeaderMalformed 301", "the bucket is elsewhere", "set AWS_REGION to its region"),
    ("InvalidObjectState", "the object is archived", "restore it first"),
    ("PreconditionFailed 412", "the object changed while it was being read", "run again when no process writes to it"),
)
_REFUSALS = {code: f"{reason}; {remedy}" for codes, reason, remedy in _ROWS for code in codes.split()}


class RemoteObjects:
    """The objects of AWS, or of the S3-compatible store that the environment names. All methods raise RefusedErrors."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.where = account.client("s3").meta.endpoint_url  # for messages

    def entries(self, place: S3Location) -> Iterator[tuple[str, int, float, str]]:
        """Yield every object whose key begins with the place's, in S3's order.

        Each is its key, bytes, time of the last change in seconds since 1970 and storage class.
        """
        with self._refusals(place):
            for page in self._account.pages("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key):
                for each in page.get("Contents", ()):
                    changed = each["LastModified"].timestamp()
                    yield each["Key"], each["Size"], changed, each.get("StorageClass", "STANDARD")

    def head(self, place: S3Location, count: int, start: int = 0) -> bytes:
        """Return the first `count` bytes of an object that is not empty, or those from `start` on."""
        asked = {"Bucket": place.bucket, "Key": place.key, "Range": f"bytes={start}-{start + count - 1}"}
        with self._refusals(place):
            data: bytes = self._account.attempt(
                "s3", "get_object", lambda client: client.get_object(**asked)["Body"].read()
            )
            return data

    def sizes(self, places: Iterable[S3Location]) -> Iterator[int]:
        """Yield the bytes of each object; takes few more places than it has yielded sizes."""

        def size(place: S3Location) -> int:
            with self._refusals(place):
                return int(self._account.call("s3", "head_object", Bucket=place.bucket, Key=place.key)["ContentLength"])

        rest = iter(places)
        while some := list(islice(rest, _HEADS_AHEAD)):
            found = {place: done.result() for place, done in concurrently(size, some, _HEADS_AT_ONCE)}
            yield from (found[place] for place in some)

    def read(self, place: S3Location) -> Stream:
        """Yield one object's bytes, at most CHUNK at a time; resume a broken connection where it broke.

        Raises RefusedError if the store refuses, if the connection breaks again and again, or if the object has changed meanwhile.
        """
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        get = partial(self._account.call, "s3", "get_object", Bucket=place.bucket, Key=place.key)
        position, failures, rest = 0, 0, dict[str, Any]()
        with self._refusals(place):
            while True:
                answer = get(**rest)
                try:
                    with closing(answer["Body"]) as body:
                        if not (etag := answer.get("ETag")):
                            raise foreign("s3:GetObject")
                        while chunk := body.read(CHUNK):
                            position, failures = position + len(chunk), 0
                            yield chunk
                    return
                except (HTTPClientError, IncompleteReadError) as error:
                    failures += 1
                    if failures == _ATTEMPTS:
                        text = f"s3:GetObject: the connection breaks again and again ({error}); {REMEDY}"
                        raise AwsError(text, call="s3:GetObject") from None
                rest = {"Range": f"bytes={position}-", "IfMatch": etag} if position else {}

    def copy(self, place: S3Location, target: BinaryIO) -> Iterator[int]:
        """Write one object to a new file; yields the bytes written since the last time."""
        for chunk in self.read(place):
            yield target.write(chunk)

    def missing(self, place: S3Location) -> str:
        """Return why no object begins with the place's key, and what exists instead."""
        parent = place.key[: place.key.rstrip("/").rfind("/") + 1]
        asked = {"Bucket": place.bucket, "Prefix": parent, "Delimiter": "/", "MaxKeys": _SIBLINGS}
        with self._refusals(S3Location(place.bucket, parent)):
            page = self._account.call("s3", "list_objects_v2", **asked)
        names = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
        names += [each["Key"] for each in page.get("Contents", ())]
        near = did_you_mean(place.key, [name for name in names if name != parent])
        beside = f"; beside it there are {', '.join(names[:3])}" if names else "; the bucket has nothing beside it"
        return f"no object begins with this at {self.where}{near or beside}"

    @contextmanager
    def _refusals(self, place: S3Location) -> Iterator[None]:
        """Let a refusal name the object and the store; those of the credentials are about neither."""
        try:
            yield
        except AwsError as error:
            if error.is_unauthenticated:
                raise
            reason = _REFUSALS.get(error.code, str(error)).format(bucket=place.bucket)
            raise RefusedError(f"{place} at {self.where}: {reason}") from error
