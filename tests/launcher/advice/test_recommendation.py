"""The advice for situations that AWS's guide describes, and for others that people ask about."""

from dataclasses import replace
from typing import Any

import pytest

from launcher.advice.facts import Advice, Inventory, Observed, Quantiles, Use
from launcher.advice.prediction import predict
from launcher.advice.recommendation import recommend
from launcher.advice.ways import WAYS

GPU: dict[str, Any] = {
    "vcpus": 8,
    "memory_bytes": 61 * 10**9,
    "usd_per_hour": 3.825,
    "disk_bytes": 500 * 10**9,
    "samples_per_s": 328,
}

# The ways that the guide compares; a further one can be better.
GUIDE = {name: WAYS[name] for name in ("File", "FastFile", "S3Connector", "Pipe", "FSxLustre", "EFS")}


def advised(objects: int, size: float, *, place: str = "S3", observed: Observed | None = None, **use: Any) -> Advice:
    each = int(size)
    data = Inventory(objects, objects * each, Quantiles(*[each] * 5), place=place)
    used = Use(**{**GPU, "random_access": False, **use})
    return recommend(predict(data, used, observed, ways=GUIDE), data, used)


# What is described, the data, the use, the advice that is right, and what a reason must mention.
SITUATIONS = [
    ("20 GB of shards, 10 epochs", (200, 1e8), {"epochs": 10, "samples": 500_000}, {"File", "FastFile"}, "copied"),
    (
        "1 GB of images, many epochs",
        (30_000, 39e3),
        {"epochs": 50, "jobs": 1},
        {"File", "FastFile, resharded"},
        "would",
    ),
    ("2 TB of large shards read once", (4_000, 5e8), {"samples": 20_000_000}, {"FastFile"}, "need no resharding"),
    (
        "10 million images of 100 KB, many jobs",
        (10_000_000, 1e5),
        {"epochs": 10, "jobs": 60, "has_vpc": True},
        {"FastFile, resharded", "FSxLustre"},
        "shards",
    ),
    (
        "10 million images of 100 KB that cannot be resharded, many jobs",
        (10_000_000, 1e5),
        {"epochs": 10, "jobs": 200, "random_access": True, "samples_per_s": 4000, "has_vpc": True},
        {"FSxLustre"},
        "cannot be resharded",
    ),
    (
        "files on EFS that people edit",
        (5_000, 2e5),
        {"place": "EFS", "edited_in_place": True},
        {"EFS"},
        "edit",
    ),
    ("lists in S3 that people edit", (20, 1e6), {"edited_in_place": True}, {"EFS"}, "edited in place"),
    ("data on FSx", (1_000_000, 1e5), {"place": "FSxLustre"}, {"FSxLustre"}, ""),
    (
        "500 GB of shards, to start within a minute",
        (5_000, 1e8),
        {"start_within_s": 60, "samples": 5_000_000, "disk_bytes": 10**12},
        {"FastFile"},
        "warm pool",
    ),
    (
        "3 TB of large files read at random",
        (3_000, 1e9),
        {"random_access": True, "jobs": 60, "has_vpc": True, "samples": 30_000_000, "samples_per_s": 4000},
        {"FSxLustre"},
        "by index",
    ),
    (
        "a built-in algorithm and 10 GB of RecordIO",
        (100, 1e8),
        {"is_built_in": True, "samples": 10**6},
        {"File", "FastFile", "Pipe"},
        "",
    ),
    ("80 GB of images and a slow model", (800_000, 1e5), {"samples_per_s": 50}, {"FastFile"}, ""),
]


@pytest.mark.parametrize(
    ("data", "use", "right", "reason"), [case[1:] for case in SITUATIONS], ids=[case[0] for case in SITUATIONS]
)
def test_situations_get_the_advice_of_the_guide(
    data: tuple[int, float], use: dict[str, Any], right: set[str], reason: str
) -> None:
    advice = advised(*data, **use)
    assert advice.best.name in right, advice.reasons
    assert reason in " ".join(advice.reasons)
    assert not advice.best.problems
    assert advice.runner_up is not advice.best
    assert advice.runner_up or "place" in use


