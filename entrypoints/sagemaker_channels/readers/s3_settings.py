"""How requests to S3 are made: store and region, from a channel or this process's environment variables, and who pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError


class Place(NamedTuple):
    """Where buckets are."""

    endpoint: str | None  # the store's URL; None for AWS
    region: str


def place(environ: Mapping[str, str], endpoint: str | None = None, region: str | None = None) -> Place:
    """Return the place of these settings, and else of the variables.

    Raises:
        ChannelError: There is no region: the client reads no config file.
    """
    endpoint = endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
    region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    region = region or ("us-east-1" if endpoint else None)
    if region is None:
        raise ChannelError("the region of S3 is unknown; set AWS_REGION, or give region=")
    return Place(endpoint, region)


def requester_pays(environ: Mapping[str, str]) -> bool:
    """Return whether requests agree to be charged, which Requester Pays buckets demand. Raises ChannelError for another value."""
    value = environ.get(contract.REQUEST_PAYER_VARIABLE)
    if value not in (None, "", "requester"):
        raise ChannelError(f"{contract.REQUEST_PAYER_VARIABLE} is {value!r}; set it to requester, or remove it")
    return value == "requester"
