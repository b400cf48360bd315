"""What a job costs: arithmetic against values computed by hand, the table's sources, and what is not known."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import aws_stand_in
import channel_specs
import launcher
from launcher.aws_model import shapes
from launcher.checks.examples import BASE, laid_over_base
from launcher.commands.cost import command
from launcher.cost import estimate, estimate_of_job, instance_price, volume_price
from launcher.cost.estimate import why_not
from launcher.cost.money import at_most, dollars, rate
from launcher.cost.show import as_data, as_text
from launcher.cost.table import Price, instance_prices
from launcher.data.make_prices import OUTPUT, laid_over, sheet_of, to_text
from launcher.errors import RefusedError

SHEETS: list[dict[str, Any]] = json.loads(OUTPUT.read_text(encoding="utf-8"))["sheets"]
IN_US_EAST_1 = "region: us-east-1\nimage: 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
MADE_UP = {"m": "1.20", "g": "4.80", "c": "0.36"}  # dollars an hour by the type's first letter


def made_up(name: str, region: str | None) -> Price | None:
    usd = MADE_UP.get(name.removeprefix("ml.")[0])
    return Price(Decimal(usd), region or "us-east-1", "2026-01-01", "a test", "https://example.org") if usd else None


def request(resources: dict[str, Any], seconds: int | None = 7200, **members: Any) -> dict[str, Any]:
    stopping = {} if seconds is None else {"StoppingCondition": {"MaxRuntimeInSeconds": seconds}}
    return {"TrainingJobName": "digits-1", "ResourceConfig": resources, **stopping, **members}


def one(name: str = "ml.m5.xlarge", count: int = 1, gigabytes: int = 30, **more: Any) -> dict[str, Any]:
    return {"InstanceType": name, "InstanceCount": count, "VolumeSizeInGB": gigabytes, **more}


def both(usd: str) -> tuple[Decimal, Decimal]:
    return Decimal(usd), Decimal(usd)


# The arithmetic


def test_instances_times_hours() -> None:
    found = estimate(request(one(count=3)), "us-east-1", made_up)
    assert found is not None
    assert found.per_hour == both("3.60")
    assert found.most_for_training == both("7.20")  # two hours
    assert found.most_for_keep_alive == both("0")
    # 3 x 30 GB x $0.14 x 2 h of 720
    assert found.most_for_volumes == both("0.035")
    assert found.maximum is not None
    assert [round(usd, 9) for usd in found.maximum] == [Decimal("7.235")] * 2


def test_without_a_limit_a_day_is_the_limit() -> None:
    found = estimate(request(one(gigabytes=0), seconds=None), "us-east-1", made_up)
    assert found is not None
    assert found.maximum == both("28.80")
    assert any("at most $28.80, for 1 d, AWS's default" in line for line in as_text(found, "digits"))


def test_a_warm_pool_goes_on_costing() -> None:
    found = estimate(request(one("ml.m5.xlarge", 2, 72, KeepAlivePeriodInSeconds=1800)), "us-east-1", made_up)
    assert found is not None
    assert found.most_for_training == both("4.80")
    assert found.most_for_keep_alive == both("1.20")
    assert found.most_for_volumes == both("0.07")  # 144 GB x $0.14 x 2.5 h of 720
    assert found.maximum is not None
    assert round(found.maximum[1], 9) == Decimal("6.07")


def test_types_with_their_own_disks_pay_for_no_volume() -> None:
    found = estimate(request(one("ml.g5.xlarge", 1, 500)), "us-east-1", made_up)
    assert found is not None
    assert found.most_for_volumes == both("0")
    assert found.maximum == both("9.60")


def test_groups_add_up() -> None:
    groups = [
        {"InstanceGroupName": "gpu", "InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "cpu", "InstanceType": "ml.c5.xlarge", "InstanceCount": 5},
    ]
    found = estimate(request({"InstanceGroups": groups, "VolumeSizeInGB": 36}), "us-east-1", made_up)
    assert found is not None
    assert found.per_hour == both("11.40")  # 2 x 4.80 + 5 x 0.36
    assert found.most_for_volumes == both("0.07")  # the CPUs' only: 180 GB x $0.14 x 2 h of 720
    assert found.instance_types == ("ml.g5.xlarge", "ml.c5.xlarge")


def test_preferences_are_a_range() -> None:
    preferences = [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.m5.xlarge", "InstanceCount": 6}]
    found = estimate(request({"InstanceCount": 2, "InstancePreferences": preferences}), "us-east-1", made_up)
    assert found is not None
    assert found.per_hour == (Decimal("7.20"), Decimal("9.60"))
    assert found.most_for_training == (Decimal("14.40"), Decimal("19.20"))
    lines = as_text(found, "digits")
    assert any(line.split() == ["per", "hour", "$7.20", "to", "$9.60"] for line in lines)
    assert any(line.lstrip().startswith("or ") and "6 x ml.m5.xlarge" in line for line in lines)


def test_spot_is_bounded_and_no_saving_is_made_up() -> None:
    plain = estimate(request(one()), "us-east-1", made_up)
    spot = estimate(request(one(), EnableManagedSpotTraining=True), "us-east-1", made_up)
    assert plain is not None
    assert spot is not None
    assert spot.maximum == plain.maximum
    assert any("at most this" in line for line in as_text(spot, "digits"))
    assert not any("at most this" in line for line in as_text(plain, "digits"))


def test_what_is_not_counted_is_named() -> None:
    own_rule = {"RuleConfigurationName": "mine", "RuleEvaluatorImage": "x", "InstanceType": "ml.t3.medium"}
    built_in = {"RuleConfigurationName": "theirs", "RuleEvaluatorImage": "x"}
    channel = {"ChannelName": "train", "DataSource": {"FileSystemDataSource": {"FileSystemId": "fs-1"}}}
    found = estimate(
        request(one(), ProfilerRuleConfigurations=[own_rule, built_in], InputDataConfig=[channel]), None, made_up
    )
    assert found is not None
    assert "the processing job of rule mine on ml.t3.medium" in found.left_out
    assert "the file system that it reads" in found.left_out
    assert not any("theirs" in what for what in found.left_out)
    plain = estimate(request(one()), None, made_up)
    assert plain is not None
    assert len(plain.left_out) == len(found.left_out) - 2


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"ServerlessJobConfig": {"JobType": "FineTuning"}, "ResourceConfig": {}}, "tokens"),
        (request(one(TrainingPlanArn="arn:aws:sagemaker:us-east-1:1:training-plan/p")), "in advance"),
        ({"TrainingJobName": "digits-1"}, "no instance type"),
    ],
)
def test_what_is_not_paid_by_the_hour_has_no_estimate(wrong: dict[str, Any], why: str) -> None:
    assert estimate(wrong, "us-east-1") is None
    assert why in (why_not(wrong) or "")


# The table


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


def test_bigger_sizes_of_a_family_cost_more() -> None:
    """A slip in typing would show: within a region and family, twice the size costs about twice as much."""
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


def test_the_newest_of_two_sheets_has_the_last_word() -> None:
    about = {"source": "a test", "url": "https://example.org"}
    new = {"region": "us-east-1", "date": "2026-03-01", "usd_per_hour": {"ml.a": Decimal(2)}, **about}
    old = {
        "region": "us-east-1",
        "date": "2025-03-01",
        "usd_per_hour": {"ml.a": Decimal(1), "ml.b": Decimal(3)},
        **about,
    }
    for sheets in ([new, old], [old, new]):
        prices = instance_prices(sheets)
        assert (prices["ml.a", "us-east-1"].usd, prices["ml.a", "us-east-1"].date) == (2, "2026-03-01")
        assert (prices["ml.b", "us-east-1"].usd, prices["ml.b", "us-east-1"].date) == (3, "2025-03-01")


def test_a_region_without_a_price_gets_that_of_us_east_1_and_says_so() -> None:
    price = instance_price("ml.c5.xlarge", "eu-central-1")
    assert price is not None
    assert (price.usd, price.region) == (Decimal("0.204"), "us-east-1")
    found = estimate(request(one("ml.c5.xlarge")), "eu-central-1")
    assert found is not None
    assert any("as of us-east-1, since none is known for eu-central-1" in line for line in as_text(found, "digits"))


def test_a_region_with_a_price_gets_its_own() -> None:
    price, volume = instance_price("ml.g5.xlarge", "eu-west-1"), volume_price("eu-west-1")
    assert price is not None
    assert volume is not None
    assert (price.usd, price.region, price.date) == (Decimal("1.57"), "eu-west-1", "2023-12-31")
    assert (volume.usd, volume.region) == (Decimal("0.154"), "eu-west-1")


@pytest.mark.parametrize("name", ["ml.p6e-gb200.36xlarge", "ml.x99.huge"])
def test_an_unknown_type_is_no_guess(name: str) -> None:
    groups = [
        {"InstanceGroupName": "a", "InstanceType": name, "InstanceCount": 1},
        {"InstanceGroupName": "b", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
    ]
    found = estimate(request({"InstanceGroups": groups}), "us-east-1")
    assert found is not None
    assert found.unknown == (name,)
    assert found.per_hour is found.most_for_training is found.maximum is None
    lines = as_text(found, "digits")
    assert any(f"unknown, since no price is known for {name}" in line for line in lines)
    assert any("ml.m5.xlarge at $0.23/h" in line for line in lines)
    assert as_data(found)["usd_per_hour"] is None


def test_a_type_that_is_known_elsewhere_says_where() -> None:
    found = estimate(request(one("ml.p5en.48xlarge")), "us-east-1")
    assert found is not None
    assert found.per_hour is None
    assert any("the table has one for ap-south-1 only" in line for line in as_text(found, "digits"))


@pytest.mark.parametrize("name", channel_specs.names())
def test_every_bundled_spec_has_an_estimate(name: str) -> None:
    plan = launcher.plan(launcher.load(str(channel_specs.path(name))), name="digits-1")
    found = estimate(plan.request, plan.spec.region)
    assert found is not None
    assert found.unknown == ()
    assert found.maximum is not None


def test_amounts_are_shown_as_people_write_them() -> None:
    assert [dollars(Decimal(usd)) for usd in ("0", "0.004", "0.015", "1234.5")] == [
        "$0.00",
        "less than $0.01",
        "$0.02",
        "$1,234.50",
    ]
    assert [rate(Decimal(usd)) for usd in ("3.2", "0.7364", "63.296", "1000")] == [
        "$3.20",
        "$0.7364",
        "$63.296",
        "$1,000.00",
    ]
    assert at_most((Decimal("1.001"), Decimal("2"))) == "at most $1.01 to $2.00"
    assert at_most((Decimal("0.001"), Decimal("0.001"))) == "less than $0.01"


# After the job


def described(resources: dict[str, Any], billed: int = 1800, **members: Any) -> dict[str, Any]:
    return {"TrainingJobName": "digits-1", "ResourceConfig": resources, "BillableTimeInSeconds": billed, **members}


def test_billed_seconds_times_instances() -> None:
    cost = estimate_of_job(described(one("ml.g5.xlarge", 4)), "us-east-1")
    assert cost is not None
    assert cost.usd == Decimal("2.816")  # half an hour of 4 x $1.408
    assert cost.text.startswith("about $2.82, an estimate: 1,800 s billed x 4 ml.g5.xlarge at $1.408/h (us-east-1, ")
    assert "2026-09-25" in cost.text


def test_spot_is_already_in_the_billed_seconds() -> None:
    spot = described(one("ml.g5.xlarge"), EnableManagedSpotTraining=True, TrainingTimeInSeconds=9000)
    cost = estimate_of_job(spot, "us-east-1")
    assert cost is not None
    assert cost.usd == Decimal("0.704")
    assert "spot saved 80% of on-demand" in cost.text


def test_storage_and_warm_pool_of_an_ended_job() -> None:
    job = described(one("ml.m5.xlarge", 2, 144), WarmPoolStatus={"ResourceRetainedBillableTimeInSeconds": 1800})
    cost = estimate_of_job(job, "us-east-1", made_up)
    assert cost is not None
    # An hour of 2 x $1.20, and of 288 GB x $0.14 / 720
    assert round(cost.usd or Decimal(0), 9) == Decimal("2.456")
    assert "1,800 s more as a warm pool" in cost.text
    assert "$0.06 for 288 GB of storage" in cost.text


def test_the_preference_that_was_taken_is_what_counts() -> None:
    preferences = [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.m5.xlarge"}]
    taken = {"SelectedInstanceType": "ml.m5.xlarge", "SelectedInstanceCount": 2, "InstancePreferences": preferences}
    cost = estimate_of_job(described(taken), "us-east-1", made_up)
    assert cost is not None
    assert cost.usd == Decimal("1.20")
    assert estimate_of_job(described({"InstancePreferences": preferences}), "us-east-1", made_up) is None


def test_what_cannot_be_said_of_an_ended_job() -> None:
    unknown = estimate_of_job(described(one("ml.x99.huge")), "us-east-1")
    assert unknown is not None
    assert unknown.usd is None
    assert "no price is known for ml.x99.huge" in unknown.text
    assert estimate_of_job({"ResourceConfig": one()}, "us-east-1") is None  # nothing was billed yet
    assert estimate_of_job({"BillableTimeInSeconds": 5}, "us-east-1") is None  # a serverless job
    assert estimate_of_job(described(one(TrainingPlanArn="arn:plan")), "us-east-1") is None


# The command


def launch_cost(folder: Path, spec: str, *options: str) -> Result:
    (folder / "job.yaml").write_text(spec)
    return CliRunner().invoke(command, [str(folder / "job.yaml"), *options])


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_the_command_says_that_it_estimates(tmp_path: Path, nowhere: None) -> None:
    resources = "resource_config: {instance_type: ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 30}"
    spec = laid_over_base(f"{resources}\nstopping_condition: {{max_runtime_in_seconds: 3600}}\n{IN_US_EAST_1}")
    done = launch_cost(tmp_path, spec)
    assert done.exit_code == 0, done.output
    assert "an estimate, not AWS's bill" in done.stdout
    assert "2 x ml.m5.xlarge at $0.23/h, AWS's price list of 2026-09-27" in done.stdout
    assert "at most $0.46, for 1 h" in done.stdout
    assert "not counted" in done.stdout
    assert "https://pricing.us-east-1.amazonaws.com/" in done.stdout


def test_the_command_takes_set_and_json(tmp_path: Path, nowhere: None) -> None:
    done = launch_cost(tmp_path, laid_over_base(IN_US_EAST_1), "--json", "--set", "resource_config.instance_count=3")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["is_estimate"] is True
    assert data["region"] == "us-east-1"
    row = data["clusters"][0]["instances"][0]
    assert row["instance_count"] == 3
    assert {"usd", "region", "date", "source", "url"} <= set(row["price"])
    assert data["usd_per_hour"]["most"] == pytest.approx(3 * row["price"]["usd"])


def test_the_command_refuses_where_nothing_is_paid_by_the_hour(tmp_path: Path, nowhere: None) -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
    done = launch_cost(tmp_path, BASE, "--set", f"resource_config.training_plan_arn={plan}")
    assert isinstance(done.exception, RefusedError)
    assert "paid for in advance" in str(done.exception)


def test_online_asks_for_todays_price_and_shows_the_difference(tmp_path: Path, aws: aws_stand_in.StandIn) -> None:
    aws.price("ml.m5.xlarge", 0.253, region="eu-west-1")
    aws.price("ml.m5.xlarge", 9.99, region="eu-west-1", component="Hosting")
    aws.price("ml.m5.xlarge", 8.88, region="us-east-1")
    options = ("--set", "resource_config.instance_type=ml.m5.xlarge", "--set", "resource_config.instance_count=2")
    done = launch_cost(tmp_path, BASE, *options, "--set", "region=eu-west-1", "--online")
    assert done.exit_code == 0, done.output
    assert "2 x ml.m5.xlarge at $0.253/h, AWS's price API of 2026-01-01" in done.stdout
    # 0.253 / 0.257, the bill's of 2023
    assert "the table has $0.257 for ml.m5.xlarge (eu-west-1, an AWS bill of 2023-12-31)" in done.stdout
    assert "-1.56 %" in done.stdout
    (call,) = aws.calls("pricing:")
    assert call["region"] == "us-east-1"  # the price API answers there for every region
    assert aws.writing_calls() == []


def test_online_says_what_aws_does_not_sell(tmp_path: Path, aws: aws_stand_in.StandIn) -> None:
    spec, options = laid_over_base(IN_US_EAST_1), ("--set", "resource_config.instance_type=ml.m5.xlarge")
    done = launch_cost(tmp_path, spec, *options, "--online", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["usd_per_hour"] is None
    (change,) = data["online"]
    assert change["usd"] is None
    assert change["table"]["usd"] == 0.23
    done = launch_cost(tmp_path, spec, *options, "--online")
    assert "AWS has no on-demand price for training on ml.m5.xlarge in us-east-1 today" in done.stdout


# Making the table


def offer(*rows: tuple[str, str, str]) -> dict[str, Any]:
    """AWS's offer file with products of (usage type, unit, dollars)."""
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


def test_a_sheet_is_made_of_an_offer_file() -> None:
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

    sheets = laid_over(SHEETS, sheet)
    assert [each for each in sheets if each["region"] == "us-east-1"] == [sheet]
    assert len([each for each in sheets if each["region"] != "us-east-1"]) == len(
        [each for each in SHEETS if each["region"] != "us-east-1"]
    )
    with pytest.raises(ValueError, match="of one region"):
        sheet_of(offer(("USE1-Host:ml.m5.xlarge", "Hrs", "9.0")))


def test_the_table_is_as_the_script_writes_it() -> None:
    assert OUTPUT.read_text(encoding="utf-8") == to_text(SHEETS)
