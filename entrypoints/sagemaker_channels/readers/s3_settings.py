"""How requests to S3 are made in this process, from its environment variables: store, region, and who pays."""

from __future__ import annotations

from collections.abc import Mapping

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError


def place(environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the store's endpoint (None: AWS) and region. Raises ChannelError without a region: the client reads no config file."""
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None)
    if region is None:
        raise ChannelError("the region of S3 is unknown; set AWS_REGION")
    return endpoint, region


def requester_pays(environ: Mapping[str, str]) -> bool:
    """Return whether requests agree to be charged, which Requester Pays buckets demand. Raises ChannelError for another value."""
    value = environ.get(contract.REQUEST_PAYER_VARIABLE)
    if value not in (None, "", "requester"):
        raise ChannelError(f"{contract.REQUEST_PAYER_VARIABLE} is {value!r}; set it to requester, or remove it")
    return value == "requester"
