"""Write quota_codes.json: Service Quotas' codes of SageMaker's quotas for instances.

The codes are the same in every account and region. Service Quotas cannot look up a quota by name, and listing SageMaker's
two thousand takes too long for a check. Run by hand when there are new instance types, with any account's credentials:

    aws service-quotas list-aws-default-service-quotas --service-code sagemaker > quotas.json
    python tests/data/make_quota_codes.py quotas.json 2026-11-21

The first table was read from such a list, published with gruntwork-io/terraform-aws-utilities
(modules/request-quota-increase, of 2026-03-26), and agrees with codes quoted elsewhere. The check uses a code only if
Service Quotas returns the expected name for it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from launcher.account.creation import USES

_OUTPUT = Path(__file__).parents[2] / "launcher/data/quota_codes.json"


def table(quotas: list[dict[str, Any]]) -> dict[str, list[str | None]]:
    """Return the codes of each instance type's quotas, in the order of USES."""
    found: dict[str, list[str | None]] = {}
    for quota in quotas:
        match = re.fullmatch(rf"(ml\.\S+) for ({'|'.join(USES)})", quota["QuotaName"])
        if match:
            codes = found.setdefault(match[1], [None] * len(USES))
            codes[USES.index(match[2])] = quota["QuotaCode"].removeprefix("L-")
    return dict(sorted(found.items()))


def main(answer: str, date: str) -> None:
    """Write the table for a response of ListAWSDefaultServiceQuotas, with one instance type per line."""
    codes = table(json.loads(Path(answer).read_text(encoding="utf-8"))["Quotas"])
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in codes.items())
    about = json.dumps("Codes (without L-) of SageMaker's quotas; see tests/data/make_quota_codes.py")
    text = f'{{\n "about": {about},\n "date": "{date}",\n "uses": {json.dumps(USES)},\n "codes": {{\n{lines}\n }}\n}}\n'
    _OUTPUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
