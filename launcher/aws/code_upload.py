"""Brings the code to its place in S3 before the request is sent. The place's name is the code's digest: what is there is right."""

from __future__ import annotations

import io
from typing import Any

from entrypoints import contract
from launcher.aws.account import Account, AwsError
from launcher.console import Console, human_bytes
from launcher.errors import RefusedError
from launcher.plan import Plan
from launcher.s3_uri import parse_s3_uri


def upload_code(plan: Plan, account: Account, console: Console) -> None:
    """Upload what of the plan's code is not at its place. Raises AwsError or RefusedError; nothing is half there then."""
    if plan.code is None or plan.code_uri is None:
        return
    place = parse_s3_uri(plan.code_uri)
    missing = [
        name
        for name in (contract.BOOT_FILE, contract.CODE_ARCHIVE)
        if not _exists(account, place.bucket, place.key + name)
    ]
    if not missing:
        console.say(f"code      unchanged, at {plan.code_uri}")
        return
    contents = {name: plan.code.boot() if name == contract.BOOT_FILE else plan.code.tar_gz() for name in missing}
    total = sum(map(len, contents.values()))
    with console.progress("uploading the code", total=total) as advance:
        for name, content in contents.items():
            _put(account, place.bucket, place.key + name, content, _encryption(plan), advance)
    console.say(f"code      {human_bytes(total)} uploaded to {plan.code_uri}")


def _exists(account: Account, bucket: str, key: str) -> bool:
    try:
        account.call("s3", "head_object", Bucket=bucket, Key=key)
    except AwsError as error:
        if error.status == 404:
            return False
        if error.status == 403:  # without s3:ListBucket, S3 says so of what is missing too; the upload will tell
            return False
        raise _refused(error, bucket) from None
    return True


def _put(account: Account, bucket: str, key: str, content: bytes, encryption: dict[str, str], advance: Any) -> None:
    def upload(client: Any) -> None:
        client.upload_fileobj(io.BytesIO(content), bucket, key, ExtraArgs=encryption, Callback=advance)

    try:
        account.attempt("s3", "put_object", upload)
    except AwsError as error:
        raise _refused(error, bucket) from None


def _encryption(plan: Plan) -> dict[str, str]:
    """The outputs' key is the code's as well: who wants the one encrypted wants the other so."""
    key = plan.request.get("OutputDataConfig", {}).get("KmsKeyId")
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}


def _refused(error: AwsError, bucket: str) -> Exception:
    if error.status in (403, 404) or error.code == "NoSuchBucket":
        return RefusedError(
            f"the code cannot be uploaded to bucket {bucket}: {error}; the bucket must exist and let you write,"
            " or let code.s3_uri name another place"
        )
    return error
