"""Service Quotas of SageMaker: ListServiceQuotas, GetServiceQuota and ListAWSDefaultServiceQuotas.

Names and codes are AWS's, for every training instance type of botocore's model; a code that we do not know is made up. So are the
values: 20 instances for training, spot and processing; 0 for warm pools, AWS's default for all types (developer guide, "Resource
limits" of warm pools).

Source: Service Quotas' API reference, and the page "Amazon SageMaker endpoints and quotas" of the AWS General Reference.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.wire import Call, session

_USES = {
    "for training job usage": 20.0,
    "for spot training job usage": 20.0,
    "for training warm pool usage": 0.0,
    "for processing job usage": 20.0,
}

# Quotas of training jobs whatever their type, with their codes and, except for run time and volume, made-up values.
_OF_JOBS = {
    "Longest run time for a training job": ("L-33A961FD", 432_000.0),
    "Size of EBS volume for a training job instance": ("L-C5A266EB", 1024.0),
    "Maximum number of instances per training job": ("L-622CFD70", 1000.0),
    "Maximum number of instances per spot training job": ("L-DB62C864", 1000.0),
    "Number of instances across all training jobs": ("L-00C91CB5", 1000.0),
    "Number of instances across all spot training jobs": ("L-93958082", 1000.0),
}


@functools.cache
def _defaults() -> dict[str, float]:
    shapes: Any = session().get_service_model("sagemaker")
    types = {"training": shapes.shape_for("TrainingInstanceType").enum}
    types["processing"] = shapes.shape_for("ProcessingInstanceType").enum
    return {name: value for name, (_, value) in _OF_JOBS.items()} | {
        f"{kind} {use}": value
        for use, value in _USES.items()
        for kind in types["processing" if "processing" in use else "training"]
    }


@functools.cache
def _codes() -> dict[str, str]:
    table = json.loads((Path(__file__).parents[2] / "launcher/data/quota_codes.json").read_text(encoding="utf-8"))
    rows = ((name, zip(table["uses"], codes, strict=True)) for name, codes in table["codes"].items())
    return {f"{name} for {use}": f"L-{code}" for name, row in rows for use, code in row if code}


class Quotas:
    """The applied values that differ from the defaults."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Restore the default values."""
        self._applied: dict[str, float | None] = {}

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Set a `quota`: {"name": "ml.g5.xlarge for training job usage", "value": 0}; null removes it from the list."""
        if name != "quota":
            raise Refusal("NoSuchControl", f"service-quotas/{name} is nothing that can be ordered", 404)
        self._applied[parameters["name"]] = None if parameters["value"] is None else float(parameters["value"])
        return {}

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return the answer. Raises NoSuchResourceException for another service or an unknown code."""
        parameters = call.parameters
        if call.operation not in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas", "GetServiceQuota"):
            return None
        if parameters.get("ServiceCode") != "sagemaker":
            raise Refusal("NoSuchResourceException", "The request failed because the specified service does not exist.")
        values = dict(_defaults())
        if "Default" not in call.operation:
            values |= {name: value for name, value in self._applied.items() if value is not None}
            values = {
                name: value
                for name, value in values.items()
                if name not in self._applied or self._applied[name] is not None
            }
        quotas = [_quota(name, value, call.region) for name, value in sorted(values.items())]
        if call.operation == "GetServiceQuota":
            found = [quota for quota in quotas if quota["QuotaCode"] == parameters.get("QuotaCode")]
            if not found:
                raise Refusal(
                    "NoSuchResourceException", "The request failed because the specified quota does not exist."
                )
            return {"Quota": found[0]}
        start, size = int(parameters.get("NextToken") or 0), int(parameters.get("MaxResults") or 100)
        answer: dict[str, Any] = {"Quotas": quotas[start : start + size]}
        if start + size < len(quotas):
            answer["NextToken"] = str(start + size)
        return answer


def _quota(name: str, value: float, region: str) -> dict[str, Any]:
    made_up = "L-" + hashlib.sha256(name.encode()).hexdigest()[:8].upper()
    code = _OF_JOBS[name][0] if name in _OF_JOBS else _codes().get(name, made_up)
    return {
        "ServiceCode": "sagemaker",
        "ServiceName": "Amazon SageMaker",
        "QuotaArn": f"arn:aws:servicequotas:{region}:123456789012:sagemaker/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
