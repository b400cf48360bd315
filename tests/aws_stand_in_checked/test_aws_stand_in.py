"""The stand-in for AWS, tested with boto3 on jobs and logs: other tests rely on the answers that AWS documents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from aws_stand_in import StandIn, running
from aws_stand_in.asking import a_job, once, refused

REQUEST = a_job(HyperParameters={"empty": ""}, Tags=[{"Key": "team", "Value": "vision"}])


def test_job_is_advanced_through_its_states_by_hand(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    arn = sagemaker.create_training_job(**REQUEST)["TrainingJobArn"]
    assert aws.requests() == [REQUEST]
    assert refused(sagemaker.create_training_job, **REQUEST) == ("ResourceInUse", 400)
    assert refused(sagemaker.delete_training_job, TrainingJobName="cats-1") == ("ResourceInUse", 400)
    assert refused(sagemaker.describe_training_job, TrainingJobName="dogs") == ("ValidationException", 400)
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == REQUEST["Tags"]

    aws.advance(60)
    aws.job("cats-1", "Downloading")
    aws.advance(30)
    aws.job("cats-1", "Training", message="running")
    aws.job("cats-1", "Uploading")
    aws.advance(10)
    aws.job("cats-1", "Completed", metrics={"loss": 0.5}, billable=33)
    job = sagemaker.describe_training_job(TrainingJobName="cats-1")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Completed", "Completed")
    assert job["HyperParameters"] == {"empty": ""}
    assert "Tags" not in job
    statuses = [transition["Status"] for transition in job["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert job["SecondaryStatusTransitions"][2]["StatusMessage"] == "running"
    assert job["TrainingTimeInSeconds"] >= 40  # The clock also advances by itself.
    assert job["BillableTimeInSeconds"] == 33
    assert job["FinalMetricDataList"][0]["Value"] == 0.5
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == "s3://data/out/cats-1/output/model.tar.gz"
    with pytest.raises(ValueError, match="cannot become Training"):
        aws.job("cats-1", "Training")
    assert refused(sagemaker.stop_training_job, TrainingJobName="cats-1") == ("ValidationException", 400)
    sagemaker.delete_training_job(TrainingJobName="cats-1")
    assert refused(sagemaker.delete_training_job, TrainingJobName="cats-1")[1] == 400
    assert sagemaker.create_training_job(**REQUEST)["TrainingJobArn"] == arn


def test_scripted_job_runs_through_its_states_without_sleeping(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    aws.script(
        {"after": 60, "status": "Downloading"},
        {"after": 90, "status": "Training"},
        {"status": "Interrupted", "message": "no spot capacity"},
        {"status": "Failed", "reason": "AlgorithmError: exit 1"},
        name="cats-*",
        on_stop=[{"after": 5, "status": "Stopped"}],
    )
    spot = a_job(EnableManagedSpotTraining=True)
    for name in ("cats-1", "cats-2"):
        sagemaker.create_training_job(**spot | {"TrainingJobName": name})
    aws.advance(91)
    assert aws.job("cats-1")["SecondaryStatus"] == "Training"
    aws.advance(100)
    aws.step("cats-1")
    aws.advance(50)
    failed = aws.step("cats-1")
    assert (failed["TrainingJobStatus"], failed["FailureReason"]) == ("Failed", "AlgorithmError: exit 1")
    # The clock also advances by itself, so a slow machine adds seconds.
    assert failed["TrainingTimeInSeconds"] >= 181
    assert failed["TrainingTimeInSeconds"] - failed["BillableTimeInSeconds"] >= 50

    sagemaker.stop_training_job(TrainingJobName="cats-2")
    assert sagemaker.describe_training_job(TrainingJobName="cats-2")["TrainingJobStatus"] == "Stopping"
    aws.advance(6)
    assert sagemaker.describe_training_job(TrainingJobName="cats-2")["SecondaryStatus"] == "Stopped"


def test_jobs_are_listed_filtered_and_paged(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    for number in range(12):
        sagemaker.create_training_job(**a_job(f"{'cats' if number % 2 else 'dogs'}-{number}"))
        aws.advance(60)
    aws.job("cats-1", "Failed")
    pages = [page["TrainingJobSummaries"] for page in sagemaker.get_paginator("list_training_jobs").paginate()]
    assert [len(page) for page in pages] == [10, 2]
    newest = sagemaker.list_training_jobs(NameContains="cats", SortOrder="Descending", MaxResults=2)[
        "TrainingJobSummaries"
    ]
    assert [job["TrainingJobName"] for job in newest] == ["cats-11", "cats-9"]
    failed = sagemaker.list_training_jobs(StatusEquals="Failed")["TrainingJobSummaries"]
    assert [job["TrainingJobName"] for job in failed] == ["cats-1"]
    after = newest[1]["CreationTime"] + timedelta(seconds=30)
    late = sagemaker.list_training_jobs(CreationTimeAfter=after)["TrainingJobSummaries"]
    assert [job["TrainingJobName"] for job in late] == ["dogs-10", "cats-11"]


def test_request_outside_the_model_is_refused(aws: StandIn) -> None:
    import boto3

    loose = boto3.client("sagemaker", config=Config(parameter_validation=False))
    with pytest.raises(
        ClientError, match=r"2 validation errors.*'roleArn'.*must not be null|'trainingJobName'.*pattern"
    ):
        loose.create_training_job(
            **{key: value for key, value in REQUEST.items() if key != "RoleArn"} | {"TrainingJobName": "a_b"}
        )
    assert aws.requests() == []


def test_log_pages_hold_every_line_once(aws: StandIn) -> None:
    logs = once(aws, "logs")
    group = "/aws/sagemaker/TrainingJobs"
    assert refused(logs.describe_log_streams, logGroupName=group) == ("ResourceNotFoundException", 400)
    hosts = [f"algo-{number}" for number in range(1, 9)]
    for offset, host in enumerate(hosts):
        lines = [f"{host} line {number}" for number in range(10_000)]
        aws.log("cats-1", lines, host, timestamps=[1_700_000_000_000 + 8 * number + offset for number in range(10_000)])
    aws.order("logs/empty_every", pages=3)
    names = [stream["logStreamName"] for stream in logs.describe_log_streams(logGroupName=group)["logStreams"]]
    assert names == [f"cats-1/{host}-4000000000" for host in hosts]

    seen: list[dict[str, Any]] = []
    sizes = []
    for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group, logStreamNamePrefix="cats-1/"):
        seen += page["events"]
        sizes.append(len(page["events"]))
    assert 0 in sizes
    assert max(sizes) == 10_000
    assert len({event["eventId"] for event in seen}) == len(seen) == 80_000
    times = [event["timestamp"] for event in seen]
    assert times == sorted(times)


def test_get_log_events_returns_its_token_at_the_end(aws: StandIn) -> None:
    logs = once(aws, "logs")
    stream = aws.log("cats-1", [f"line {number}" for number in range(25)], timestamps=list(range(1000, 1025)))
    where = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": stream}
    first = logs.get_log_events(**where, startFromHead=True, limit=20)
    assert [event["message"] for event in first["events"]] == [f"line {number}" for number in range(20)]
    second = logs.get_log_events(**where, nextToken=first["nextForwardToken"], limit=20)
    assert len(second["events"]) == 5
    end = logs.get_log_events(**where, nextToken=second["nextForwardToken"])
    assert end["events"] == []
    assert end["nextForwardToken"] == second["nextForwardToken"]
    aws.log("cats-1", ["late"], timestamps=[1010])  # before the token's place, so it is not returned
    aws.log("cats-1", ["more"], timestamps=[1024])
    more = logs.get_log_events(**where, nextToken=end["nextForwardToken"])
    assert [event["message"] for event in more["events"]] == ["more"]
    back = logs.get_log_events(**where, limit=3)
    assert [event["message"] for event in back["events"]] == ["line 23", "line 24", "more"]
    earlier = logs.get_log_events(**where, nextToken=back["nextBackwardToken"], limit=2)
    assert [event["message"] for event in earlier["events"]] == ["line 21", "line 22"]
    some = logs.get_log_events(**where, startTime=1010, endTime=1011, startFromHead=True)
    assert [event["message"] for event in some["events"]] == ["line 10", "late"]
    big = aws.log("cats-2", ["x" * 250_000] * 9, timestamps=list(range(9)))
    where["logStreamName"] = big
    assert len(logs.get_log_events(**where, startFromHead=True)["events"]) == 4  # 1 MB
    assert refused(logs.get_log_events, **where | {"logStreamName": "cats-3/algo-1-1"}) == (
        "ResourceNotFoundException",
        400,
    )


def test_delayed_lines_appear_late(aws: StandIn) -> None:
    logs = once(aws, "logs")
    stream = aws.log("cats-1", ["one"])
    aws.delay(stream, 30)
    where = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNames": [stream]}
    assert logs.filter_log_events(**where)["events"] == []
    aws.advance(31)
    assert [event["message"] for event in logs.filter_log_events(**where)["events"]] == ["one"]


def test_processes_end_with_the_stand_in() -> None:
    with running() as other:
        other.client("sts").get_caller_identity()
    with pytest.raises(OSError, match="refused"):
        other.order("calls")


def test_jobs_are_found_in_their_own_region_only(aws: StandIn) -> None:
    here, there = aws.client("sagemaker"), aws.client("sagemaker", "eu-west-1")
    for client, count in ((here, 1), (there, 2)):
        client.create_training_job(**a_job(ResourceConfig={**a_job()["ResourceConfig"], "InstanceCount": count}))
    there.create_training_job(**a_job("dogs-1", Tags=[{"Key": "team", "Value": "a"}]))
    assert refused(here.describe_training_job, TrainingJobName="dogs-1") == ("ValidationException", 400)
    assert [len(client.list_training_jobs()["TrainingJobSummaries"]) for client in (here, there)] == [1, 2]
    assert there.describe_training_job(TrainingJobName="cats-1")["ResourceConfig"]["InstanceCount"] == 2


def test_search_returns_the_jobs_of_a_region_that_its_filters_fit(aws: StandIn) -> None:
    here = aws.client("sagemaker")
    aws.client("sagemaker", "eu-west-1").create_training_job(**a_job("elsewhere"))
    for name in ("cats-1", "cats-2", "cats-3"):
        here.create_training_job(**a_job(name, Tags=[{"Key": "team", "Value": "a"}]))
    aws.job("cats-2", "Completed")
    running = {"Filters": [{"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "InProgress"}]}
    asked = {"Resource": "TrainingJob", "SearchExpression": running, "MaxResults": 1}
    first = here.search(**asked)
    second = here.search(**asked, NextToken=first["NextToken"])
    found = [each["TrainingJob"] for page in (first, second) for each in page["Results"]]
    assert sorted(job["TrainingJobName"] for job in found) == ["cats-1", "cats-3"]
    assert found[0]["Tags"] == [{"Key": "team", "Value": "a"}]
    assert "NextToken" not in second
