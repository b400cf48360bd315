"""SageMaker's instance quotas, from Service Quotas.

The service cannot look up a quota by name, and SageMaker has two thousand, 100 per page. So quota codes, which are the same
everywhere, come from a table (launcher/data/quota_codes.json), and each is asked about alone. Quotas that the table lacks, or
whose answer has another name than expected, are searched for in the pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from launcher.aws.threads import concurrently
from launcher.preflight.check import Subject

USES = ("training job usage", "spot training job usage", "training warm pool usage", "processing job usage")
_TABLE = Path(__file__).parents[2] / "data" / "quota_codes.json"
_SERVICE = {"ServiceCode": "sagemaker"}


def values(subject: Subject, names: Iterable[str]) -> dict[str, int]:
    """Return the quotas' values by name, such as `ml.g5.xlarge for training job usage`; unknown ones are absent.

    A quota that was never changed and that AWS does not list has its default value, which is not known.

    Raises:
        AwsError: Service Quotas does not answer.
    """
    wanted = set(names)
    answers = {
        name: answer.result() for name, answer in concurrently(lambda name: _by_code(subject, name), list(wanted))
    }
    found = {name: value for name, value in answers.items() if value is not None}
    token: dict[str, str] = {}
    while not wanted <= found.keys():
        page = subject.ask("service-quotas", "list_service_quotas", MaxResults=100, **_SERVICE, **token)
        for quota in page.get("Quotas", ()):
            if quota.get("QuotaName") in wanted and "Value" in quota:
                found.setdefault(quota["QuotaName"], int(quota["Value"]))
        if not page.get("NextToken"):
            break
        token = {"NextToken": page["NextToken"]}
    return found


@cache
def codes() -> dict[str, str]:
    """Return the quota codes by name."""
    table = json.loads(_TABLE.read_text(encoding="utf-8"))["codes"]
    return {
        f"{instance_type} for {use}": f"L-{code}"
        for instance_type, known in table.items()
        for use, code in zip(USES, known, strict=True)
        if code is not None
    }


def _by_code(subject: Subject, name: str) -> int | None:
    """Return a quota's value by its code, if the code still has this name; else the pages may contain it, or show why not."""
    code = codes().get(name)
    quota = subject.try_to_ask("service-quotas", "get_service_quota", QuotaCode=code, **_SERVICE) if code else {}
    quota = quota.get("Quota", {})
    return int(quota["Value"]) if quota.get("QuotaName") == name and "Value" in quota else None
