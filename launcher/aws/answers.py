"""Recognise answers that are not from the service itself: a login page, a proxy's error, or half of a JSON document.

botocore reads such an answer, if its status is 200, as one without members. These handlers of botocore's events turn it into
a 502, the status with which a gateway reports an invalid answer: botocore then retries the call, and raises ClientError if
no retry helps. The same handlers parse pages of S3 objects, which is most of the cost of a long listing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from html import unescape
from typing import Any
from xml.etree import ElementTree

FOREIGN = "the answer is not from AWS; check the endpoint and proxies"
_STATUS = 502
_OBJECT = re.compile(
    r"<Contents><Key>([^<]*)</Key><LastModified>([\d:.T-]+)Z</LastModified>(?:<(?!Size>)\w+>[^<]*</\w+>)*<Size>(\d+)</Size>"
    r"(?:<StorageClass>(\w+)</StorageClass>)?"
)
_REQUEST_ID = ("x-amzn-requestid", "x-amz-request-id")  # query and EC2 answers have it in the body


def refuse_foreign_answers(client: Any) -> None:
    """Make a boto3 client refuse such answers."""
    service = client.meta.service_model.service_id.hyphenize()
    # Wildcards come before botocore's own handler of S3's answers, which parses each one as a whole.
    client.meta.events.register("before-parse.*.*", _refuse)
    client.meta.events.register_first(f"needs-retry.{service}", _pass_status_on)  # before botocore decides


def is_foreign(parsed: Mapping[str, Any]) -> bool:
    """Return whether a parsed answer was refused here."""
    return bool(parsed.get("Error", {}).get("Message") == FOREIGN)


def _refuse(
    operation_model: Any, response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    status = response_dict["status_code"]
    has_id = any(name in response_dict["headers"] for name in _REQUEST_ID) or (
        operation_model.service_model.resolved_protocol in ("query", "ec2") and b"equestI" in response_dict["body"]
    )
    if status < 300:
        if operation_model.name == "ListObjectsV2":
            _read_objects(response_dict, customized_response_dict)
        is_own = has_id and _is_whole(operation_model, response_dict["body"])
    else:
        is_own = has_id or 400 <= status < 500
    if not is_own:
        if operation_model.has_streaming_output and status < 300:
            response_dict["body"].close()
        response_dict["status_code"], response_dict["body"] = _STATUS, b""
        customized_response_dict["Error"] = {"Code": "", "Message": FOREIGN}


def _read_objects(response_dict: dict[str, Any], customized_response_dict: dict[str, Any]) -> None:
    """Parse the objects of a page in the form that S3 writes, in a tenth of botocore's time; botocore parses everything else."""
    text = response_dict["body"].decode("utf-8", "replace")
    objects = _OBJECT.findall(text)
    if len(objects) != text.count("<Contents>") or not objects or "<CommonPrefixes>" in text:
        return
    customized_response_dict["Contents"] = [
        {
            "Key": unescape(key) if "&" in key else key,
            "LastModified": datetime.fromisoformat(f"{modified}+00:00"),
            "Size": int(size),
            "StorageClass": storage_class,
        }
        for key, modified, size, storage_class in objects
    ]
    rest = text[: text.index("<Contents>")] + text[text.rindex("</Contents>") + len("</Contents>") :]
    response_dict["body"] = rest.encode()


def _is_whole(operation: Any, body: Any) -> bool:
    """Return whether a body is a complete document with what the operation returns."""
    output = operation.output_shape
    if output is None or operation.has_streaming_output:
        return True
    if all("location" in member.serialization for member in output.members.values()):
        return True  # everything is in the headers
    is_policy = output.serialization.get("payload") == "Policy"  # a bucket policy: the one JSON document that S3 sends
    try:
        if not is_policy and "json" not in operation.service_model.resolved_protocol:
            return ElementTree.fromstring(body) is not None
        document = json.loads(body)
    except (ValueError, ElementTree.ParseError):
        return False
    required = {output.members[name].serialization.get("name", name) for name in output.required_members}
    return isinstance(document, dict) and (not required or not required.isdisjoint(document))


def _pass_status_on(response: tuple[Any, Mapping[str, Any]] | None, **_: Any) -> None:
    """Show botocore, which looks at the HTTP status, the status that was set here."""
    if response is not None and is_foreign(response[1]):
        response[0].status_code = _STATUS
