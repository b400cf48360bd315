"""Update prices.json from AWS's own price list, which can be fetched without an account, one region at a time.

    curl -O https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonSageMaker/current/us-east-1/index.json
    python tests/data/make_prices.py index.json

A region's list is complete, so it replaces every sheet of the region. Sheets with `read_in` were read from pages that quote
such a list or a bill, named there.
"""

from __future__ import annotations

import json
import re
import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

from launcher.cost.prices import trained_type, usd_of

OUTPUT = Path(__file__).parents[2] / "launcher/data/prices.json"
_ABOUT = (
    "On-demand prices of SageMaker training in US dollars: per instance hour, and per GB and month of storage. A sheet has "
    "the prices of one region from one source on one day; newer sheets replace older ones. See tests/data/make_prices.py."
)
_VOLUME = re.compile(r"(?:[A-Z0-9]+-)?Train:VolumeUsage(?:\.gp2)?")  # storage of training jobs
_URL = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonSageMaker/{version}/{region}/index.json"


def sheet_of(offer: dict[str, Any]) -> dict[str, Any]:
    """Return one region's price sheet, read from its offer file.

    Raises:
        ValueError: The file has no training prices, or prices of several regions.
    """
    terms = offer["terms"]["OnDemand"]
    found: dict[str, float] = {}
    volumes: set[float] = set()
    regions: set[str] = set()
    for sku, product in offer["products"].items():
        attributes = product["attributes"]
        usd = usd_of(terms.get(sku, {}))
        name = trained_type(attributes)
        if usd is not None and name is not None:
            found[name] = float(usd)
            regions.add(attributes["regionCode"])
        elif usd is not None and _VOLUME.fullmatch(attributes.get("usagetype", "")):
            volumes.add(float(usd))
    if len(regions) != 1:
        got = sorted(regions) or "none"
        raise ValueError(f"expected training prices of one region, got {got}; pass the file of one region")
    region = regions.pop()
    sheet: dict[str, Any] = {
        "region": region,
        "date": offer["publicationDate"][:10],
        "source": "AWS's price list",
        "url": _URL.format(version=offer["version"], region=region),
        "usd_per_hour": dict(sorted(found.items())),
    }
    return sheet | ({"usd_per_gb_month": volumes.pop()} if len(volumes) == 1 else {})


def replace_sheet(sheets: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sheets with those of the new one's region replaced; a storage price that it lacks is kept."""
    kept = [new]
    for sheet in sheets:
        if sheet["region"] != new["region"]:
            kept.append(sheet)
        elif "usd_per_gb_month" in sheet and "usd_per_gb_month" not in new:
            kept.append(sheet | {"usd_per_hour": {}})
    return sorted(kept, key=itemgetter("region", "date"))


def to_text(sheets: list[dict[str, Any]]) -> str:
    """Return JSON with one price per line, so that a change of a price changes one line."""
    return json.dumps({"about": _ABOUT, "sheets": sheets}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    everything = json.loads(OUTPUT.read_text(encoding="utf-8"))["sheets"]
    for argument in sys.argv[1:]:
        everything = replace_sheet(everything, sheet_of(json.loads(Path(argument).read_text(encoding="utf-8"))))
    OUTPUT.write_text(to_text(everything), encoding="utf-8")
