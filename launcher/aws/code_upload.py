"""Upload the code to its place in S3 before the request is sent.

The place is named for the code's digest, so a complete object is a correct one. S3 shows whether an object is complete: it
stores the SHA-256 of what it received, and the object's metadata holds that of what we sent. (The bytes of the archive can
differ between versions of zlib.)
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from entrypoints import contract
from launcher.aws.account import Account, AwsError
from launcher.aws.threads import start
from launcher.code.archive import CodeArchive
from launcher.console import Console, human_bytes
from launcher.errors import RefusedError
from launcher.planning import Plan
from launcher.s3.uri import parse_s3_uri

_CONTENT = "launcher-content"  # in the object's metadata: length and SHA-256 of what was sent
_PIECE = 1 << 20  # bytes


def upload_code(plan: Plan, account: Account, console: Console) -> None:
    """Upload those parts of the plan's code that are not in S3 yet.

    Raises:
        AwsError: AWS refused the upload; no incomplete object is left.
        RefusedError: The code cannot be read, or its bucket cannot be used.
    """
    if plan.code is None or plan.code_uri is None:
        return
    place = parse_s3_uri(plan.code_uri)
    names = (contract.BOOT_FILE, contract.CODE_ARCHIVE)
    missing = [name for name in names if not _is_whole(account, place.bucket, place.key + name)]
    if not missing:
        console.say(f"code      unchanged, at {plan.code_uri}")
        return
    with TemporaryDirectory() as folder:
        files = [_written(plan.code, Path(folder, name)) for name in missing]
        total = sum(file.stat().st_size for file in files)
        with console.progress("uploading the code", total=total) as advance:
            for file in files:
                _put(account, place.bucket, place.key + file.name, file, _encryption(plan), advance)
    console.say(f"code      {human_bytes(total)} uploaded to {plan.code_uri}")


def _written(code: CodeArchive, file: Path) -> Path:
    """Write one of the two objects to a file. Raises RefusedError if the disk is full, or the code has changed."""
    try:
        with file.open("wb") as target:
            if file.name == contract.BOOT_FILE:
                target.write(code.boot())
            else:
                code.write_tar_gz(target)
    except OSError as error:
        message = f"{file.parent}: the code archive cannot be written: {error.strerror}; free some space, or set TMPDIR"
        raise RefusedError(message) from None
    return file


def _is_whole(account: Account, bucket: str, key: str) -> bool:
    """Return whether the object exists as it was sent; one without a checksum is uploaded again."""
    try:
        head = account.call("s3", "head_object", Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    except AwsError as error:
        if error.status in (403, 404):  # without s3:ListBucket, S3 denies a missing object too; the upload will show it
            return False
        raise _upload_refusal(error, bucket) from None
    kept = head.get("ChecksumSHA256")
    return kept is not None and f"{head['ContentLength']} {kept}" == head.get("Metadata", {}).get(_CONTENT)


def _put(
    account: Account, bucket: str, key: str, file: Path, encryption: dict[str, str], advance: Callable[[int], None]
) -> None:
    """Send one PUT, after which the object is complete or absent, in a thread that Ctrl-C need not wait for."""
    from boto3.s3.transfer import TransferConfig

    sha, size = hashlib.sha256(), file.stat().st_size
    with file.open("rb") as content:
        while piece := content.read(_PIECE):
            sha.update(piece)
    sha256 = base64.b64encode(sha.digest()).decode()
    checked = {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": sha256, "Metadata": {_CONTENT: f"{size} {sha256}"}}
    settings = TransferConfig(multipart_threshold=size + 1, use_threads=False)
    sent = 0

    def count(more: int) -> None:
        nonlocal sent
        sent += more
        advance(more)

    def send(client: Any) -> None:
        count(-sent)  # An attempt with expired keys sent nothing.
        with file.open("rb") as body:
            client.upload_fileobj(body, bucket, key, {**checked, **encryption}, Callback=count, Config=settings)

    try:
        start(lambda: account.attempt("s3", "put_object", send)).result()
    except AwsError as error:
        raise _upload_refusal(error, bucket) from None


def _encryption(plan: Plan) -> dict[str, str]:
    """Encrypt the code with the key of the outputs, if there is one."""
    key = plan.request.get("OutputDataConfig", {}).get("KmsKeyId")
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}


def _upload_refusal(error: AwsError, bucket: str) -> Exception:
    if error.is_unauthenticated:
        return error
    if error.status in (403, 404) or error.code == "NoSuchBucket":
        return RefusedError(
            f"the code cannot be uploaded to bucket {bucket}: {error}; create the bucket or ask for write access,"
            " or set code.s3_uri to another place"
        )
    return error
