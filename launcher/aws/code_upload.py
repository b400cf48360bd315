"""Upload the code to its place in S3 before the request is sent.

The place is named for the code's digest, but the job's role may write there, and so may others. So an object that exists is
believed only if the SHA-256 that S3 itself has computed of it is that of the local bytes. (The bytes of the archive can
differ between versions of zlib; it is uploaded again then.)
"""

from __future__ import annotations

import base64
import hashlib
import io
from functools import partial

from launcher.aws.session import Account, AwsError
from launcher.aws.threads import start
from launcher.console import Console, human_bytes
from launcher.errors import RefusedError
from launcher.planning import Plan
from launcher.request.view import Draft
from launcher.rules.channels.uris import uris
from launcher.s3.uri import parse_s3_uri
from sagemaker_channels import contract


def upload_code(plan: Plan, account: Account, console: Console) -> None:
    """Upload those parts of the plan's code that are not in S3 yet.

    Raises AwsError, which leaves no incomplete object, or RefusedError if the code cannot be read, or its bucket cannot be used.
    """
    if plan.code is None or plan.code_uri is None:
        return
    expect_owners(plan, account)
    place, archive = parse_s3_uri(plan.code_uri), io.BytesIO()
    plan.code.write_tar_gz(archive)
    contents = {contract.BOOT_FILE: plan.code.boot(), contract.CODE_ARCHIVE: archive.getvalue()}
    digests = {name: base64.b64encode(hashlib.sha256(each).digest()).decode() for name, each in contents.items()}
    missing = [name for name in contents if not _is_stored(account, place.bucket, place.key + name, digests[name])]
    if not missing:
        console.say(f"code      unchanged, at {plan.code_uri}")
        return
    total = sum(len(contents[name]) for name in missing)
    key = plan.request.get("OutputDataConfig", {}).get("KmsKeyId")  # that of the outputs
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}
    with console.progress("uploading the code", total=total) as advance:
        for name in missing:
            about = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": digests[name], **encryption}
            put = partial(account.call, "s3", "put_object", Bucket=place.bucket, Key=place.key + name, **about)
            try:  # one PUT, after which the object is complete or absent, in a thread that Ctrl-C need not wait for
                start(partial(put, Body=contents[name])).result()
            except AwsError as error:
                raise _upload_refusal(error, place.bucket, account) from None
            advance(len(contents[name]))
    console.say(f"code      {human_bytes(total)} uploaded to {plan.code_uri}")


def _is_stored(account: Account, bucket: str, key: str, sha256: str) -> bool:
    """Return whether the object has these bytes. Its metadata prove nothing, since the object's writer wrote them too."""
    try:
        head = account.call("s3", "head_object", Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    except AwsError as error:
        if error.status in (403, 404):  # without s3:ListBucket, S3 denies a missing object too; the upload will show it
            return False
        raise _upload_refusal(error, bucket, account) from None
    return bool(head.get("ChecksumSHA256") == sha256)


def _upload_refusal(error: AwsError, bucket: str, account: Account) -> Exception:
    if error.is_unauthenticated:
        return error
    if error.status in (403, 404) or error.code == "NoSuchBucket":
        owner = account.bucket_owners.get(bucket)
        whose = f" (it must belong to account {owner}, unless bucket_owners names another)" if owner else ""
        return RefusedError(
            f"the code cannot be uploaded to bucket {bucket}{whose}: {error}; create the bucket or ask for write access,"
            " or set code.s3_uri to another place"
        )
    return error


def expect_owners(plan: Plan, account: Account) -> None:
    """Let all requests about the buckets that the job writes to have the member ExpectedBucketOwner.

    A bucket's name says nothing about its owner. The owner of a bucket with a misspelt or abandoned name would get the code,
    the outputs and the checkpoints, and could answer with code of their own. The buckets of channels may belong to anyone;
    `bucket_owners` can name their accounts, too.
    """
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
