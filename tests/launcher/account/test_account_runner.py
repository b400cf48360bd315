"""How the account checks run: in time, each question once, and unanswered questions block nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import aws_stand_in
from account_data import BASE, CHANNEL, CHECKS, TRAIN, checked, with_data
from launcher.errors import RefusedError, dotted
from patience import PATIENCE


def test_denied_questions_block_nothing(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    aws.deny("s3:HeadBucket", "s3:ListObjectsV2", containing="data")
    report = checked(f"checkpoint_config: {{s3_uri: s3://out/checkpoints}}\n{CHANNEL}")
    assert report.problems == []
    said = {result.check: result.status for result in report.results}
    assert (
        said.items()
        >= {
            "buckets": "not-asked",
            "prefixes": "not-asked",
            "archives": "not-asked",
            "manifests": "not-needed",
            "shares": "not-needed",
            "disk": "not-asked",
            "checkpoints": "passed",
        }.items()
    )
    assert all("you may not ask: s3:" in why and "channels.train.s3_uri" in why for _, why in report.not_asked)
    assert report.as_data()["checks"][0]["not_asked"][0]["path"] == TRAIN


def test_s3_compatible_store_with_fewer_calls_blocks_nothing(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    aws.refuse("s3:HeadBucket", "NotImplemented", "no", status=501, count=-1)
    report = checked(CHANNEL)
    assert report.problems == []
    assert [why for _, why in report.not_asked] == [
        f"{place}: s3:HeadBucket: Not Implemented [501]" for place in ("output_data_config.s3_output_path", TRAIN)
    ]
    assert report.lines()[-2].endswith("s3:HeadBucket: Not Implemented [501] (and 1 more)")


def test_missing_answer_hides_no_other(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    aws.deny("s3:ListObjectsV2", containing="train")
    report = checked("channels: {train: s3://data/train/, other: s3://data/other/}")
    assert [(each.code, dotted(each.path)) for each in report.problems] == [("prefix-empty", "channels.other.s3_uri")]
    assert {check for check, _ in report.not_asked} == {"prefixes", "archives", "disk"}


def test_hanging_question_ends_at_the_deadline(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    aws.fault("hang", "s3:ListObjectsV2", seconds=2 * PATIENCE, count=-1)
    for deadline in (4.0, 30.0, PATIENCE):  # a busy machine may need longer for the question that is answered
        report = checked("channels: {train: s3://dota/train/, more: s3://data/train/}", deadline=deadline)
        assert ("prefixes", f"no answer in {deadline:g} s") in report.not_asked
        if report.problems:
            break
    assert [each.code for each in report.problems] == ["bucket-missing"]
    aws.clear_faults()


def test_account_without_any_answer_is_given_up_after_one_deadline(aws: aws_stand_in.StandIn) -> None:
    aws.fault("hang", "*", seconds=2 * PATIENCE, count=-1)
    for deadline in (1.0, 10.0):  # a busy machine may be late
        began = time.monotonic()
        with pytest.raises(RefusedError, match="AWS cannot be reached: no answer"):
            checked(CHANNEL, deadline=deadline)
        if (seconds := time.monotonic() - began) < 2 * deadline:
            break
    assert deadline <= seconds < 2 * deadline
    aws.clear_faults()


def test_process_ends_while_a_question_hangs(aws: aws_stand_in.StandIn, tmp_path: Path) -> None:
    with_data(aws)
    aws.fault("hang", "s3:HeadBucket", seconds=2 * PATIENCE, count=-1)
    spec = tmp_path / "job.yaml"
    spec.write_text(f"{BASE}{CHANNEL}\n")
    code = (
        "import launcher, sys; from launcher.aws.session import Account; from launcher.account.results import check_account\n"
        "from launcher.account import CHECKS\n"
        "report = check_account(launcher.plan(sys.argv[1]), Account(), checks=CHECKS[:2], deadline=1.0)\n"
        "print(report.results[0].status)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, spec], capture_output=True, text=True, timeout=PATIENCE, env={**os.environ}
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("not-asked\n", "", 0)
    aws.clear_faults()


def test_missing_or_expired_credentials_raise(aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with_data(aws)
    aws.fault("expired", "*", count=-1)
    with pytest.raises(RefusedError, match="s3:"):
        checked(CHANNEL)
    aws.clear_faults()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(RefusedError, match="no AWS credentials found"):
        checked(CHANNEL, deadline=0.0)  # which a busy machine reaches before it has made a client


def test_same_question_is_asked_once(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    checked(f"checkpoint_config: {{s3_uri: s3://out/checkpoints}}\n{CHANNEL}")
    asked = [(call["operation"], json.dumps(call["parameters"], sort_keys=True)) for call in aws.calls()]
    assert len(asked) == len(set(asked))


def test_plan_imports_no_account_check() -> None:
    code = (
        "import sys, launcher\n"
        f"launcher.plan(launcher.parse_spec({BASE + CHANNEL!r}, 'job.yaml'), ignore=('channel-whole-bucket',))\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('boto3', 'botocore') or 'launcher.account' in name])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_report_lines_show_notes_unanswered_questions_and_summary(aws: aws_stand_in.StandIn) -> None:
    with_data(aws)
    aws.deny("s3:ListObjectsV2", containing="out")
    lines = checked(f"checkpoint_config: {{s3_uri: s3://out/checkpoints}}\n{CHANNEL}").lines()
    assert lines[0] == "channels.train.s3_uri: 4 objects, 16 bytes"
    assert lines[1].startswith("not asked: disk: checkpoint_config.s3_uri: you may not ask: s3:ListObjectsV2: ")
    assert lines[2].startswith("not asked: checkpoints: checkpoint_config.s3_uri: you may not ask: s3:ListObjectsV2: ")
    assert re.fullmatch(rf"{len(CHECKS)} checks in .+ s: \d+ not asked, \d+ not needed, \d+ passed", lines[-1])
