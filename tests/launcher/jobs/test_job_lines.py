"""A job's lines, read while they are written: each once and in order, despite faults of the network and AWS."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from aws_stand_in import StandIn
from followed_job import job
from launcher.aws.session import Account, AwsError
from launcher.console import Console
from launcher.jobs import lines as job_lines
from launcher.jobs.follow import ReadLines, View, follow
from launcher.jobs.lines import JobLines, Line, Selection, host_names, host_of, last_lines, lines_so_far
from patience import PATIENCE

FAULTS = ("reset", "reset-after", "500", "throttle", "expired", "reset", "500-after", "reset")
HOSTS = [f"algo-{number}" for number in range(1, 9)]


def job_so_far() -> JobLines:
    return JobLines(Account(), "cats-1", Selection(), settling=0.0)


def new(lines: JobLines) -> list[str]:
    return [line.message for line in lines.new()]


def so_far(account: Account, **wanted: Any) -> list[Line]:
    warned: list[str] = []
    found = list(lines_so_far(account, {"TrainingJobName": "cats-1"}, Selection(**wanted), warned.append))
    assert warned == []
    return found


def test_host_is_read_from_stream_name() -> None:
    assert host_of("cats-1-2026/algo-12-1690000000") == "algo-12"
    assert host_of("cats/algo-1") == "algo-1"
    assert host_of("cats/algo-1/sidecar-1690000000") == "sidecar"


def test_hosts_of_a_job_with_preferences_are_those_that_aws_has_chosen() -> None:
    preferences = [
        {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
        {"InstanceType": "ml.m5.xlarge", "InstanceCount": 4},
    ]
    resources: dict[str, Any] = {"InstancePreferences": preferences}
    assert host_names({"ResourceConfig": resources}) == []
    resources |= {"SelectedInstanceType": "ml.g5.xlarge", "SelectedInstanceCount": 2}
    assert host_names({"ResourceConfig": resources}) == ["algo-1", "algo-2"]


def test_progress_bar_is_printed_in_its_last_state(capsys: pytest.CaptureFixture[str]) -> None:
    show = ReadLines({}, Console()).show
    for message in ("\r 10%\r 20%\r100%\n", "plain\r\n", "\r  \r", "half \ud800"):
        show(Line(0, "algo-1", message))
    assert capsys.readouterr().out.splitlines() == ["algo-1 | 100%", "algo-1 | plain", "algo-1 | ", "algo-1 | half ?"]


def test_each_round_yields_only_new_lines(aws: StandIn) -> None:
    aws.log("cats-1", ["one", "two", "two"], timestamps=[1000, 1000, 1000])
    lines = job_so_far()
    assert new(lines) == ["one", "two", "two"]
    aws.log("cats-1", ["two", "three"], timestamps=[1000, 1000])
    assert new(lines) == ["two", "three"]
    assert new(lines) == []


def test_only_lines_younger_than_the_settling_time_are_held(aws: StandIn) -> None:
    now = int(time.time() * 1000)
    aws.log("cats-1", ["old", "new"], timestamps=[now - 120_000, now])
    lines = JobLines(Account(), "cats-1", Selection(), settling=60.0)
    assert new(lines) == ["old"]
    assert [line.message for line in lines.remaining()] == ["new"]


def test_late_line_is_found_once(aws: StandIn) -> None:
    aws.log("cats-1", ["same"] * 3, timestamps=[50_000] * 3)
    lines = job_so_far()
    new(lines)
    aws.log("cats-1", ["late", "same"], timestamps=[40_000, 50_000])
    assert new(lines) == ["late", "same"]
    assert new(lines) == []


def test_no_line_of_a_long_page_is_repeated(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_lines, "FORGET_EVERY", 100)
    aws.log("cats-1", [f"{n}" for n in range(1000)], timestamps=[n * 200 for n in range(1000)])
    lines = job_so_far()
    assert len(new(lines)) == 1000
    assert new(lines) == []
    aws.log("cats-1", ["new"], timestamps=[200_000])
    assert new(lines) == ["new"]


def test_round_that_fails_in_the_middle_loses_and_repeats_no_line(
    aws: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(job_lines, "PACE", 0.001)
    for number, host in enumerate(HOSTS[:3]):
        aws.log("cats-1", ["x" * 5_000] * 500, host=host, timestamps=[n * 10 + number for n in range(500)])
    for failing in range(1, 12):
        lines, found = JobLines(Account(), "cats-1", Selection(), settling=0.0), list[Line]()
        aws.fault("denied", "logs:GetLogEvents", nth=failing)
        with pytest.raises(AwsError):
            found += lines.new()  # what came before the error is in the list
        found += lines.new()
        assert [(line.timestamp, line.host) for line in found] == [
            (n * 10 + number, host) for n in range(500) for number, host in enumerate(HOSTS[:3])
        ]


def test_selection_limits_time_and_host(aws: StandIn) -> None:
    aws.log("cats-1", ["a1", "b1"], timestamps=[1000, 3000])
    aws.log("cats-1", ["a2", "b2"], host="algo-2", timestamps=[2000, 4000])
    aws.log("cats-10", ["another job's"])
    account = Account()
    assert [line.message for line in so_far(account)] == ["a1", "a2", "b1", "b2"]
    assert [line.message for line in so_far(account, since=2000)] == ["a2", "b1", "b2"]
    assert so_far(account, host="algo-2") == [Line(2000, "algo-2", "a2"), Line(4000, "algo-2", "b2")]


def test_lines_so_far_of_a_running_job_end_now_however_fast_it_writes(aws: StandIn) -> None:
    aws.log("cats-1", ["now", "later"], timestamps=[1000, 2**42])
    assert [line.message for line in so_far(Account())] == ["now"]
    ended = {"TrainingJobName": "cats-1", "TrainingEndTime": None}
    assert [line.message for line in lines_so_far(Account(), ended, Selection(), print)] == ["now", "later"]


@pytest.mark.parametrize(("faults", "patience"), [(15, 60.0), (100, 0.0)])
def test_lines_so_far_outlast_an_error_that_passes(
    aws: StandIn, monkeypatch: pytest.MonkeyPatch, faults: int, patience: float
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(job_lines, "PATIENCE_SECONDS", patience)
    aws.log("cats-1", ["now"])
    aws.fault("reset", "logs:GetLogEvents", count=faults)
    warned: list[str] = []
    lines = lines_so_far(Account(), {"TrainingJobName": "cats-1"}, Selection(), warned.append)
    if patience:
        assert [line.message for line in lines] == ["now"]
        assert {each.rpartition("; ")[2] for each in warned} == {"trying again"}
    else:
        with pytest.raises(AwsError, match="GetLogEvents"):
            list(lines)


def test_missing_log_has_no_lines(aws: StandIn) -> None:
    assert so_far(Account()) == []


def test_many_pages_of_streams_and_lines_are_read(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_lines, "PACE", 0.001)
    for number in range(1, 61):
        aws.log("cats-1", [f"{number}"], host=f"algo-{number}", timestamps=[60 - number])
    aws.log("cats-1", ["x" * 300] * 12_000, timestamps=list(range(100, 12_100)))
    lines = so_far(Account())
    assert [line.message for line in lines[:60]] == [f"{number}" for number in range(60, 0, -1)]
    assert len(lines) == 12_060


def test_last_lines_merge_all_hosts(aws: StandIn) -> None:
    aws.log("cats-1", ["a", "b", "c"], timestamps=[1, 3, 5])
    aws.log("cats-1", ["d", "e"], host="algo-2", timestamps=[2, 4])
    aws.log("cats-1", ["f", "g\nh"], started=4000000001, timestamps=[6, 7])  # after an interruption
    found = last_lines(Account(), {"TrainingJobName": "cats-1"})
    assert [(line.host, line.message) for line in found] == [
        ("algo-2", "d"),
        ("algo-2", "e"),
        ("algo-1", "f"),
        ("algo-1", "g"),
        ("algo-1", "h"),
    ]
    aws.deny("logs:*")
    assert last_lines(Account(), {"TrainingJobName": "cats-1"}) == ()


def test_last_lines_are_behind_empty_pages(aws: StandIn) -> None:
    """A page is of a span of time, in which the job may have printed nothing; so the first page of an older job is often empty."""
    aws.log("cats-1", ["a", "b"], timestamps=[1, 3])
    for pages in (2, 3):
        aws.order("logs/empty_every", pages=pages)
        for _ in range(pages):
            assert [line.message for line in last_lines(Account(), {"TrainingJobName": "cats-1"})] == ["a", "b"]
        assert [line.message for line in so_far(Account())] == ["a", "b"]


def test_last_lines_are_those_of_every_host_and_bounded(aws: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [f"algo-{number}" for number in range(1, 61)]
    for host in hosts:
        aws.log("cats-1", [f"line {number} {'x' * 100}" for number in range(50)], host=host)
    assert len(last_lines(Account(), {"TrainingJobName": "cats-1"})) == 60 * 50
    monkeypatch.setattr(job_lines, "END_CHARACTERS", 60 * 600)
    found = last_lines(Account(), {"TrainingJobName": "cats-1"})
    assert [line.message.split()[1] for line in found if line.host == "algo-60"] == ["45", "46", "47", "48", "49"]
    assert {line.host for line in found} == set(hosts)


def test_streams_of_restart_are_found(aws: StandIn) -> None:
    aws.log("cats-1", ["first"])
    lines = job_so_far()
    assert new(lines) == ["first"]
    aws.log("cats-1", ["second"], started=4000009999)
    assert new(lines) == ["second"]


@pytest.fixture
def writing(aws: StandIn) -> Iterator[threading.Thread]:
    """Write 2,500 lines per host for eight hosts within seconds, some late, then end the job."""
    job(aws, hosts=8)
    aws.job("cats-1", "Training")

    def write() -> None:
        for batch in range(25):
            if batch in (8, 16):  # each of the next calls fails in one way or another, and no kept connection is left
                for nth, kind in enumerate(FAULTS if batch == 8 else ("reset",) * 12, 1):
                    aws.fault(kind, "logs:*", nth=nth)
            for number, host in enumerate(HOSTS):
                if batch >= number:  # hosts begin one after the other
                    first, last = 0 if batch == number else batch * 100, (batch + 1) * 100
                    aws.log("cats-1", [said(n) for n in range(first, last)], host=host)
            if batch == 5:
                aws.delay("cats-1/algo-3-4000000000", 1.0)
            if batch == 20:
                aws.fault("reset", "sagemaker:DescribeTrainingJob", count=2)
            time.sleep(0.05)
        aws.delay("cats-1/algo-3-4000000000", 1.5)
        aws.job("cats-1", "Completed")

    thread = threading.Thread(target=write)
    yield thread
    thread.join(PATIENCE)


def said(number: int) -> str:
    return "the same again" if number % 5 == 0 else f"line {number}"


def test_lines_of_8_hosts_are_read_despite_throttling_resets_and_expiry(
    aws: StandIn, writing: threading.Thread, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[Line] = []
    aws.limit("logs:*", 10)
    writing.start()
    outcome = follow(Account(), "cats-1", Console(), View(on_line=lines.append, settling=2.0))
    assert outcome.exit_code == 0
    expected = [said(number) for number in range(2_500)]
    for host in HOSTS:
        assert [line.message for line in lines if line.host == host] == expected, host
    assert all(one.timestamp <= other.timestamp for one, other in pairwise(lines))
    assert {*FAULTS} <= {str(call["outcome"]) for call in aws.calls("logs:")}
