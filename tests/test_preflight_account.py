"""What preflight asks of an account besides S3: broken environments, each found, named and given its remedy; none in a good one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import aws_stand_in
import launcher
from launcher.aws.account import Account
from launcher.errors import dotted
from launcher.preflight import efs, fsx, image, keys, name, network, permissions, quotas, role, s3_route
from launcher.preflight.report import Report
from launcher.preflight.runner import preflight

MODULES = (name, role, permissions, keys, image, quotas, network, s3_route, efs, fsx)
CHECKS = tuple(check for module in MODULES for check in module.CHECKS)
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}
FSX = "fs-0fedcba9876543210"
SPEC = """\
training_job_name: digits-1
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1
role_arn: arn:aws:iam::123456789012:role/training
region: us-east-1
resource_config: {{instance_type: ml.m5.xlarge, instance_count: 2, volume_size_in_gb: 50, volume_kms_key_id: {key}}}
stopping_condition: {{max_runtime_in_seconds: 3600}}
output_data_config: {{s3_output_path: s3://out/, kms_key_id: alias/mine}}
checkpoint_config: {{s3_uri: s3://out/checkpoints}}
vpc_config: {{security_group_ids: [{job_group}], subnets: [{subnet_a}, {subnet_b}]}}
channels: {{train: s3://data/train/, listed: {{s3_uri: s3://data/list, s3_data_type: ManifestFile}}}}
"""
CHANNELS = """\
channels:
  train: s3://data/train/
  shared: {{source: EFS, file_system_id: {efs}, directory_path: /lists}}
  fast: {{source: FSxLustre, file_system_id: {fsx}, directory_path: /fsx1abcd/images}}
"""


def allow(actions: list[str], *resources: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": list(resources) or ["*"], **more}


POLICY = [
    allow(["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::data/*", "arn:aws:s3:::out/*"),
    allow(["s3:ListBucket"], "arn:aws:s3:::data", Condition={"StringLike": {"s3:prefix": ["train/*"]}}),
    allow(["s3:ListBucket"], "arn:aws:s3:::out"),
    allow(["ecr:*", "logs:*", "kms:*"]),
    allow(["ec2:*NetworkInterface*", "ec2:Describe*"]),
]


class World:
    """An account in which the job of SPEC and CHANNELS runs."""

    def __init__(self, aws: aws_stand_in.StandIn) -> None:
        self.aws = aws
        self.ec2, self.iam, self.ids = aws.client("ec2"), aws.client("iam"), {"fsx": FSX}
        self.iam.create_role(RoleName="training", AssumeRolePolicyDocument=json.dumps(TRUST))
        self.allow(POLICY)
        s3 = aws.client("s3")
        for bucket in ("data", "out"):
            s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket="data", Key="train/1.tar", Body=b"data")
        ecr = aws.client("ecr")
        ecr.create_repository(repositoryName="training")
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json"}
        ecr.put_image(repositoryName="training", imageManifest=json.dumps(manifest), imageTag="1")
        self.kms = aws.client("kms")
        self.ids["key"] = self.kms.create_key()["KeyMetadata"]["KeyId"]
        self.kms.create_alias(AliasName="alias/mine", TargetKeyId=self.ids["key"])
        self._network()
        self._file_systems()

    def _network(self) -> None:
        vpc = self.ids["vpc"] = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        for letter, third in (("a", 1), ("b", 2)):
            self.ids[f"subnet_{letter}"] = self.subnet(f"10.0.{third}.0/24", letter, vpc)
        self.ids["job_group"] = self.group("job", vpc)
        self.ids["store_group"] = self.group("store", vpc)
        job, store = self.ids["job_group"], self.ids["store_group"]
        self.let_in(job, from_group=job)
        self.let_in(store, 2049, from_group=job)
        self.let_in(store, 988, from_cidr="10.0.0.0/16")
        self.let_in(store, 1018, 1023, from_group=job)
        tables = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        self.ids["table"] = tables[0]["RouteTableId"]
        made = self.ec2.create_vpc_endpoint(
            VpcId=vpc, ServiceName="com.amazonaws.us-east-1.s3", RouteTableIds=[self.ids["table"]]
        )
        self.ids["endpoint"] = made["VpcEndpoint"]["VpcEndpointId"]

    def _file_systems(self) -> None:
        self.efs = self.aws.client("efs")
        self.ids["efs"] = self.efs.create_file_system(CreationToken="a")["FileSystemId"]
        for letter in "ab":
            self.target(letter)
        interface = self.ec2.create_network_interface(
            SubnetId=self.ids["subnet_a"], Groups=[self.ids["store_group"]]
        )["NetworkInterface"]["NetworkInterfaceId"]
        self.ids["interface"] = interface
        self.fsx()

    def fsx(self, **members: Any) -> None:
        there = {"VpcId": self.ids["vpc"], "SubnetIds": [self.ids["subnet_a"], self.ids["subnet_b"]]}
        self.aws.file_system(FSX, **(there | {"NetworkInterfaceIds": [self.ids["interface"]]} | members))

    def subnet(self, cidr: str, letter: str, vpc: str) -> str:
        made = self.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=f"us-east-1{letter}")
        return str(made["Subnet"]["SubnetId"])

    def group(self, name: str, vpc: str) -> str:
        return str(self.ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"])

    def let_in(self, group: str, port: int = -1, last: int = 0, *, from_group: str = "", from_cidr: str = "") -> None:
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[_rule(port, last, from_group, from_cidr)])

    def shut(self, group: str, *, outbound: bool = False) -> None:
        """Take away all rules of one direction."""
        known = self.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]
        if outbound:
            self.ec2.revoke_security_group_egress(GroupId=group, IpPermissions=known["IpPermissionsEgress"])
        else:
            self.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=known["IpPermissions"])

    def target(self, letter: str) -> None:
        made = self.efs.create_mount_target(
            FileSystemId=self.ids["efs"],
            SubnetId=self.ids[f"subnet_{letter}"],
            SecurityGroups=[self.ids["store_group"]],
        )
        self.ids[f"target_{letter}"] = made["MountTargetId"]

    def allow(self, statements: list[dict[str, Any]]) -> None:
        document = {"Version": "2012-10-17", "Statement": statements}
        self.iam.put_role_policy(RoleName="training", PolicyName="job", PolicyDocument=json.dumps(document))

    def route(self, cidr: str, **target: str) -> None:
        self.ec2.create_route(RouteTableId=self.ids["table"], DestinationCidrBlock=cidr, **target)

    def without_endpoint(self) -> None:
        self.ec2.delete_vpc_endpoints(VpcEndpointIds=[self.ids["endpoint"]])

    def checked(self, overlay: str = "", **options: Any) -> Report:
        """Preflight of SPEC with the keys of `overlay` in place of its own."""
        replaced = {line.partition(":")[0] for line in overlay.splitlines() if not line.startswith(" ")}
        kept = [line for line in SPEC.splitlines() if line.partition(":")[0] not in replaced]
        text = "\n".join([*kept, overlay, ""]).format(**self.ids)
        plan = launcher.plan(launcher.parse_spec(text, "job.yaml"))
        return preflight(plan, Account(region="us-east-1"), **{"checks": CHECKS, "deadline": 30.0, **options})


def _rule(port: int, last: int, group: str, cidr: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"IpProtocol": "-1"} if port < 0 else {"IpProtocol": "tcp", "FromPort": port}
    if port >= 0:
        rule["ToPort"] = last or port
    if group:
        rule["UserIdGroupPairs"] = [{"GroupId": group}]
    if cidr:
        rule["IpRanges"] = [{"CidrIp": cidr}]
    return rule


@pytest.fixture
def world(aws: aws_stand_in.StandIn) -> World:
    return World(aws)


def found(report: Report) -> list[tuple[str, str]]:
    return [(problem.code, dotted(problem.path)) for problem in report.problems]


def test_a_good_account_has_no_problem_and_nothing_is_written(world: World) -> None:
    world.aws.clear_calls()
    report = world.checked(CHANNELS)
    assert [str(problem) for problem in report.problems] == []
    assert report.not_asked == []
    assert {outcome.status for outcome in report.outcomes} == {"passed"}
    assert world.aws.calls("iam:SimulatePrincipalPolicy")
    assert world.aws.writing_calls() == []
    assert ((), "account 123456789012, region us-east-1") in report.notes
