"""Today's prices from AWS's price API (pricing:GetProducts), which has every region's prices in us-east-1.

An answer is a list of JSON texts, each a product with its terms, as in the public price list
(https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/price-changes.html). A product of SageMaker has its purpose in
`component` (Training) and `usagetype` (USE1-Train:ml.g5.xlarge; managed spot training and warm pools have their own), and
its instance type in `instanceName`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from launcher.aws.account import Account
from launcher.cost.table import Price

API_REGION = "us-east-1"  # one of the three with this API
_SERVICE = "AmazonSageMaker"
_URL = "https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html"
# The prefix is the region's short name (USE1-, EU-, APN1-); the oldest spellings have none.
_TRAINING = re.compile(r"(?:[A-Z0-9]+-)?Train:(ml\.[a-z0-9.-]+)")


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
                price = _price(product, region)
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


def _price(product: Mapping[str, Any], region: str) -> Price | None:
    usd = usd_of(product.get("terms", {}).get("OnDemand", {}))
    attributes = product["product"]["attributes"]
    if usd is None or attributes.get("regionCode", region) != region:
        return None
    return Price(usd.normalize(), region, str(product.get("publicationDate", ""))[:10], "AWS's price API", _URL)
