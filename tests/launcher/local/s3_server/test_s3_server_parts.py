"""Objects that the embedded S3 server makes of parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from patience import in_threads
from s3_objects import BODY, NAME, PART, refusal


def upload_parts(s3: Any, bodies: dict[int, bytes], **create: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An upload with its parts sent in the order of `bodies`, and the parts as CompleteMultipartUpload names them."""
    upload = {**NAME, "UploadId": s3.create_multipart_upload(**NAME, **create)["UploadId"]}
    named = []
    for number, body in bodies.items():
        sent = s3.upload_part(**upload, PartNumber=number, Body=body)
        named.append({"PartNumber": number, "ETag": sent["ETag"]})
    return upload, sorted(named, key=lambda part: part["PartNumber"])


def complete(s3: Any, upload: dict[str, Any], named: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    done: dict[str, Any] = s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": named}, **more)
    return done


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)], ids=str)
def test_parts_in_any_order_make_one_object(s3: Any, order: tuple[int, ...], tmp_path: Path) -> None:
    bodies = {1: os.urandom(PART), 2: os.urandom(PART), 3: os.urandom(1000)}
    upload, named = upload_parts(s3, {number: bodies[number] for number in order})
    complete(s3, upload, named)
    assert s3.get_object(**NAME)["Body"].read() == bodies[1] + bodies[2] + bodies[3]
    assert not any((tmp_path / "overlay" / ".s3" / "incoming").iterdir()), "parts are removed"


@pytest.mark.parametrize("sizes", [(PART, PART + 1, 5), (PART + 5, PART, 5), (PART, PART, PART + 7)], ids=str)
def test_parts_of_different_sizes_make_one_object(s3: Any, sizes: tuple[int, ...]) -> None:
    bodies = {number: os.urandom(size) for number, size in enumerate(sizes, 1)}
    upload, named = upload_parts(s3, bodies)
    complete(s3, upload, named)
    assert s3.get_object(**NAME)["Body"].read() == b"".join(bodies.values())


def test_part_sent_again_replaces_the_first(s3: Any) -> None:
    upload, _ = upload_parts(s3, {1: os.urandom(PART), 2: b"wrong"})
    bodies = {2: b"right", 1: os.urandom(PART + 1)}
    named = [
        {"PartNumber": number, "ETag": s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"]}
        for number, body in bodies.items()
    ]
    complete(s3, upload, named[::-1])
    assert s3.get_object(**NAME)["Body"].read() == bodies[1] + bodies[2]


def test_completing_again_returns_the_same_object(s3: Any) -> None:
    upload, named = upload_parts(s3, {1: bytes(PART), 2: BODY})
    answers = in_threads(lambda _: complete(s3, upload, named)["ETag"], 4)
    assert set(answers) == {s3.head_object(**NAME)["ETag"]}
    assert refusal(s3.abort_multipart_upload, **upload) == "NoSuchUpload"


def test_refused_completion_keeps_the_upload(s3: Any) -> None:
    s3.put_object(**NAME, Body=BODY)
    upload, named = upload_parts(s3, {1: bytes(PART), 2: BODY})
    wrong = [{**named[0], "ETag": "0" * 32}, named[1]]
    assert refusal(s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": wrong}) == "InvalidPart"
    condition = {"MultipartUpload": {"Parts": named}, "IfNoneMatch": "*"}
    assert refusal(s3.complete_multipart_upload, **upload, **condition) == "PreconditionFailed"
    complete(s3, upload, named)
    assert s3.get_object(**NAME)["Body"].read() == bytes(PART) + BODY
