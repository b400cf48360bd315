"""Causes of failures: each row of the tables matches real messages of AWS, Linux, torch and Python, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from job_failure_lines import LINES
from job_failure_reasons import JOB, REASONS
from launcher.jobs.causes import Cause, headline, rows
from launcher.jobs.causes import likely_cause as cause_of
from launcher.jobs.lines import Line
from rank_failures import host_logs


def likely_cause(description: dict[str, Any], lines: Sequence[str]) -> Cause | None:
    return cause_of(description, [Line(0, "algo-1", line) for line in lines])


@pytest.mark.parametrize(("code", "reason", "named"), REASONS)
def test_aws_message_names_cause(code: str, reason: str, named: str) -> None:
    check(code, {**JOB, "FailureReason": reason}, (), named)


@pytest.mark.parametrize(("code", "lines", "named"), LINES)
def test_last_lines_name_cause(code: str, lines: str, named: str) -> None:
    last_lines = ("epoch 3: loss 0.25", *lines.splitlines(), "ERROR failed")
    check(code, {**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, last_lines, named)


@pytest.mark.parametrize(
    ("secondary", "named"), [("MaxRuntimeExceeded", "3600"), ("MaxWaitTimeExceeded", "7200"), ("Interrupted", "spot")]
)
def test_secondary_status_names_cause(secondary: str, named: str) -> None:
    code = {"MaxRuntimeExceeded": "max-runtime", "MaxWaitTimeExceeded": "max-wait-time"}.get(
        secondary, "spot-interruption"
    )
    check(code, {**JOB, "TrainingJobStatus": "Stopped", "SecondaryStatus": secondary}, (), named)


def test_full_disk_of_a_local_run_is_that_of_this_machine() -> None:
    job = {**JOB, "FailureReason": "AlgorithmError: , exit code: 1", "Python": "/usr/bin/python3"}
    found = likely_cause(job, ["OSError: [Errno 28] No space left on device: '/opt/ml/model/model.pt'"])
    assert found is not None and "disk of this machine" in found.cause and "`launch clean`" in found.remedy


def check(code: str, description: dict[str, Any], lines: tuple[str, ...], named: str) -> None:
    found = likely_cause(description, lines)
    assert found is not None
    assert found.code == code, found.cause
    assert named in found.cause
    assert found.remedy
    assert "{" not in found.cause + found.remedy


def test_every_row_has_an_example() -> None:
    elsewhere = {"max-runtime", "max-wait-time", "spot-interruption", "pipe-as-folder"}  # in tests of their own
    missing = {row.code for row in rows()} - {code for code, *_ in (*REASONS, *LINES)} - elsewhere
    assert not missing, "add its real text to tests/job_failure_lines.py or tests/job_failure_reasons.py"


def test_sentences_without_facts_use_general_words() -> None:
    for row in rows():
        bare = likely_cause({"TrainingJobStatus": "Failed", "FailureReason": ""}, ())
        assert bare is None
        assert "  " not in row.cause + row.remedy
        assert not row.remedy.endswith(".")


PIPES = {
    "AlgorithmSpecification": {"TrainingInputMode": "Pipe"},
    "InputDataConfig": [{"ChannelName": "train"}, {"ChannelName": "lists", "InputMode": "File"}],
}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train'", "pipe-as-folder"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train/a.csv'", "pipe-as-folder"),
        ("NotADirectoryError: [Errno 20] Not a directory: '/opt/ml/input/data/train_0'", "pipe-as-folder"),
        ("ls: cannot access '/opt/ml/input/data/train': No such file or directory", "pipe-as-folder"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/train_7'", "data-missing"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/lists/a.lst'", "data-missing"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/other'", "data-missing"),
    ],
)
def test_folder_hint_is_only_for_pipe_channels(line: str, code: str) -> None:
    found = likely_cause({**JOB, **PIPES, "FailureReason": "AlgorithmError: , exit code: 1"}, (line,))
    assert found is not None and found.code == code
    assert "/opt/ml/input/data/train_0" in found.remedy or code != "pipe-as-folder"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (
            "AlgorithmError: ValueError: why\n\nTraceback (most recent call last):\n  File",
            "AlgorithmError: ValueError: why",
        ),
        ("AlgorithmError: ValueError: why\n\n...\n    x = y\nValueError: why", "AlgorithmError: ValueError: why"),
        ("AlgorithmError: failed: why\nTraceback (most recent call last):\n  File", "AlgorithmError: failed: why"),
        ("Framework Error: \nTraceback (most recent call last):\nValueError: why", None),
        ("ClientError: one\n\ntwo", None),
    ],
)
def test_headline_omits_only_the_traceback(reason: str, shown: str | None) -> None:
    assert headline(reason) == (shown or " ".join(reason.split()))


@pytest.mark.parametrize("status", ["Completed", "InProgress", "Stopped"])
def test_job_that_did_not_fail_has_no_cause(status: str) -> None:
    lines = ("ModuleNotFoundError: No module named 'wandb'", "CUDA out of memory")
    assert likely_cause({**JOB, "TrainingJobStatus": status, "SecondaryStatus": status}, lines) is None


def test_no_message_and_no_lines_give_no_cause() -> None:
    assert likely_cause({**JOB, "FailureReason": "ClientError: something new"}, ("epoch 1", "epoch 2")) is None


def test_cause_in_aws_message_precedes_cause_in_lines() -> None:
    job = {**JOB, "FailureReason": "ClientError: Please use an instance type with more memory, or reduce the size"}
    found = likely_cause(job, ("ModuleNotFoundError: No module named 'wandb'",))
    assert found is not None
    assert found.code == "out-of-memory"


def test_first_error_precedes_its_echo_on_other_hosts() -> None:
    lines = (
        "NCCL error: remote process exited",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
        "NCCL WARN",
    )
    found = likely_cause({**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, lines)
    assert found is not None
    assert found.code == "out-of-memory-gpu"


def test_error_of_a_package_that_is_too_old_is_the_cause_itself() -> None:
    error = "ImportError: torch 2.3.0 is too old: ChannelDataset needs torch>=2.5; use a later image"
    found = likely_cause({**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, (error,))
    assert found is not None and found.code == "script-failed" and "use a later image" in found.cause, found


def test_benign_line_alone_gives_no_specific_cause() -> None:
    benign = "algo-1:48 [0] NCCL WARN NET/OFI Error opening file: /sys/devices/virtual/dmi/id/product_name"
    found = likely_cause({**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, (benign, "epoch 1"))
    assert found is not None
    assert found.code == "script-failed"
    assert "do not show why" in found.cause


def test_remedy_for_one_host_does_not_name_security_groups() -> None:
    one = {**JOB, "FailureReason": "AlgorithmError: , exit code: 1", "ResourceConfig": {"InstanceCount": 1}}
    found = likely_cause(one, ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251",))
    assert found is not None
    assert found.code == "nccl"
    assert "the hosts" not in found.cause
    assert "security groups" not in found.remedy


def test_sigterm_reports_the_error_before_it() -> None:
    job = {**JOB, "FailureReason": "AlgorithmError: , exit code: 143"}
    found = likely_cause(job, ("ValueError: bad label 7", "SIGTERM"))
    assert found is not None
    assert (found.code, "ValueError: bad label 7" in found.cause) == ("script-failed", True)


def test_exception_with_a_long_message_is_found() -> None:
    found = likely_cause({**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}, [f"ValueError: bad {'x' * 5000}"])
    assert found is not None
    assert "exit code 1: ValueError: bad xxx" in found.cause


@pytest.mark.parametrize("repeated", ["_", "W", "a.", "Error: ", "Unable to mount file system: fs-1", "[x]"])
def test_cause_of_a_huge_line_takes_no_time_by_the_square_of_its_length(repeated: str) -> None:
    """By the square of 10 MB, it would take days."""
    job = {**JOB, "FailureReason": "AlgorithmError: , exit code: 1"}
    assert likely_cause(job, [repeated * (10_000_000 // len(repeated))] * 3) is not None


def test_object_missing_from_message_is_taken_from_lines() -> None:
    job = {**JOB, "FailureReason": "AlgorithmError: InstallRequirementsError:\nExitCode 1"}
    found = likely_cause(job, ("ERROR: No matching distribution found for torchh==9",))
    assert found is not None
    assert (found.code, "torchh==9" in found.cause) == ("requirements", True)


EIGHT_RANKS = {**JOB, "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1}}
SIXTEEN_HOSTS = {**JOB, "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 16}}
# AWS's message may quote any rank.
REASONS_OF_RANKS = (
    "AlgorithmError: , exit code: 1",
    'AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "[rank3]: torch.distributed.DistBackendError: NCCL error"',
)


def in_order(*hosts: Sequence[Line]) -> list[Line]:
    return sorted(chain.from_iterable(hosts), key=lambda line: line.timestamp)


@pytest.mark.parametrize("reason", REASONS_OF_RANKS)
def test_first_rank_that_fails_is_the_cause(reason: str) -> None:
    [log] = host_logs(hosts=1, failing=5).values()
    assert [line for line in log[-150:] if "OutOfMemoryError" in line.message] == []
    found = cause_of({**EIGHT_RANKS, "FailureReason": reason}, log)
    assert found is not None
    assert found.cause == "rank 5: the GPU's memory was full"
    assert found.as_data().items() >= {"Code": "out-of-memory-gpu", "Rank": 5}.items()


@pytest.mark.parametrize("reason", REASONS_OF_RANKS)
def test_first_host_that_fails_is_the_cause(reason: str) -> None:
    found = cause_of({**SIXTEEN_HOSTS, "FailureReason": reason}, in_order(*host_logs(hosts=16, failing=37).values()))
    assert found is not None
    assert found.cause == "rank 37 on algo-5: the GPU's memory was full"
    assert found.as_data().items() >= {"Host": "algo-5", "Rank": 37}.items()


def test_exception_of_one_host_is_not_the_cause_if_another_failed_before() -> None:
    late, early = (
        [
            Line(time, host, f"[rank{rank}]: Traceback (most recent call last):"),
            Line(time, host, f"[rank{rank}]: {error}"),
        ]
        for time, host, rank, error in (
            (2000, "algo-1", 0, "RuntimeError: the queue is empty"),
            (1000, "algo-2", 8, "ValueError: bad label 7"),
        )
    )
    for reason in ("AlgorithmError: , exit code: 1", "AlgorithmError: RuntimeError: the queue is empty, exit code: 1"):
        found = cause_of({**SIXTEEN_HOSTS, "FailureReason": reason}, in_order(late, early))
        assert found is not None
        assert "rank 8 on algo-2" in found.cause and "ValueError: bad label 7" in found.cause


def test_exceptions_that_the_training_survived_are_not_the_cause() -> None:
    caught = [Line(0, "algo-1", "KeyError: 'cached'"), Line(400_000, "algo-1", "step=100 loss=0.25")]
    failed = [Line(401_000, "algo-2", "ValueError: bad label 7")]
    marked = [Line(401_000, "algo-2", "[rank8]: ValueError: bad label 7")]
    just_caught = [Line(400_500, "algo-1", "OSError: no cache")]
    for lines in (caught + failed, caught + just_caught + marked):
        found = cause_of({**SIXTEEN_HOSTS, "FailureReason": "AlgorithmError: , exit code: 1"}, lines)
        assert found is not None
        assert found.host == "algo-2"
        assert "ValueError: bad label 7" in found.cause


def test_rank_ended_by_a_signal_is_named() -> None:
    report = [
        "Root Cause (first observed failure):",
        "[0]:",
        "  rank      : 13 (local_rank: 5)",
        "  exitcode  : -9 (pid: 58)",
    ]
    echo = [Line(1000, "algo-1", "[rank0]: torch.distributed.DistBackendError: NCCL error: peer gone")]
    killed = [Line(2000, "algo-2", line) for line in report]
    job = {**SIXTEEN_HOSTS, "FailureReason": "AlgorithmError: , exit code: 1"}
    found = cause_of(job, echo + killed)
    assert found is not None
    assert (found.code, found.host, found.rank) == ("out-of-memory", "algo-2", "13")
    full = [Line(500, "algo-1", "[rank3]: torch.OutOfMemoryError: CUDA out of memory.")]
    found = cause_of(job, full + echo + killed)
    assert found is not None
    assert (found.code, found.host, found.rank) == ("out-of-memory-gpu", "algo-1", "3")


def test_hosts_and_ranks_are_not_named_for_what_peers_report() -> None:
    line = "[rank0]:[E321 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
    found = cause_of({**SIXTEEN_HOSTS, "FailureReason": "AlgorithmError: , exit code: 1"}, [Line(0, "algo-1", line)])
    assert found is not None
    assert (found.code, found.host, found.rank) == ("collective-timeout", "", "")
