"""The stand-in for AWS, asked by boto3: that it answers as AWS's references say, since other tests lean on it."""

from __future__ import annotations

import functools
import io
import json
import os
from datetime import timedelta
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from aws_stand_in import StandIn, running

REQUEST: dict[str, Any] = {
    "TrainingJobName": "cats-1",
    "RoleArn": "arn:aws:iam::123456789012:role/trainer",
    "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": "image"},
    "OutputDataConfig": {"S3OutputPath": "s3://data/out/"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "HyperParameters": {"empty": ""},
    "Tags": [{"Key": "team", "Value": "vision"}],
}


def once(aws: StandIn, service: str) -> Any:
    """A client that never tries again, to see each answer."""
    return client_of(aws.endpoint, service)


@functools.cache
def client_of(endpoint: str, service: str) -> Any:
    import boto3

    return boto3.client(
        service, endpoint_url=endpoint, config=Config(retries={"total_max_attempts": 1}, read_timeout=20)
    )


def refused(what: Any, **parameters: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        what(**parameters)
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_jobs_life(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    arn = sagemaker.create_training_job(**REQUEST)["TrainingJobArn"]
    assert aws.requests() == [REQUEST]
    assert refused(sagemaker.create_training_job, **REQUEST) == ("ResourceInUse", 400)
    assert refused(sagemaker.describe_training_job, TrainingJobName="dogs") == ("ValidationException", 400)
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == REQUEST["Tags"]

    aws.advance(60)
    aws.job("cats-1", "Downloading")
    aws.advance(30)
    aws.job("cats-1", "Training", message="going on")
    aws.job("cats-1", "Uploading")
    aws.advance(10)
    aws.job("cats-1", "Completed", metrics={"loss": 0.5}, billable=33)
    job = sagemaker.describe_training_job(TrainingJobName="cats-1")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Completed", "Completed")
    assert job["HyperParameters"] == {"empty": ""}
    assert "Tags" not in job
    statuses = [transition["Status"] for transition in job["SecondaryStatusTransitions"]]
    assert statuses == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert job["SecondaryStatusTransitions"][2]["StatusMessage"] == "going on"
    assert (job["TrainingTimeInSeconds"], job["BillableTimeInSeconds"]) == (40, 33)
    assert job["FinalMetricDataList"][0]["Value"] == 0.5
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == "s3://data/out/cats-1/output/model.tar.gz"
    with pytest.raises(ValueError, match="cannot become Training"):
        aws.job("cats-1", "Training")
    assert refused(sagemaker.stop_training_job, TrainingJobName="cats-1") == ("ValidationException", 400)


def test_a_scripted_life_needs_no_sleep(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    aws.script(
        {"after": 60, "status": "Downloading"},
        {"after": 90, "status": "Training"},
        {"status": "Interrupted", "message": "no spot capacity"},
        {"status": "Failed", "reason": "AlgorithmError: exit 1"},
        name="cats-*",
        on_stop=[{"after": 5, "status": "Stopped"}],
    )
    spot = REQUEST | {"EnableManagedSpotTraining": True}
    for name in ("cats-1", "cats-2"):
        sagemaker.create_training_job(**spot | {"TrainingJobName": name})
    aws.advance(91)
    assert aws.job("cats-1")["SecondaryStatus"] == "Training"
    aws.advance(100)
    aws.step("cats-1")
    aws.advance(50)
    failed = aws.step("cats-1")
    assert (failed["TrainingJobStatus"], failed["FailureReason"]) == ("Failed", "AlgorithmError: exit 1")
    assert (failed["TrainingTimeInSeconds"], failed["BillableTimeInSeconds"]) == (181, 131)

    sagemaker.stop_training_job(TrainingJobName="cats-2")
    assert sagemaker.describe_training_job(TrainingJobName="cats-2")["TrainingJobStatus"] == "Stopping"
    aws.advance(6)
    assert sagemaker.describe_training_job(TrainingJobName="cats-2")["SecondaryStatus"] == "Stopped"


def test_jobs_are_listed_filtered_and_paged(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    for number in range(12):
        sagemaker.create_training_job(**REQUEST | {"TrainingJobName": f"{'cats' if number % 2 else 'dogs'}-{number}"})
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
    late = sagemaker.list_training_jobs(CreationTimeAfter=newest[1]["CreationTime"] + timedelta(seconds=30))[
        "TrainingJobSummaries"
    ]
    assert [job["TrainingJobName"] for job in late] == ["dogs-10", "cats-11"]


def test_a_request_outside_the_model_is_refused(aws: StandIn) -> None:
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
    assert names == [f"cats-1/{host}-1699999999" for host in hosts]

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


def test_get_log_events_gives_its_token_back_at_the_end(aws: StandIn) -> None:
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
    aws.log("cats-1", ["late"], timestamps=[1010])  # before the token's place: going on does not see it
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


def test_lines_can_come_late(aws: StandIn) -> None:
    logs = once(aws, "logs")
    stream = aws.log("cats-1", ["one"])
    aws.delay(stream, 30)
    where = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamNames": [stream]}
    assert logs.filter_log_events(**where)["events"] == []
    aws.advance(31)
    assert [event["message"] for event in logs.filter_log_events(**where)["events"]] == ["one"]


def test_a_simulated_policy(aws: StandIn) -> None:
    iam = once(aws, "iam")
    iam.create_role(RoleName="trainer", AssumeRolePolicyDocument=_policy("Allow", "sts:AssumeRole", None))
    document = (
        _policy("Allow", "s3:Get*", "arn:aws:s3:::data/*"),
        _policy("Deny", "s3:GetObject", "arn:aws:s3:::data/secret/*"),
    )
    for number, text in enumerate(document):
        iam.put_role_policy(RoleName="trainer", PolicyName=f"p{number}", PolicyDocument=text)
    condition = {"StringEquals": {"aws:SourceVpc": "vpc-1"}}
    policy = iam.create_policy(PolicyName="put", PolicyDocument=_policy("Allow", "s3:PutObject", "*", condition))[
        "Policy"
    ]
    iam.attach_role_policy(RoleName="trainer", PolicyArn=policy["Arn"])
    ask = {"PolicySourceArn": "arn:aws:iam::123456789012:role/trainer"}
    keys = [f"arn:aws:s3:::{key}" for key in ("data/a", "data/secret/b", "other/a")]
    answer = iam.simulate_principal_policy(**ask, ActionNames=["s3:GetObject"], ResourceArns=keys)["EvaluationResults"]
    decisions = [result["EvalResourceDecision"] for result in answer[0]["ResourceSpecificResults"]]
    assert decisions == ["allowed", "explicitDeny", "implicitDeny"]
    answer = iam.simulate_principal_policy(**ask, ActionNames=["s3:PutObject"])["EvaluationResults"]
    assert (answer[0]["EvalDecision"], answer[0]["MissingContextValues"]) == ("implicitDeny", ["aws:SourceVpc"])
    context = [{"ContextKeyName": "aws:sourcevpc", "ContextKeyValues": ["vpc-1"], "ContextKeyType": "string"}]
    answer = iam.simulate_principal_policy(**ask, ActionNames=["s3:PutObject"], ContextEntries=context)[
        "EvaluationResults"
    ]
    assert answer[0]["EvalDecision"] == "allowed"
    iam.attach_role_policy(RoleName="trainer", PolicyArn="arn:aws:iam::aws:policy/AmazonSageMakerFullAccess")
    answer = iam.simulate_principal_policy(**ask, ActionNames=["logs:PutLogEvents", "iam:CreateUser"])[
        "EvaluationResults"
    ]
    assert [result["EvalDecision"] for result in answer] == ["allowed", "implicitDeny"]
    ask["PolicySourceArn"] += "s"
    assert refused(iam.simulate_principal_policy, **ask, ActionNames=["s3:PutObject"]) == ("NoSuchEntity", 404)


def _policy(effect: str, action: str, resource: str | None, condition: dict[str, Any] | None = None) -> str:
    statement: dict[str, Any] = {"Effect": effect, "Action": action}
    statement |= {"Principal": {"Service": "sagemaker.amazonaws.com"}} if resource is None else {"Resource": resource}
    statement |= {"Condition": condition} if condition else {}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_quotas_file_systems_images_and_prices(aws: StandIn) -> None:
    aws.quota("ml.g5.xlarge for training job usage", 0)
    pages = once(aws, "service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
    quotas = {quota["QuotaName"]: quota["Value"] for page in pages for quota in page["Quotas"]}
    assert quotas["ml.g5.xlarge for training job usage"] == 0
    assert quotas["ml.g5.xlarge for spot training job usage"] > 0
    assert quotas["ml.g5.xlarge for training warm pool usage"] == 0
    assert quotas["ml.t3.medium for processing job usage"] > 0

    fsx = once(aws, "fsx")
    aws.file_system("fs-0123456789abcdef0", Lifecycle="CREATING", LustreConfiguration={"MountName": "abcd"})
    system = fsx.describe_file_systems(FileSystemIds=["fs-0123456789abcdef0"])["FileSystems"][0]
    assert (system["Lifecycle"], system["LustreConfiguration"]["MountName"]) == ("CREATING", "abcd")
    assert refused(fsx.describe_file_systems, FileSystemIds=["fs-0123456789abcdef1"]) == ("FileSystemNotFound", 400)

    ecr = once(aws, "ecr")
    aws.image("763104351884", "pytorch-training", "2.5-gpu")
    ask = {"registryId": "763104351884", "repositoryName": "pytorch-training"}
    assert ecr.describe_images(**ask, imageIds=[{"imageTag": "2.5-gpu"}])["imageDetails"][0]["imageTags"] == ["2.5-gpu"]
    assert refused(ecr.describe_images, **ask, imageIds=[{"imageTag": "9"}]) == ("ImageNotFoundException", 400)
    assert refused(ecr.describe_images, repositoryName="mine") == ("RepositoryNotFoundException", 400)

    aws.price("ml.g5.xlarge", 1.408)
    aws.price("ml.g5.xlarge", 1.5, region="eu-west-1")
    fields = {"regionCode": "us-east-1", "instanceName": "ml.g5.xlarge", "component": "Training"}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    listed = once(aws, "pricing").get_products(ServiceCode="AmazonSageMaker", Filters=filters)["PriceList"]
    terms = [json.loads(product)["terms"]["OnDemand"] for product in listed]
    dimensions = [next(iter(term.values()))["priceDimensions"] for term in terms]
    assert [next(iter(one.values()))["pricePerUnit"]["USD"] for one in dimensions] == ["1.4080000000"]


def test_buckets_elsewhere(aws: StandIn) -> None:
    s3 = once(aws, "s3")
    s3.create_bucket(Bucket="here")
    constraint = {"LocationConstraint": "eu-west-1"}
    aws.client("s3", "eu-west-1").create_bucket(Bucket="there", CreateBucketConfiguration=constraint)
    aws.bucket("theirs", forbidden=True)
    aws.clear_calls()
    assert s3.head_bucket(Bucket="here")["BucketRegion"] == "us-east-1"
    assert s3.head_bucket(Bucket="there")["BucketRegion"] == "eu-west-1"  # botocore goes on to where the 301 points
    assert [(call["region"], call["outcome"]) for call in aws.calls()][1:] == [("us-east-1", 301), ("eu-west-1", 200)]
    assert refused(s3.head_bucket, Bucket="theirs") == ("403", 403)
    assert refused(s3.list_objects_v2, Bucket="theirs") == ("AccessDenied", 403)
    assert refused(s3.head_bucket, Bucket="nobodys") == ("404", 404)


def test_objects_that_are_only_said_to_be_there(aws: StandIn) -> None:
    s3 = once(aws, "s3")
    s3.create_bucket(Bucket="data")
    aws.objects("data", pattern="train/{:05d}.tar", count=2500, size=10**12)
    aws.objects("data", sizes={"train_old/a b&c.tar": 1, "train/deep/é.tar": 2, "a": 3})
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket="data", Prefix="train"))
    assert [page["KeyCount"] for page in pages] == [1000, 1000, 502]
    keys = [item["Key"] for page in pages for item in page["Contents"]]
    assert keys == sorted(keys)
    assert keys[-2:] == ["train/deep/é.tar", "train_old/a b&c.tar"]
    top = s3.list_objects_v2(Bucket="data", Delimiter="/", MaxKeys=2)
    assert [item["Prefix"] for item in top["CommonPrefixes"]] == ["train/"]
    rest = s3.list_objects_v2(Bucket="data", Delimiter="/", ContinuationToken=top["NextContinuationToken"])
    assert ([item["Prefix"] for item in rest["CommonPrefixes"]], rest["IsTruncated"]) == (["train_old/"], False)
    assert s3.list_objects_v2(Bucket="data", Prefix="none")["KeyCount"] == 0
    assert s3.head_object(Bucket="data", Key="train/00001.tar")["ContentLength"] == 10**12
    assert refused(s3.head_object, Bucket="data", Key="none") == ("404", 404)


def test_moto_gets_bytes_as_they_came(aws: StandIn) -> None:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="data")
    body, key = os.urandom(20_000_000), "a//b c+é%41.bin"
    s3.upload_fileobj(io.BytesIO(body), "data", key)  # in parts, several at once
    assert s3.get_object(Bucket="data", Key=key)["Body"].read() == body
    assert s3.head_object(Bucket="data", Key=key)["ContentLength"] == len(body)
    assert [item["Key"] for item in s3.list_objects_v2(Bucket="data")["Contents"]] == [key]
    assert {"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"} <= {
        call["operation"] for call in aws.calls()
    }
    assert {call["operation"] for call in aws.calls() if not call["writes"]} == {
        "GetObject",
        "HeadObject",
        "ListObjectsV2",
    }


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "sagemaker": ("list_training_jobs", {}),
    "logs": ("describe_log_groups", {}),
    "iam": ("list_roles", {}),
    "sts": ("get_caller_identity", {}),
    "ec2": ("describe_regions", {}),
    "efs": ("describe_file_systems", {}),
    "fsx": ("describe_file_systems", {}),
    "kms": ("list_keys", {}),
    "ecr": ("describe_repositories", {}),
    "s3": ("list_buckets", {}),
    "service-quotas": ("list_service_quotas", {"ServiceCode": "sagemaker"}),
    "pricing": ("get_products", {"ServiceCode": "AmazonSageMaker"}),
}
CODES = {
    "throttle": {
        "ThrottlingException", "Throttling", "RequestLimitExceeded", "SlowDown",
    },
    "500": {"InternalFailure", "InternalServerError", "InternalError"},
    "expired": {"ExpiredTokenException", "ExpiredToken", "RequestExpired"},
    "denied": {"AccessDeniedException", "AccessDenied", "UnauthorizedOperation"},
}  # fmt: skip


@pytest.mark.parametrize("service", ASKED)
def test_each_protocol_has_its_own_refusals(aws: StandIn, service: str) -> None:
    operation, parameters = ASKED[service]
    ask = getattr(once(aws, service), operation)
    for kind, codes in CODES.items():
        aws.fault(kind, f"{service}:*", nth=2)
        ask(**parameters)
        code, status = refused(ask, **parameters)
        assert code in codes
        assert status >= 500 if kind == "500" else 400 <= status < 500 or code in ("SlowDown", "RequestLimitExceeded")
        assert aws.calls()[-1]["code"] == code
        aws.clear_faults()
        ask(**parameters)


def test_head_has_no_body_to_say_that_a_token_expired(aws: StandIn) -> None:
    aws.fault("expired", "s3:HeadBucket")
    assert refused(once(aws, "s3").head_bucket, Bucket="data") == ("400", 400)


def test_new_keys_are_good_when_the_old_have_expired(aws: StandIn) -> None:
    import boto3

    aws.fault("expired", key_id=aws.environ["AWS_ACCESS_KEY_ID"], count=-1)
    for _ in range(2):
        assert refused(once(aws, "sts").get_caller_identity) == ("ExpiredToken", 403)
    boto3.client("sts", aws_access_key_id="new", aws_secret_access_key="new").get_caller_identity()


def test_effects_and_answers_part(aws: StandIn) -> None:
    sagemaker = once(aws, "sagemaker")
    for number, (kind, happens) in enumerate(
        [("reset", False), ("reset-after", True), ("500-after", True), ("throttle", False)]
    ):
        aws.fault(kind, "sagemaker:CreateTrainingJob")
        with pytest.raises((ConnectionClosedError, ClientError)):
            sagemaker.create_training_job(**REQUEST | {"TrainingJobName": f"cats-{number}"})
        assert (f"cats-{number}" in {request["TrainingJobName"] for request in aws.requests()}) == happens
    aws.fault("hang", "sagemaker:CreateTrainingJob", seconds=60)
    import boto3

    hasty = boto3.client("sagemaker", config=Config(read_timeout=0.3, retries={"total_max_attempts": 1}))
    with pytest.raises(ReadTimeoutError):
        hasty.create_training_job(**REQUEST)
    aws.clear_faults()
    assert "cats-1" in {request["TrainingJobName"] for request in aws.requests()}
    outcomes = [call["outcome"] for call in aws.calls("CreateTrainingJob")]
    assert outcomes == ["reset", "reset-after", "500-after", "throttle", "hang"]
    assert aws.writing_calls() == ["sagemaker:CreateTrainingJob"] * 5


def test_faults_choose_their_calls(aws: StandIn) -> None:
    s3 = once(aws, "s3")
    aws.deny("s3:GetObject", containing="secret")
    aws.refuse("s3:PutObject", "KMS.DisabledException", "the key is disabled", count=2)
    s3.create_bucket(Bucket="data")
    for _ in range(2):
        assert refused(s3.put_object, Bucket="data", Key="a", Body=b"a") == ("KMS.DisabledException", 400)
    for key in ("a", "secret/a"):
        s3.put_object(Bucket="data", Key=key, Body=b"a")
    s3.get_object(Bucket="data", Key="a")["Body"].close()
    for _ in range(3):
        assert refused(s3.get_object, Bucket="data", Key="secret/a") == ("AccessDenied", 403)
    with pytest.raises(ValueError, match="is none of"):
        aws.fault("thunder")


def test_a_rate_is_kept(aws: StandIn) -> None:
    aws.log("cats-1", ["a"])
    aws.limit("logs:*", 3)
    logs, said = once(aws, "logs"), []
    for _ in range(6):
        try:
            logs.filter_log_events(logGroupName="/aws/sagemaker/TrainingJobs")
            said.append("")
        except ClientError as error:
            said.append(error.response["Error"]["Code"])
    assert said == ["", "", "", *["ThrottlingException"] * 3]


def test_its_processes_end_with_it() -> None:
    with running() as other:
        other.client("sts").get_caller_identity()
    with pytest.raises(OSError, match="refused"):
        other.order("calls")
