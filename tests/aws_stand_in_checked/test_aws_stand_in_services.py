"""The stand-in for AWS, tested with boto3 on what moto lacks of IAM, quotas, FSx, ECR, prices and S3."""

from __future__ import annotations

import io
import json
import os
from typing import Any

from aws_stand_in import StandIn
from aws_stand_in.asking import once, refused


def test_policy_simulation_decides_like_iam(aws: StandIn) -> None:
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
    policies = [
        [one["SourcePolicyId"] for one in result["MatchedStatements"]]
        for result in answer[0]["ResourceSpecificResults"]
    ]
    assert policies == [["role_trainer_p0"], ["role_trainer_p1"], []]
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


def test_quotas_file_systems_images_and_prices_are_returned(aws: StandIn) -> None:
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


def test_buckets_in_other_regions_are_redirected(aws: StandIn) -> None:
    s3 = once(aws, "s3")
    s3.create_bucket(Bucket="here")
    constraint = {"LocationConstraint": "eu-west-1"}
    aws.client("s3", "eu-west-1").create_bucket(Bucket="there", CreateBucketConfiguration=constraint)
    aws.bucket("theirs", forbidden=True)
    aws.clear_calls()
    assert s3.head_bucket(Bucket="here")["BucketRegion"] == "us-east-1"
    assert s3.head_bucket(Bucket="there")["BucketRegion"] == "eu-west-1"  # botocore follows the 301
    assert [(call["region"], call["outcome"]) for call in aws.calls()][1:] == [("us-east-1", 301), ("eu-west-1", 200)]
    assert refused(s3.head_bucket, Bucket="theirs") == ("403", 403)
    assert refused(s3.list_objects_v2, Bucket="theirs") == ("AccessDenied", 403)
    assert refused(s3.head_bucket, Bucket="missing") == ("404", 404)


def test_virtual_objects_are_listed_and_headed(aws: StandIn) -> None:
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


def test_moto_receives_bytes_unchanged(aws: StandIn) -> None:
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
