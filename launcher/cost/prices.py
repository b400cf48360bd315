"""On-demand prices for training, per instance hour and per GB of storage, each with source and date: bundled, and today's.

AWS publishes its price list (tests/data/make_prices.py reads it). prices.json holds sheets, each with the prices of one
source, region and day; the newest sheet of a region overrides older ones. If a region has no price, us-east-1's is used and
named as such: most regions cost more.

Today's are those of AWS's price API (pricing:GetProducts), which has every region's prices in us-east-1. An answer is a list of
JSON texts, each a product with its terms, as in the public price list
(https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/price-changes.html). A product of SageMaker has its purpose in
`component` (Training) and `usagetype` (USE1-Train:ml.g5.xlarge; managed spot training and warm pools have their own), and
its instance type in `instanceName`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.aws.session import Account

HOME_REGION = "us-east-1"  # has the most known prices
_TABLE = Path(__file__).parents[1] / "data" / "prices.json"
API_REGION = "us-east-1"  # one of the three with this API
_SERVICE = "AmazonSageMaker"
_VOLUME = "GB and month of training storage"  # priced like an instance type
_ABOUT = ("region", "date", "source", "url", "read_in")  # members of a sheet, and of its prices
_URL = "https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html"
# The prefix is the region's short name (USE1-, EU-, APN1-); the oldest spellings have none.
_TRAINING = re.compile(r"(?:[A-Z0-9]+-)?Train:(ml\.[a-z0-9.-]+)")


@dataclass(frozen=True)
class Price:
    """One price in US dollars, per instance hour or per GB and month."""

    usd: Decimal
    region: str  # not always the job's region
    date: str  # of the source: 2026-09-25
    source: str  # AWS's price list, AWS's price API, an AWS bill
    url: str
    read_in: str = ""  # where the source was read, if not at url

    def __str__(self) -> str:
        return f"{self.region}, {self.source} of {self.date}"


Lookup = Callable[[str, str | None], Price | None]  # (instance type, region) -> its price


def instance_price(instance_type: str, region: str | None) -> Price | None:
    """Return the price of one training hour of an instance type; if unknown, us-east-1's; if that is unknown, None."""
    prices = _bundled()
    return prices.get((instance_type, region or HOME_REGION)) or prices.get((instance_type, HOME_REGION))


def volume_price(region: str | None) -> Price:
    """Return the price of one GB of training storage for one month; us-east-1's if the region's is unknown."""
    prices = _bundled()
    return prices.get((_VOLUME, region or HOME_REGION)) or prices[_VOLUME, HOME_REGION]


def prices_of(sheets: list[dict[str, Any]]) -> dict[tuple[str, str], Price]:
    """Return the prices by instance type, or _VOLUME, and region; the newest sheet overrides others."""
    return {
        (name, sheet["region"]): Price(usd, *(sheet.get(each, "") for each in _ABOUT))
        for sheet in sorted(sheets, key=itemgetter("date"))
        for name, usd in {**sheet["usd_per_hour"], _VOLUME: sheet.get("usd_per_gb_month")}.items()
        if usd is not None
    }


@cache
def _bundled() -> dict[tuple[str, str], Price]:
    return prices_of(json.loads(_TABLE.read_text(encoding="utf-8"), parse_float=Decimal, parse_int=Decimal)["sheets"])


def ask_prices(account: Account, instance_types: Iterable[str], region: str) -> dict[str, Price]:
    """Return today's on-demand training price of each type in `region`, without types for which AWS has none.

    The account has to be opened in API_REGION. Raises AwsError if AWS does not answer.
    """
    found: dict[str, Price] = {}
    for name in dict.fromkeys(instance_types):
        wanted = {"instanceName": name, "regionCode": region}
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
        for page in account.pages("pricing", "get_products", ServiceCode=_SERVICE, Filters=filters):
            for text in page.get("PriceList", ()):
                product = json.loads(text)
                price = _price_of(product, region)
                if price is not None and trained_type(product["product"]["attributes"]) == name:
                    found[name] = price
    return found


def trained_type(attributes: Mapping[str, str]) -> str | None:
    """Return the instance type if a product is an instance hour of on-demand training, else None."""
    match = _TRAINING.fullmatch(attributes.get("usagetype", ""))
    return match[1] if match else None


def usd_of(on_demand: Mapping[str, Any]) -> Decimal | None:
    """Return the price above zero among a product's terms; None if there is none, as for a free tier."""
    prices = [
        Decimal(dimension["pricePerUnit"]["USD"])
        for term in on_demand.values()
        for dimension in term["priceDimensions"].values()
        if "USD" in dimension["pricePerUnit"]
    ]
    return max((price for price in prices if price > 0), default=None)


def _price_of(product: Mapping[str, Any], region: str) -> Price | None:
    usd = usd_of(product.get("terms", {}).get("OnDemand", {}))
    attributes = product["product"]["attributes"]
    if usd is None or attributes.get("regionCode", region) != region:
        return None
    return Price(usd.normalize(), region, str(product.get("publicationDate", ""))[:10], "AWS's price API", _URL)
