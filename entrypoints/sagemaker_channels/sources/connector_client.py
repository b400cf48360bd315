"""The native client of Amazon's S3 Connector for PyTorch, all that is used of s3torchconnectorclient; and where it finds a store.

Its module has no public name, but everything in the connector uses it under this one, and importing the connector itself would
import torch, 200 MB. A release that changes a private name is followed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

from sagemaker_channels.errors import ChannelError

OLDEST = [1, 4, 2]  # the first release that reads ranges of objects


class Place(NamedTuple):
    endpoint: str | None  # the store's URL; None for AWS
    region: str


def place(environ: Mapping[str, str], endpoint: str | None = None, region: str | None = None) -> Place:
    """Return the place of these settings, and else of the variables.

    Raises ChannelError if there is no region (the client reads no config file), or the endpoint is no URL.
    """
    endpoint = endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
    if endpoint and not re.match(r"https?://[^/?#]", endpoint):  # The client would try it for 20 s.
        raise ChannelError(
            f"the endpoint of S3 is {endpoint!r}", remedy="set AWS_ENDPOINT_URL (or endpoint=) to http://HOST:PORT"
        )
    region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    region = region or ("us-east-1" if endpoint else None)
    if region is None:
        raise ChannelError("the region of S3 is unknown", remedy="set AWS_REGION, or give region=")
    return Place(endpoint, region)


def require() -> None:
    """Raise ImportError, with what to install, if the connector is not installed, or cannot read ranges of objects."""
    try:
        import s3torchconnectorclient  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(
            "s3torchconnector is not installed, and reading and saving in S3 need it: "
            "pip install 'sagemaker-launch[s3]'",
            name=error.name,
        ) from error
    version = metadata.version("s3torchconnectorclient")
    if [*map(int, re.findall(r"\d+", version)[:3])] < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ImportError(f"s3torchconnector {version} is too old: pip install 's3torchconnector>={needed}'")


def new_client(place: Place, gbps: float, attempts: int) -> Any:
    require()
    from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client

    # `bucket.host` resolves at AWS only; elsewhere the bucket is a part of the path.
    return MountpointS3Client(
        place.region,
        endpoint=place.endpoint,
        throughput_target_gbps=gbps,
        max_attempts=attempts,
        force_path_style=place.endpoint is not None,
    )


def page(client: Any, bucket: str, prefix: str, token: str | None) -> tuple[list[Any], str | None]:
    """Return a listing's first page, or that of a token: its ObjectInfos (key, size, etag), and the next one's token."""
    from s3torchconnectorclient._mountpoint_s3_client import ListObjectStream

    pages = client.list_objects(bucket, prefix)
    if token is not None:
        pages = ListObjectStream._from_state(client, bucket, prefix, "", 1000, token, False)
    found = next(pages, None)
    return ([], None) if found is None else (found.object_info, None if pages.complete else pages.continuation_token)


def s3_error() -> type[Exception]:
    """Return the exception that the client raises for every error of S3."""
    from s3torchconnectorclient import S3Exception

    exception: type[Exception] = S3Exception
    return exception


def end_threads(seconds: float) -> None:
    """Wait for the client's threads to end, after it was deleted. Raises RuntimeError if another client uses them still."""
    from s3torchconnectorclient._mountpoint_s3_client import join_all_managed_threads

    join_all_managed_threads(seconds)
