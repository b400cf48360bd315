"""The bundled prices: each has a source and date, and the script builds them from AWS's list."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

import launcher
from launcher import bundled
from launcher.cost.estimate import estimate, why_not
from launcher.cost.prices import instance_price, prices_of, volume_price
from launcher.cost.show import as_data, as_text
from launcher.spec.aws_model import shapes
from make_prices import OUTPUT, replace_sheet, sheet_of, to_text

SHEETS: list[dict[str, Any]] = json.loads(OUTPUT.read_text(encoding="utf-8"))["sheets"]


def request(**resources: Any) -> dict[str, Any]:
    return {"TrainingJobName": "digits-1", "ResourceConfig": {"InstanceCount": 1, **resources}}


def test_each_price_has_its_source_and_date() -> None:
    names = set(shapes()["TrainingInstanceType"]["enum"])
    for sheet in SHEETS:
        where = (sheet["region"], sheet["date"])
        assert date(2020, 1, 1) < date.fromisoformat(sheet["date"]), where
        assert sheet["source"], where
        assert sheet["url"].startswith("https://"), where
        assert sheet["usd_per_hour"], where
        for name, usd in sheet["usd_per_hour"].items():
            assert name in names, (where, name)
            assert 0.01 < usd < 1000, (where, name)
            price = instance_price(name, sheet["region"])
            assert price is not None
            assert price.region == sheet["region"]
            assert price.date >= sheet["date"]
            assert price.source
            assert price.url


def test_twice_the_size_costs_about_twice_as_much() -> None:
    """Finds typing errors: within a region and family, twice the size costs about twice as much."""
    for sheet in SHEETS:
        prices = sheet["usd_per_hour"]
        for name, usd in prices.items():
            family = name.rpartition(".")[0]
            if (
                family.startswith(("ml.c", "ml.m", "ml.r"))
                and f"{family}.2xlarge" in prices
                and name.endswith("xlarge")
            ):
                size = int(name.rpartition(".")[2].removesuffix("xlarge") or 1)
                assert usd == pytest.approx(prices[f"{family}.2xlarge"] / 2 * size, rel=0.02), (sheet["region"], name)


def test_newest_of_two_sheets_overrides() -> None:
    about = {"source": "a test", "url": "https://example.org"}
    new = {"region": "us-east-1", "date": "2026-03-01", "usd_per_hour": {"ml.a": Decimal(2)}, **about}
    old = {
        "region": "us-east-1",
        "date": "2025-03-01",
        "usd_per_hour": {"ml.a": Decimal(1), "ml.b": Decimal(3)},
        **about,
    }
    for sheets in ([new, old], [old, new]):
        prices = prices_of(sheets)
        assert (prices["ml.a", "us-east-1"].usd, prices["ml.a", "us-east-1"].date) == (Decimal(2), "2026-03-01")
        assert (prices["ml.b", "us-east-1"].usd, prices["ml.b", "us-east-1"].date) == (Decimal(3), "2025-03-01")


def test_region_without_price_uses_that_of_us_east_1_and_names_it() -> None:
    price = instance_price("ml.c5.xlarge", "eu-central-1")
    assert price is not None
    assert (price.usd, price.region) == (Decimal("0.204"), "us-east-1")
    assert volume_price("eu-central-1").region == volume_price(None).region == "us-east-1"
    found = estimate(request(InstanceType="ml.c5.xlarge"), "eu-central-1")
    assert found is not None
    assert any("as of us-east-1, since none is known for eu-central-1" in line for line in as_text(found, "digits"))


def test_region_with_price_uses_its_own() -> None:
    price, volume = instance_price("ml.g5.xlarge", "eu-west-1"), volume_price("eu-west-1")
    assert price is not None
    assert (price.usd, price.region, price.date) == (Decimal("1.57"), "eu-west-1", "2023-12-31")
    assert (volume.usd, volume.region) == (Decimal("0.154"), "eu-west-1")


@pytest.mark.parametrize("name", ["ml.p6e-gb200.36xlarge", "ml.x99.huge"])
def test_unknown_type_has_no_price(name: str) -> None:
    groups = [
        {"InstanceGroupName": "a", "InstanceType": name, "InstanceCount": 1},
        {"InstanceGroupName": "b", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
    ]
    found = estimate(request(InstanceGroups=groups), "us-east-1")
    assert found is not None
    assert found.unknown == (name,)
    assert found.usd["per_hour"] is found.usd["training"] is found.usd["altogether"] is None
    lines = as_text(found, "digits")
    assert any(f"unknown, since no price is known for {name}" in line for line in lines)
    assert any("ml.m5.xlarge at $0.23/h" in line for line in lines)
    assert as_data(found)["usd_per_hour"] is None


@pytest.mark.parametrize("name", bundled.spec_names())
def test_every_bundled_spec_has_an_estimate_or_a_reason(name: str) -> None:
    plan = launcher.plan(launcher.load(str(bundled.spec_path(name))), name="digits-1")
    found = estimate(plan.request, plan.spec.region)
    if found is None:
        assert "serverless" in (why_not(plan.request) or "")
    else:
        assert found.unknown == ()
        assert found.usd["altogether"] is not None


def offer(*rows: tuple[str, str, str]) -> dict[str, Any]:
    """Return an offer file of AWS with products of (usage type, unit, dollars)."""
    products = {
        f"SKU{index}": {"attributes": {"usagetype": usage, "regionCode": "us-east-1"}}
        for index, (usage, _, _) in enumerate(rows)
    }
    terms = {
        f"SKU{index}": {f"SKU{index}.T": {"priceDimensions": {"d": {"unit": unit, "pricePerUnit": {"USD": usd}}}}}
        for index, (_, unit, usd) in enumerate(rows)
    }
    return {
        "publicationDate": "2027-02-03T04:05:06Z",
        "version": "20270203040506",
        "products": products,
        "terms": {"OnDemand": terms},
    }


def test_sheet_is_built_from_offer_file() -> None:
    sheet = sheet_of(
        offer(
            ("USE1-Train:ml.m5.xlarge", "Hrs", "0.2500000000"),
            ("USE1-Host:ml.m5.xlarge", "Hrs", "9.0000000000"),
            ("USE1-TrSpt:ml.m5.xlarge", "Hrs", "8.0000000000"),
            ("USE1-Train:ml.g5.xlarge", "Hrs", "0.0000000000"),
            ("USE1-Train:VolumeUsage.gp2", "GB-Mo", "0.1500000000"),
        )
    )
    assert sheet["usd_per_hour"] == {"ml.m5.xlarge": 0.25}
    assert sheet["usd_per_gb_month"] == 0.15
    assert (sheet["region"], sheet["date"]) == ("us-east-1", "2027-02-03")
    assert sheet["url"].endswith("/AmazonSageMaker/20270203040506/us-east-1/index.json")

    sheets = replace_sheet(SHEETS, sheet)
    assert [each for each in sheets if each["region"] == "us-east-1"] == [sheet]
    assert len([each for each in sheets if each["region"] != "us-east-1"]) == len(
        [each for each in SHEETS if each["region"] != "us-east-1"]
    )
    with pytest.raises(ValueError, match="of one region"):
        sheet_of(offer(("USE1-Host:ml.m5.xlarge", "Hrs", "9.0")))


def test_table_is_formatted_as_the_script_writes_it() -> None:
    assert OUTPUT.read_text(encoding="utf-8") == to_text(SHEETS)
