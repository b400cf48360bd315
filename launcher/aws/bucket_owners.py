"""Whose buckets a job writes to: those of the role's account, unless the spec says otherwise.

A bucket's name says nothing about its owner. The owner of a bucket with a misspelt or abandoned name would get the code,
the outputs and the checkpoints, and could answer with code of their own. So each request about such a bucket has the
member ExpectedBucketOwner. The buckets of channels may belong to anyone; `bucket_owners` can name their accounts, too.
"""

from __future__ import annotations

from launcher.aws.account import Account
from launcher.planning import Plan
from launcher.request.view import Draft
from launcher.rules.channels.uris import uris
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels import contract


def expect_owners(plan: Plan, account: Account) -> None:
    """Let all requests of this account about the plan's buckets have the owners that are expected."""
    named = plan.spec.bucket_owners or {}
    # SageMaker accepts only roles of the account in which it creates the job.
    own = str(plan.request.get("RoleArn", "")).split(":")[4:5]
    written = [
        uri for path, uri in uris(Draft(plan.spec, plan.request)) if path[0] not in ("channels", "InputDataConfig")
    ]
    for uri in [*written, *([plan.code_uri] if plan.code_uri else [])] if own else []:
        bucket = parse_s3_uri(uri).bucket
        # Directory buckets and access points have rules of their own.
        if not bucket.endswith(contract.DIRECTORY_BUCKET) and not bucket.startswith("arn:"):
            account.bucket_owners[bucket] = own[0]
    account.bucket_owners |= named
