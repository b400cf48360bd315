"""S3's responses that moto lacks: for a bucket in another region than the request's, or of another account.

HEAD returns 301 or 403 without a body, both with `x-amz-bucket-region`; other methods return S3's error with it. A bucket
created through the stand-in is in the region of the request, unless `bucket` sets another.
A SHA-256 that is sent with an object is compared with that of its content.
boto3 follows a 301 to the right region by itself. Objects too many or too big to store: see `s3_listing`.

Source: S3's API reference (HeadBucket, "Error responses": PermanentRedirect, AccessDenied).
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.s3_listing import Listing
from aws_stand_in.wire import Call

_ANYWHERE = ("GetBucketLocation", "ListBuckets", "CreateBucket")
_DIRECTORY = "--x-s3"
_ACCOUNT = "123456789012"  # owns the buckets without another owner
_SESSION = (
    b"<CreateSessionResult><Credentials><SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey>"
    b"<AccessKeyId>a</AccessKeyId><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"
)
_NONE = {
    "GetBucketPolicy": "NoSuchBucketPolicy",
    "GetBucketEncryption": "ServerSideEncryptionConfigurationNotFoundError",
}
_CONSTRAINT = re.compile(rb"<LocationConstraint[^>]*>([^<]*)</LocationConstraint>")


class Buckets:
    """The regions of buckets, and the buckets of other accounts."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all buckets."""
        self._regions: dict[str, str] = {}
        self._forbidden: set[str] = set()
        self._owners: dict[str, str] = {}
        self._listings: dict[str, Listing] = {}

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Set a `bucket`: {"name", "region", "forbidden", "owner"}; one that moto does not store can be forbidden too.

        `objects`: {"bucket", "sizes": {key: bytes}} or {"bucket", "pattern": "train/{:05d}.tar", "count", "size"}.
        """
        if name == "objects":
            sizes = parameters.get("sizes") or {
                parameters["pattern"].format(number): parameters["size"] for number in range(parameters["count"])
            }
            self._listings.setdefault(parameters["bucket"], Listing()).add(sizes)
            return {}
        if name != "bucket":
            raise Refusal("NoSuchControl", f"s3/{name} is nothing that can be ordered", 404)
        if parameters.get("region"):
            self._regions[parameters["name"]] = parameters["region"]
        if parameters.get("owner"):
            self._owners[parameters["name"]] = parameters["owner"]
        if parameters.get("forbidden"):
            self._forbidden.add(parameters["name"])
        else:
            self._forbidden.discard(parameters["name"])
        return {}

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Leave the call to moto (None). Raises PermanentRedirect or AccessDenied."""
        bucket = call.parameters.get("Bucket", "")
        lies_in = self._regions.get(bucket)
        if bucket.endswith(_DIRECTORY):
            return self._of_directory_bucket(call, bucket)
        owner = call.headers.get("x-amz-expected-bucket-owner")
        if bucket in self._forbidden or (owner and owner != self._owners.get(bucket, _ACCOUNT)):
            raise Refusal("AccessDenied", "Access Denied", 403, {"x-amz-bucket-region": lies_in or call.region})
        if lies_in and lies_in != call.region and call.operation not in _ANYWHERE:
            message = "The bucket you are attempting to access must be addressed using the specified endpoint."
            raise Refusal("PermanentRedirect", message, 301, {"x-amz-bucket-region": lies_in})
        checksum = call.headers.get("x-amz-checksum-sha256")
        received = base64.b64encode(hashlib.sha256(call.body).digest()).decode()
        if call.operation == "PutObject" and checksum not in (None, received):
            raise Refusal("BadDigest", "The SHA256 you specified did not match the calculated checksum.")
        listing = self._listings.get(bucket)
        if listing and call.operation == "ListObjectsV2":
            return listing.page(bucket, call.parameters)
        if listing and call.operation == "HeadObject":
            return listing.head(call.parameters["Key"])
        return None

    def _of_directory_bucket(self, call: Call, bucket: str) -> Answer:
        """Answer for S3 Express One Zone, which needs a session and lists only folders; `objects` creates such a bucket."""
        if bucket in self._forbidden:
            raise Refusal("AccessDenied", "Access Denied", 403)
        if bucket not in self._listings:
            raise Refusal("NoSuchBucket", "The specified bucket does not exist", 404)
        headers = {"Content-Type": "application/xml", "x-amz-bucket-region": call.region}
        if call.operation == "CreateSession":
            return Answer(200, _SESSION, headers)
        if call.operation in _NONE:
            raise Refusal(_NONE[call.operation], "It does not exist", 404)
        if call.operation != "ListObjectsV2":
            return Answer(200, b"", headers)
        if not f"/{call.parameters.get('prefix', '')}".endswith("/"):
            raise Refusal("InvalidRequest", "This bucket does not support a prefix that does not end in a delimiter.")
        return self._listings[bucket].page(bucket, call.parameters)

    def seen(self, call: Call, answer: Answer) -> None:
        """Record the region of a new bucket."""
        if call.name == "s3:CreateBucket" and answer.status == 200:
            constraint = _CONSTRAINT.search(call.body)
            self._regions[call.parameters["Bucket"]] = constraint[1].decode() if constraint else "us-east-1"
