"""Whose buckets a job uses, checked before the first request to each, since a bucket's name says nothing about its owner.

The connector's client cannot send S3's ExpectedBucketOwner with its requests. So botocore, which is in SageMaker's images, asks for
the bucket with it, once per process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from sagemaker_channels.contract import DIRECTORY_BUCKET
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.channel_settings import bucket_owners
from sagemaker_channels.sources.connector_client import Place, place
from sagemaker_channels.sources.silence import warn_once

_ARN_VARIABLE = "TRAINING_JOB_ARN"
_LOCAL_ACCOUNT = "000000000000"  # of a local run
_SECONDS = 10  # to connect and to answer


def owner_of(bucket: str, environ: Mapping[str, str], *, is_own: bool) -> str | None:
    """Return the account that a bucket must belong to; None if it may be any.

    That is the one that `bucket_owners` names. If it names none and the bucket is the job's own (`is_own`), as for checkpoints, it
    is the job's. Directory buckets and access points are not checked. Raises ConfigError for damaged variables.
    """
    if bucket.endswith((DIRECTORY_BUCKET, "-s3alias")) or bucket.startswith("arn:"):
        return None
    jobs = environ.get(_ARN_VARIABLE, "").split(":")[4:5] if is_own else []
    default = jobs[0] if jobs and jobs[0] != _LOCAL_ACCOUNT else None
    return bucket_owners(environ).get(bucket, default)


def check_owner(bucket: str, *, is_own: bool, where: Place | None = None) -> None:
    """Raise ChannelError if a bucket belongs to another account than expected; warn once if S3 does not answer that."""
    owner = owner_of(bucket, os.environ, is_own=is_own)
    if owner is not None and (reason := why_unchecked(bucket, owner, where or place(os.environ))):
        warn_once(f"s3://{bucket}: not checked that it belongs to account {owner}: {reason}")


@cache
def why_unchecked(bucket: str, owner: str, where: Place) -> str:
    """Return why S3 did not say whose bucket it is; empty if it is the owner's. Raises ChannelError if it is another's."""
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
    except ImportError:
        return "botocore is not installed"
    style: Any = {"addressing_style": "auto" if where.endpoint is None else "path"}
    config = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"mode": "standard"}, s3=style)
    try:
        client: Any = Session().create_client(
            "s3", region_name=where.region, endpoint_url=where.endpoint, config=config
        )
        try:
            client.head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 403:
                return str(error)
            client.head_bucket(Bucket=bucket)  # It may only be forbidden to ask.
            raise ChannelError(
                f"s3://{bucket} does not belong to account {owner}",
                remedy=f"correct its name, or name its account in the spec: bucket_owners: {{{bucket}: ACCOUNT}}",
            ) from error
    except (BotoCoreError, ClientError) as error:
        return str(error)
    return ""
