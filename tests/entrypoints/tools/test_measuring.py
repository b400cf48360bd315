"""The figures of a run, and their summary."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivered_channels import job
from measure import main
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.tools.measuring import intervals, measure, step_of
from sagemaker_channels.tools.results import mark_different, summary, table
from sagemaker_channels.tools.ways import WAYS, Need, Source, Way, ways_of


def run(name: str, seconds: float, samples: int = 100) -> dict[str, Any]:
    return {"samples": samples, "seconds": seconds, "p50": 0.001, "first_batch": seconds / 10}


RESULTS: dict[str, Any] = {
    "rounds": 3,
    "ways": [
        {
            "name": "slow",
            "title": "Slow",
            "row": 1,
            "bytes": 10**6,
            "runs": [run("slow", each) for each in (5, 10, 20)],
        },
        {"name": "gone", "title": "Gone", "row": 2, "error": "it is not installed; pip install gone", "runs": []},
        {"name": "fast", "title": "Fast", "row": 3, "bytes": 10**6, "runs": [run("fast", 1)], "error": "it crashed"},
    ],
}


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=700))
def test_intervals_are_the_mean_and_variance_of_100_steps_without_the_first(steps: list[float]) -> None:
    ends = [sum(steps[: number + 1]) for number in range(len(steps))]
    found = intervals(ends)
    size = found["interval"]
    assert size == (100 if len(steps) >= 500 else max(1, len(steps) // 5))
    times = [sum(steps[at : at + size]) * 100 / size for at in range(size, len(steps) - size + 1, size)]
    assert found["mean_100"] == (pytest.approx(statistics.fmean(times)) if times else None)
    variance = statistics.variance(times) if len(times) > 1 else None
    assert found["variance_100"] == (None if variance is None else pytest.approx(variance, abs=1e-6, rel=1e-3))


def test_run_counts_all_batches_and_gives_the_step_each_of_them(tmp_path: Path) -> None:
    environment = job(tmp_path / "ml", file={"TrainingInputMode": "File"})
    source = Source(environment, environment.channels["file"], "objects")
    closed: list[bool] = []
    source.exits.callback(closed.append, True)
    batches = [[b"a", b"b"]] * 11 + [[b"c"]]
    way = Way(name="own", title="own loader", row=1, arrivals=("file",), open=lambda source: batches)
    seen: list[Any] = []
    found = measure(way, source, seen.append)
    assert (found["samples"], found["steps"], found["interval"], closed) == (23, 12, 2, [True])
    assert seen == [*batches, *[[b"a", b"b"]] * 11]  # then the first one, cached
    assert 0 <= found["data_share"] < 1
    assert found["seconds"] >= found["first_batch"] >= 0


@pytest.mark.parametrize("text", ["os.path:no_such", "no_such_module:f", "os:name", "fast", "-5ms", "ms"])
def test_step_that_is_no_function_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"--step .*module:function|it is not a function"):
        step_of(text)


def test_step_sleeps_or_is_imported_and_named_when_it_fails() -> None:
    with pytest.raises(ValueError, match=r"--step json:loads: JSONDecodeError: .*json/__init__\.py:\d+\)"):
        step_of("json:loads")("{")
    assert step_of("0ms")([b"a"]) is None


def test_summary_has_medians_and_is_sorted_by_speed() -> None:
    rows = summary(RESULTS)
    assert [(row["name"], row.get("samples_per_second")) for row in rows] == [
        ("fast", 100),
        ("slow", 10),
        ("gone", None),
    ]
    assert (rows[1]["slowest"], rows[1]["fastest"], rows[1]["p50_ms"], rows[1]["megabytes_per_second"]) == (
        5,
        20,
        1,
        0.1,
    )
    lines = table(RESULTS)
    assert [line.split()[0] for line in lines] == ["way", "fast", "slow", "fast:", "gone:"]
    assert lines[3:] == ["fast: it crashed", "gone: it is not installed; pip install gone"]


@pytest.mark.parametrize(("steps", "notes"), [(2, 1), (99, 1), (100, 0)])
def test_too_few_steps_are_noted_below_the_table(steps: int, notes: int) -> None:
    way = {"name": "file", "title": "File", "row": 1, "bytes": 8, "runs": [{**run("file", 1), "steps": steps}]}
    found = [line for line in table({"ways": [way]}) if f"only {steps} steps, too few for s/100 steps" in line]
    assert len(found) == notes


def test_measurement_that_was_stopped_in_round_0_says_so() -> None:
    ways = [{"name": "file", "title": "File", "row": 1, "error": None, "samples": 8, "bytes": 8, "runs": []}]
    assert table({"rounds": 3, "ways": ways}) == ["no round has been measured"]


def test_way_with_other_samples_than_the_others_is_marked() -> None:
    ways: list[dict[str, Any]] = [
        {"name": "a", "samples": 10, "bytes": 100, "digest": "1"},
        {"name": "b", "samples": 9, "bytes": 90, "digest": "2"},
        {"name": "c", "samples": 10, "bytes": 100, "digest": "1"},
        {"name": "d", "error": "it is not installed"},
    ]
    mark_different(ways)
    assert [way.get("error") for way in ways] == [
        None,
        "its 9 samples of 90 bytes are not those of a: 10 of 100 bytes",
        None,
        "it is not installed",
    ]


def test_two_ways_that_differ_are_both_marked() -> None:
    ways: list[dict[str, Any]] = [
        {"name": name, "samples": count, "bytes": 10, "digest": name} for name, count in (("a", 2), ("b", 9))
    ]
    mark_different(ways)
    assert [way["error"] for way in ways] == [
        "its 2 samples of 10 bytes are not those of b: 9 of 10 bytes",
        "its 9 samples of 10 bytes are not those of a: 2 of 10 bytes",
    ]


@pytest.mark.parametrize("way", ["file", "pipe"])
def test_shards_without_a_format_are_refused_before_they_are_read(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "ml"
    environment = job(root, file={"TrainingInputMode": "File"}, pipe={"TrainingInputMode": "Pipe"})
    folder = environment.channels["file"].path
    folder.mkdir(parents=True)
    (folder / "0.tar").write_bytes(b"")
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(root))
    with pytest.raises(SystemExit, match=r"names like 0\.tar; pass --format tar"):
        main(["--ways", way, "--one", way])


def test_way_that_is_not_installed_names_the_commands_that_install_it() -> None:
    needs = (
        Need("json", "pip install json"),
        Need("no_such_package", "pip install none"),
        Need("no-such", "apt", True),
    )
    way = Way(name="x", title="x", row=1, arrivals=("s3",), formats=("tar",), needs=needs, open=lambda source: [])
    assert way.missing() == "it is not installed; pip install none; apt"
    assert WAYS["file"].missing() is None
    assert "it reads a channel on s3" in str(way.why_not(["file"], "tar"))
    assert "it reads tar, not objects" in str(way.why_not(["s3"], "objects"))
    assert way.why_not(["file", "s3"], "tar") is None


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ("file,fast_file", "'fast_file' is not a way to read samples; did you mean 'fast-file'"),
        ("awsio", "awsio: its authors removed it; measure connector-iterable"),
        (" , ", "is not a way to read samples; there are file, fast-file"),
    ],
)
def test_unknown_way_is_refused_with_the_nearest_name(names: str, problem: str) -> None:
    assert [way.name for way in ways_of("pipe, file,,pipe")] == ["pipe", "file"]
    with pytest.raises(ConfigError, match=problem):
        ways_of(names)