def test_many_small_objects_are_resharded_into_shards_of_the_size_that_is_advised() -> None:
    best = advised(10_000_000, 1e5, epochs=10, jobs=60).best
    assert best.shards and 1e8 <= best.shards.bytes <= 1.01e9


def test_present_way_stays_if_the_model_does_not_wait_for_data() -> None:
    advice = advised(800_000, 1e5, samples_per_s=50, present="FastFile")
    assert advice.is_present_good_enough and advice.best.way == "FastFile"
    assert "good enough" in advice.reasons[0]


def test_saving_by_shards_is_stated_for_all_jobs_if_the_present_way_stays() -> None:
    use: dict[str, Any] = {"samples_per_s": 100, "epochs": 1, "present": "FastFile"}
    often, once = (advised(100_000, 2e5, jobs=jobs, **use) for jobs in (90, 1))
    assert often.is_present_good_enough and "would save 4% in 90 jobs" in " ".join(often.reasons)
    assert "would not pay for this use" in " ".join(once.reasons)


def test_present_way_that_takes_much_longer_is_not_good_enough() -> None:
    advice = advised(1_530_350, 39e3, present="File", epochs=1)
    assert advice.is_present_good_enough is False
    assert advice.best.job_s < advice.estimates[-1].job_s
    assert "not good enough" in advice.reasons[0]


def test_present_way_that_does_not_fit_the_disk_says_so() -> None:
    advice = advised(5_000, 1e8, present="File", disk_bytes=30 * 10**9, samples=10**6)
    assert advice.is_present_good_enough is False
    assert "do not fit" in advice.reasons[0]


def test_wishes_that_no_way_fulfils_are_named() -> None:
    advice = advised(1_000_000, 1e8, edited_in_place=True, has_vpc=False)
    assert advice.reasons[0].startswith("no way does all that is wanted")
    assert advice.best.problems


def test_resharding_pays_for_many_jobs_and_not_for_one() -> None:
    one, many = (advised(100_000, 5e5, jobs=jobs, samples_per_s=100_000, epochs=1).best for jobs in (1, 200))
    assert (one.shards, bool(many.shards)) == (None, True)


def test_observations_change_the_advice() -> None:
    slow = advised(
        1_000_000, 1e6, samples_per_s=328, disk_bytes=2 * 10**12, epochs=20, observed=Observed(bytes_per_s=50e6)
    )
    assert slow.best.way == "File"


@pytest.mark.parametrize(
    ("data", "use", "fact"),
    [
        ((1_000, 1e6), {"samples_per_s": None}, "how fast the model is"),
        ((1_000, 1e6), {"random_access": None}, "by index"),
        (
            (1_000, 1e6),
            {"disk_bytes": None, "memory_bytes": None},
            "taken for no memory to cache data, a large disk; pass memory_bytes, disk_bytes",
        ),
        ((1_000, 1e6), {"vcpus": None}, "taken for 8 vCPUs; pass vcpus"),
        ((1_000, 1e6), {}, "how many epochs"),
        ((1_000, 1e8), {}, "how many samples"),
        ((1_000, 100), {}, "how these data are read"),
        ((1_000, 5e9), {"samples": 10**6}, "how these data are read"),
        ((1_000, 1e6), {"jobs": None}, "how many jobs"),
        ((1_000, 1e6), {"place": "EFS"}, "throughput mode"),
    ],
)
def test_unknown_facts_are_listed_with_how_to_find_out(data: tuple[int, float], use: dict[str, Any], fact: str) -> None:
    assert any(fact in each for each in advised(*data, **use).unknown)


def test_listing_that_ended_early_leaves_the_present_way_unjudged() -> None:
    data = Inventory(200_000, 200_000 * 39_000, Quantiles(*[39_000] * 5), is_complete=False)
    use = Use(**{**GPU, "samples_per_s": 50, "present": "File", "disk_bytes": 9 * 2**30})
    advice = recommend(predict(data, use), data, use)
    assert advice.is_present_good_enough is None
    assert "pass --full" in advice.reasons[0]
    assert "good enough" not in " ".join(advice.reasons)
    small = replace(use, disk_bytes=2**30)
    assert recommend(predict(data, small), data, small).is_present_good_enough is False
