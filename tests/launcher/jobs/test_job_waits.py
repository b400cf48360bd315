"""What a job's loops wait for, in the reports of `launch status`, `launch logs` and followed jobs, from the job's log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aws_stand_in import StandIn
from followed_job import job
from launcher.cli import main
from launcher.jobs.waits import ChannelWaits, LoopWaits, in_words
from sagemaker_channels.waits import line_of

PARTS = ("source", "parse", "transform", "handover")


def line(channel: str, share: float, cause: str = "source", **changes: Any) -> str:
    """The line of 100 steps of 0.1 seconds each, as sagemaker_channels writes it."""
    record = {
        "channel": channel,
        "mode": "S3Connector",
        "rank": 0,
        "workers": 4,
        "threads": 0,
        "cores": 8,
        "busy_cores": 4.0,
        "steps": 100,
    }
    record |= {
        "step_s": 0.1,
        "wait_s": 0.1 * share,
        "own_share": 1 - share,
        "wait_share": share,
        **{f"{part}_share": 0.0 for part in PARTS},
    }
    members = {**record, f"{cause}_share": share, **changes}
    return line_of({name: value for name, value in members.items() if value is not None})


def worst(*lines: str) -> tuple[ChannelWaits, ...]:
    waits = LoopWaits()
    for each in lines:
        waits.note(each)
    return waits.worst()


def reported(*lines: str) -> list[str]:
    return [str(waits) for waits in worst(*lines)]


def test_waits_in_a_huge_line_take_no_time_by_the_square_of_its_length() -> None:
    assert reported("waits channel=a mode=b " * 1_000_000) == []


def simulated_share(workers: int, waiting: float, working: float, own: float, cores: int) -> float:
    """The part of a step that waits, if workers prepare each batch in `waiting` + `working` seconds."""
    making = max((waiting + working) / workers, working / cores)
    return max(0.0, making - own) / max(making, own)


@pytest.mark.parametrize(
    ("cause", "changes", "text"),
    [
        ("source", {}, "41 % of each step waits for channel train (S3); more workers would remove about 40 %"),
        (
            "source",
            {"mode": "Pipe"},
            "41 % of each step waits for channel train (the Pipe's feeder); more workers would not help",
        ),
        (
            "transform",
            {"cores": 4},
            "41 % of each step waits for channel train (the transform); more workers would not help",
        ),
        (
            "transform",  # that waits for a service, say
            {"cores": 4, "busy_cores": 0.3},
            "41 % of each step waits for channel train (the transform); more workers would remove about 40 %",
        ),
        ("transform", {"busy_cores": None}, "41 % of each step waits for channel train (the transform)"),
        (
            "transform",
            {"workers": 0, "threads": 2},
            "41 % of each step waits for channel train (the transform); more threads would not help",
        ),
        (
            "parse",
            {"cores": 5},
            "41 % of each step waits for channel train (parsing); more workers would remove about 20 %",
        ),
        (
            "parse",
            {"workers": 0, "threads": 2},
            "41 % of each step waits for channel train (parsing); more threads would not help",
        ),
        (
            "source",
            {"workers": 0, "threads": 1},
            "41 % of each step waits for channel train (S3); more threads would remove about 40 %",
        ),
        (
            "source",
            {"workers": 0, "threads": 2},
            "41 % of each step waits for channel train (S3); more threads would not help",
        ),
        (
            "handover",
            {},
            "41 % of each step waits for channel train (the hand-over between processes); a ThreadLoader sends nothing"
            " between processes",
        ),
        ("wait", {}, "41 % of each step waits for channel train"),
    ],
)
def test_report_names_the_share_its_cause_and_what_would_help(cause: str, changes: dict[str, Any], text: str) -> None:
    assert reported(line("train", 0.41, cause, **changes)) == [text]


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize(("waiting", "working"), [(0.8, 0.0), (0.0, 0.8)])
def test_removable_part_is_that_of_a_loop_with_twice_the_workers(workers: int, waiting: float, working: float) -> None:
    own, cores = 0.05, 6
    share = simulated_share(workers, waiting, working, own, cores)
    seconds = own / (1 - share)
    waits = ChannelWaits("train", "S3Connector", workers, 0, cores, seconds, own, seconds * share, seconds, working)
    known = waiting + working
    waits.parts |= {"source": waits.waited * waiting / known, "parse": waits.waited * working / known}
    more = simulated_share(2 * workers, waiting, working, own, cores)
    assert waits.removable == pytest.approx(1 - (own / (1 - more)) / seconds)


def test_lines_of_all_hosts_add_up_and_the_longest_wait_is_first() -> None:
    lines = [line("train", 0.2), line("train", 0.4), line("extra", 0.8), line("idle", 0.01)]
    first, second = worst("epoch 1", *lines, "waits channel=train mode=x wait_share=cut")
    assert first.channel == "extra" and first.share == pytest.approx(0.8)
    assert second.channel == "train" and second.share == pytest.approx(0.3)


def test_workers_of_an_untimed_loop_are_reported_if_they_are_busy() -> None:
    record = {
        "channel": "train",
        "mode": "S3Connector",
        "rank": 0,
        "workers": 2,
        "threads": 0,
        "cores": 8,
        "busy_share": 0.97,
    }
    shares = {"source_share": 0.9, "parse_share": 0.07, "transform_share": 0.0}
    text = "the workers of channel train are busy 97 % of the time (S3), so the loop may wait for them;"
    assert reported(line_of(record | shares)) == [f"{text} sagemaker_channels.timed(loader) records how long"]
    assert not reported(line_of(record | shares | {"busy_share": 0.5}))
    busy = line_of(record | shares)
    assert [in_words(each) for each in ("a", busy)] == ["a", f"waits: {reported(busy)[0]}"]


@pytest.mark.usefixtures("quick_sleep")
def test_status_and_logs_report_waits(aws: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    job(aws)
    aws.job("cats-1", "Training")
    aws.log("cats-1", ["epoch 1", line("train", 0.41), line("train", 0.41)])
    text = "41 % of each step waits for channel train (S3); more workers would remove about 40 %"
    for command in (["status", "cats-1"], ["logs", "cats-1"]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0
        shown = capsys.readouterr()
        assert text in (shown.out if command[0] == "status" else shown.err)
        assert shown.out.count(f"algo-1 | waits: {text}\n") == 2 * (command[0] == "logs")
    aws.job("cats-1", "Completed")
    with pytest.raises(SystemExit):
        main(["logs", "cats-1", "--follow"])
    assert f"  waits      {text}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["status", "cats-1", "--json"])
    waits = json.loads(capsys.readouterr().out)["Waits"]["train"]
    assert (waits["Share"], waits["source"], waits["Report"]) == (0.41, 0.41, text)
