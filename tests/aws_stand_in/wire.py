"""Which service and operation a request is for, and with what parameters: read from the wire, as AWS's front end does.

JSON services name the operation in X-Amz-Target, query services and EC2 in the form's `Action`, REST services by method and
path, which is matched against the templates of botocore's service models. The credential scope of the signature names service
and region (AWS Signature Version 4).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import botocore.session

_TARGETS = {
    "SageMaker": "sagemaker",
    "AmazonSSM": "ssm",
    "Logs_20140328": "logs",
    "AWSSimbaAPIService_v20180301": "fsx",
    "TrentService": "kms",
    "AmazonEC2ContainerRegistry_V20150921": "ecr",
    "ServiceQuotasV20190624": "service-quotas",
    "AWSPriceListService": "pricing",
}
# Signing names that differ from boto3's names of the services.
_SIGNED = {"elasticfilesystem": "efs", "servicequotas": "service-quotas", "monitoring": "cloudwatch", "s3express": "s3"}
_SCOPE = re.compile(r"Credential=[^/,\s]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
_READS = (
    "Get",
    "List",
    "Describe",
    "Head",
    "Simulate",
    "Filter",
    "Batch",
    "Lookup",
    "Search",
    "AssumeRole",
    "Select",
    "CreateSession",
)


@dataclass(frozen=True)
class Call:
    """One request to AWS."""

    method: str
    target: str  # path and query as received
    headers: Message[str, str]
    body: bytes
    service: str  # boto3's name: `service-quotas`, `efs`
    operation: str  # `CreateTrainingJob`
    protocol: str  # json, query, ec2, rest-json or rest-xml
    region: str
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        """`sagemaker:CreateTrainingJob`."""
        return f"{self.service}:{self.operation}"

    @property
    def writes(self) -> bool:
        """Whether AWS would change anything."""
        return not self.operation.startswith(_READS)


@functools.cache
def session() -> botocore.session.Session:
    """Return the loader of botocore's service models."""
    return botocore.session.get_session()


def read_call(method: str, target: str, headers: Message[str, str], body: bytes) -> Call:
    """Return the call of a request; an unknown one is treated as S3's, as by moto."""
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    credential = query.get("X-Amz-Credential")
    signed = f"Credential={credential}" if credential else headers.get("Authorization", "")
    scope = _SCOPE.search(signed)
    region = scope["region"] if scope else "us-east-1"
    service = _SIGNED.get(scope["service"], scope["service"]) if scope else "s3"
    amz_target = headers.get("X-Amz-Target", "")
    if amz_target:
        prefix, _, operation = amz_target.rpartition(".")
        parameters = _json(body)
        return Call(method, target, headers, body, _TARGETS.get(prefix, service), operation, "json", region, parameters)
    form = query
    if headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded"):
        form = query | dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
    if "Action" in form and service != "s3":
        protocol = "ec2" if service == "ec2" else "query"
        return Call(method, target, headers, body, service, form["Action"], protocol, region, _nested(form))
    if service == "s3":
        protocol, parameters = "rest-xml", dict[str, Any](query)
    else:
        protocol, parameters = "rest-json", query | _json(body)
    operation, in_path = _rest_operation(service, method, parts.path, query, headers)
    return Call(method, target, headers, body, service, operation, protocol, region, parameters | in_path)


def _json(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _nested(form: dict[str, str]) -> dict[str, Any]:
    """Return a form with its lists as lists: `ActionNames.member.1=a` is `{"ActionNames": ["a"]}`; deeper ones stay flat."""
    found: dict[str, Any] = {}
    for key, value in form.items():
        match = re.fullmatch(r"(\w+)(?:\.member)?\.\d+", key)
        if match:
            found.setdefault(match[1], []).append(value)
        elif key not in ("Action", "Version"):
            found[key] = value
    return found


def _rest_operation(
    service: str, method: str, path: str, query: Mapping[str, str], headers: Message[str, str]
) -> tuple[str, dict[str, str]]:
    """Return the operation whose template fits best: PUT /bucket/key is PutObject, and UploadPart with ?partNumber&uploadId."""
    best: tuple[int, str, dict[str, str]] = (-1000, f"{method} {path}", {})
    for name, verb, pattern, keys, needed in _templates(service):
        match = pattern.fullmatch(path) if verb == method else None
        if match is None or any(query.get(key, None if value else "") != value for key, value in keys if value):
            continue
        asked = [key for key, value in keys if not value]
        if all(key in query for key in asked) and all(key in query or key in headers for key in needed):
            rank = 10 * (len(keys) + len(needed)) - len(name) // 8  # GetObject before GetObjectTorrent
            if rank > best[0]:
                best = (rank, name, {key: unquote(value) for key, value in match.groupdict().items()})
    return best[1], best[2]


@functools.cache
def _templates(service: str) -> list[tuple[str, str, re.Pattern[str], list[tuple[str, str]], list[str]]]:
    """Return (operation, method, path, fixed query, required query members and headers) for each operation of a REST service."""
    try:
        model = session().get_service_model(service)
    except botocore.exceptions.UnknownServiceError:
        return []
    found = []
    for name in model.operation_names:
        operation = model.operation_model(name)
        path, _, query = operation.http["requestUri"].partition("?")
        pattern = re.sub(r"\\{(\w+)(\\\+)?\\}", lambda m: f"(?P<{m[1]}>{'.+' if m[2] else '[^/]+'})", re.escape(path))
        keys = parse_qsl(query, keep_blank_values=True)
        shape = operation.input_shape
        members = shape.members if shape else {}
        required = [members[member].serialization for member in (shape.required_members if shape else [])]
        needed = [part["name"] for part in required if part.get("location") in ("querystring", "header")]
        found.append((name, operation.http["method"], re.compile(pattern + "/?"), keys, needed))
    return found
