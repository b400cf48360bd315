"""The client's messages for failed requests: what they mean, whether the error may be transient, and what to do.

The client raises one exception type for everything; only its text shows whether an error is permanent or transient. Permanent
errors are raised immediately, transient ones are retried.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sagemaker_channels.errors import ChannelError, MissingError


class Cause(NamedTuple):
    passes: bool  # perhaps
    what: str
    remedy: str
    error: type[ChannelError] = ChannelError
    most_seconds: float = float("inf")  # of retries


_UNCHANGED = "do not change a job's objects while it runs"
_AGAIN = "start the job again from its checkpoint; see AWS Health if it stays"

# By a regular expression for the client's message, whose groups are inserted in ours.
_CAUSES = {
    r"Forbidden: (.*)": Cause(
        False,
        "access is denied (403: {})",
        "give the job's role s3:GetObject and s3:ListBucket there, s3:PutObject to save a checkpoint, and kms:Decrypt of the"
        " key that encrypts it; without s3:ListBucket S3 also answers so for objects that do not exist, and the connector cannot"
        " read Requester Pays buckets: copy their objects to your own",
    ),
    r"(?:key does not exist|object was not found)": Cause(
        False, "it no longer exists (404 NoSuchKey)", _UNCHANGED, MissingError
    ),
    r"bucket does not exist": Cause(
        False, "there is no such bucket (404 NoSuchBucket)", "correct the S3 URI", MissingError
    ),
    r"XML parsing error": Cause(
        False, "the connector cannot read a listing there", "rename keys with control characters"
    ),
    r"response_status: 416": Cause(False, "it is shorter than it was listed (416 InvalidRange)", _UNCHANGED),
    r"response_status: (30\d)": Cause(
        False, "the bucket is in another region ({})", "set AWS_REGION (or region=) to the bucket's own"
    ),
    r"No signing credentials": Cause(
        False, "there are no credentials", "give the job a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    ),
    r"TLS trust store not found": Cause(
        False,
        "there are no certificates of authorities",
        "install them in the image (`apt-get install ca-certificates`)",
    ),
    r"Failed to construct request: (.*)": Cause(
        False,
        "no request can be made ({})",
        "correct the S3 URI, AWS_REGION or AWS_ENDPOINT_URL, or region= or endpoint=",
    ),
    r"TOKEN_EXPIRED": Cause(True, "the credentials have expired (ExpiredToken)", "renew the credentials"),
    r"TIME_TOO_SKEWED": Cause(True, "this machine's clock is wrong (403 RequestTimeTooSkewed)", "set the clock"),
    r"throttled": Cause(
        True,
        "S3 asks to slow down, or is busy (503)",
        "read with fewer workers, join small objects to shards, or spread them over more prefixes",
    ),
    r"INTERNAL_ERROR": Cause(True, "S3 had an internal error (500)", _AGAIN),
    r"response_status: (5\d\d|408|429)": Cause(True, "S3 had an internal error ({})", _AGAIN),
    r"response_status: (\d+)": Cause(
        False, "S3 refuses the request ({})", "check the bucket's and the object's settings"
    ),
    r"AWS_IO_SOCKET_CONNECTION_REFUSED": Cause(
        True,
        "{store} refuses connections",
        "check that a store runs there, or correct AWS_ENDPOINT_URL or endpoint=",
        most_seconds=3.0,
    ),
    r"AWS_ERROR_\w+, (.*)|AWS_IO_\w+, (.*)": Cause(
        True, "no connection to {store} ({})", "check that the job's network reaches it"
    ),
}
_OTHER = Cause(True, "{}", "see the client's message")


def cause_of(message: str, store: str = "S3") -> Cause:
    """Return the cause that one of the client's messages means; `store` is the URL of another store than S3."""
    for pattern, cause in _CAUSES.items():
        if found := re.search(pattern, message):
            detail = next(filter(None, found.groups()), "").rstrip(".")
            return cause._replace(what=cause.what.format(detail, store=store))
    return _OTHER._replace(what=message[:300])
