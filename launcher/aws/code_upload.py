"""Brings the code to its place in S3 before the request is sent. The place's name is the code's digest: what is there is right."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from entrypoints import contract
from launcher.archive import CodeArchive
from launcher.aws.account import Account, AwsError
from launcher.console import Console, human_bytes
from launcher.errors import RefusedError
from launcher.planning import Plan
from launcher.preflight.threads import start
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
    with TemporaryDirectory() as folder:
        files = [_written(plan.code, Path(folder, name)) for name in missing]
        total = sum(file.stat().st_size for file in files)
        with console.progress("uploading the code", total=total) as advance:
            for file in files:
                _put(account, place.bucket, place.key + file.name, file, _encryption(plan), advance)
    console.say(f"code      {human_bytes(total)} uploaded to {plan.code_uri}")


def _written(code: CodeArchive, file: Path) -> Path:
    """One of the two objects, as a file to send. Raises RefusedError if the disk is full, or the code has changed."""
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


def _put(
    account: Account, bucket: str, key: str, file: Path, encryption: dict[str, str], advance: Callable[[int], None]
) -> None:
    """One PUT, after which the object is there whole or not at all, in a thread that Ctrl-C need not wait for."""

    def upload() -> None:
        with _Counted(file, advance) as body:
            account.call("s3", "put_object", Bucket=bucket, Key=key, Body=body, **encryption)

    try:
        start(upload).result()
    except AwsError as error:
        raise _refused(error, bucket) from None


class _Counted(io.FileIO):
    """Tells how far it has been read; back, too, where it is read once for its checksum and again to be sent."""

    def __init__(self, file: Path, advance: Callable[[int], None]) -> None:
        super().__init__(file)
        self._advance, self._told = advance, 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._tell_progress()
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        place = super().seek(offset, whence)
        if whence == 0:  # else it is only measured
            self._tell_progress()
        return place

    def _tell_progress(self) -> None:
        self._advance(self.tell() - self._told)
        self._told = self.tell()


def _encryption(plan: Plan) -> dict[str, str]:
    """The outputs' key is the code's as well: who wants the one encrypted wants the other so."""
    key = plan.request.get("OutputDataConfig", {}).get("KmsKeyId")
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}


def _refused(error: AwsError, bucket: str) -> Exception:
    if error.is_expired:
        return error
    if error.status in (403, 404) or error.code == "NoSuchBucket":
        return RefusedError(
            f"the code cannot be uploaded to bucket {bucket}: {error}; the bucket must exist and let you write,"
            " or let code.s3_uri name another place"
        )
    return error
