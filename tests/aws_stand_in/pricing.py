"""AWS's price list: GetProducts of AmazonSageMaker, for prices that a test adds.

The list is empty until a test adds prices. Filters are TERM_MATCH on a product's attributes, as at AWS.

Sources: the Price List Service's API reference; the attributes of a product as programs that read the AmazonSageMaker list name
them: `instanceName`, `component` Training, `regionCode`, `usagetype` `USE1-Train:ml.m5.large`. A usage type's prefix is a region's
billing code, and is right here for two regions only.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.wire import Call

_BILLING_CODES = {"us-east-1": "USE1", "eu-west-1": "EU"}


class Prices:
    """The products of the list."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Empty the list."""
        self._products: list[dict[str, Any]] = []

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Add a `price`: {"instance_type", "usd", "region", "component"}, or a `product`: a whole entry of a PriceList."""
        if name == "product":
            self._products.append(parameters)
        elif name == "price":
            self._products.append(_product(**parameters))
        else:
            raise Refusal("NoSuchControl", f"pricing/{name} is nothing that can be ordered", 404)
        return {}

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return GetProducts' answer: each product as JSON text."""
        if call.operation != "GetProducts":
            return None
        parameters = call.parameters
        if parameters.get("ServiceCode") != "AmazonSageMaker":
            raise Refusal("InvalidParameterException", "Invalid service code")
        found = [product for product in self._products if _fits(product, parameters.get("Filters", []))]
        start, size = int(parameters.get("NextToken") or 0), int(parameters.get("MaxResults") or 100)
        page = [json.dumps(product) for product in found[start : start + size]]
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": page}
        if start + size < len(found):
            answer["NextToken"] = str(start + size)
        return answer


def _fits(product: dict[str, Any], filters: list[dict[str, str]]) -> bool:
    attributes = {**product["product"]["attributes"], "productFamily": product["product"].get("productFamily")}
    return all(attributes.get(one["Field"]) == one["Value"] for one in filters)


def _product(instance_type: str, usd: float, region: str = "us-east-1", component: str = "Training") -> dict[str, Any]:
    sku = hashlib.sha256(f"{instance_type} {region} {component}".encode()).hexdigest()[:16].upper()
    usage = f"{_BILLING_CODES.get(region, region)}-{'Train' if component == 'Training' else component}:{instance_type}"
    attributes = {
        "servicecode": "AmazonSageMaker",
        "servicename": "Amazon SageMaker",
        "regionCode": region,
        "locationType": "AWS Region",
        "component": component,
        "platoinstancetype": component,
        "instanceName": instance_type,
        "platoinstancename": instance_type,
        "instanceType": instance_type.removeprefix("ml."),
        "operation": "RunInstance",
        "usagetype": usage,
    }
    dimension = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"${usd} per {component} {instance_type} hour in {region}",
        "appliesTo": [],
        "pricePerUnit": {"USD": f"{usd:.10f}"},
    }
    term = {
        "sku": sku,
        "offerTermCode": "JRTCKXETXF",
        "effectiveDate": "2026-01-01T00:00:00Z",
        "termAttributes": {},
        "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension},
    }
    return {
        "product": {"productFamily": "ML Instance", "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonSageMaker",
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "version": "20260101000000",
        "publicationDate": "2026-01-01T00:00:00Z",
    }
