"""S3 URIs, which name a bucket and a key. The API accepts `s3://` and `https://`."""

from __future__ import annotations

import re
from typing import NamedTuple

from launcher.errors import InputError

# Hosts of AWS's own endpoints in an https:// URI; any other host is the bucket, as in s3://.
_PATH_STYLE = re.compile(r"s3([.-][a-z0-9.-]+)?\.amazonaws\.com(\.cn)?")
_HOST_STYLE = re.compile(r"(?P<bucket>.+)\.s3([.-][a-z0-9.-]+)?\.amazonaws\.com(\.cn)?")

# What macOS and Windows leave in folders, which is copied to S3 with the data.
_CLUTTER = re.compile(r"(.*/)?(\.DS_Store|\._[^/]*|Thumbs\.db|desktop\.ini|__MACOSX/.*)", re.I | re.S)


class S3Location(NamedTuple):
    """A bucket, and a key or a prefix of keys."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def is_clutter(key: str) -> bool:
    """Return whether a key or path is a file of macOS or Windows beside data: `.DS_Store`, `._1.jpg`, `Thumbs.db`."""
    return _CLUTTER.fullmatch(key) is not None


def parse_s3_uri(uri: str) -> S3Location:
    """Return bucket and key (or prefix) of `s3://bucket/key`, or of the `https://` forms that the API accepts as well.

    Raises InputError for other texts.
    """
    scheme, separator, rest = uri.partition("://")
    host, _, key = rest.partition("/")
    if scheme == "https" and (match := _HOST_STYLE.fullmatch(host)):
        host = match["bucket"]
    elif scheme == "https" and _PATH_STYLE.fullmatch(host):
        host, _, key = key.partition("/")
    if not separator or scheme not in ("s3", "https") or not host:
        raise InputError(f"{uri!r} is not an S3 URI; write s3://bucket/key")
    return S3Location(host, key)
