"""A good account for the tests of the account checks, to which they add what is broken."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import account_data
import aws_stand_in
import launcher
from launcher.account import CHECKS as ALL_CHECKS
from launcher.account.results import Report, check_account
from launcher.aws.session import Account
from patience import PATIENCE

CHECKS = tuple(check for check in ALL_CHECKS if check not in account_data.CHECKS)
TRUST: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}
ROLE = "arn:aws:iam::123456789012:role/%s"
SPEC = """\
training_job_name: digits-1
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.5
role_arn: arn:aws:iam::123456789012:role/{role}
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
    allow(["ssmmessages:*"]),
]


class World:
    """An account in which the job of SPEC and CHANNELS runs. Tests add to it and do not change what exists."""

    def __init__(self, aws: aws_stand_in.StandIn) -> None:
        self.aws = aws
        self.account = Account(region="us-east-1")
        self.ec2, self.iam, self.kms, self.efs = (aws.client(service) for service in ("ec2", "iam", "kms", "efs"))
        self.ids: dict[str, str] = {"fsx": "fs-0fedcba9876543210", "role": "training"}
        self._number = self._subnets = 0
        self.role(name="training")
        self.role([allow(["sagemaker:*", "iam:PassRole", "batch:*"])], name="developer")  # the caller
        s3 = aws.client("s3")
        for bucket in ("data", "out", "lent"):
            s3.create_bucket(Bucket=bucket)
            s3.put_object(Bucket=bucket, Key="train/1.tar", Body=b"data")
        self.lend("lent", "training")
        ecr = aws.client("ecr")
        ecr.create_repository(repositoryName="training")
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json"}
        ecr.put_image(repositoryName="training", imageManifest=json.dumps(manifest), imageTag="1.5")
        self.ids["key"] = self.key()
        self.kms.create_alias(AliasName="alias/mine", TargetKeyId=self.ids["key"])
        self._network()
        self._file_systems()

    def _network(self) -> None:
        vpc, self.ids["table"] = self.vpc()
        self.ids["vpc"] = vpc
        for letter in "abe":
            self.ids[f"subnet_{letter}"] = self.subnet(letter, vpc)
        self.ids["job_group"], self.ids["store_group"] = (self.group(vpc) for _ in range(2))
        job, store = self.ids["job_group"], self.ids["store_group"]
        self.let_in(job, from_group=job)
        self.let_in(store, 2049, from_group=job)
        self.let_in(store, 988, from_cidr="10.0.0.0/16")
        self.endpoint(vpc, self.ids["table"])

    def _file_systems(self) -> None:
        self.ids["efs"] = self.file_system(self.ids["subnet_a"], self.ids["subnet_b"])
        self.ids["interface"] = self.interface(self.ids["store_group"])
        self.fsx(self.ids["fsx"])

    def new(self, kind: str = "new") -> str:
        """Return an unused name."""
        self._number += 1
        return f"{kind}-{self._number}"

    def role(self, statements: list[dict[str, Any]] | None = None, trust: Any = None, **more: Any) -> str:
        name = str(more.pop("name", "")) or self.new("role")
        document = TRUST if trust is None else {"Version": "2012-10-17", "Statement": trust}
        self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document), **more)
        policy = json.dumps({"Version": "2012-10-17", "Statement": POLICY if statements is None else statements})
        self.iam.put_role_policy(RoleName=name, PolicyName="job", PolicyDocument=policy)
        return name

    def lend(self, bucket: str, role: str, *statements: dict[str, Any]) -> None:
        """Let the bucket's own policy admit the role, with further statements."""
        statement = {"Effect": "Allow", "Principal": {"AWS": ROLE % role}, "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement, *statements]})
        self.aws.client("s3").put_bucket_policy(Bucket=bucket, Policy=policy)

    def key(self, **more: Any) -> str:
        return str(self.kms.create_key(**more)["KeyMetadata"]["KeyId"])

    def vpc(self) -> tuple[str, str]:
        """Create a VPC; return it and its main route table."""
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        tables = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        return str(vpc), str(tables[0]["RouteTableId"])

    def endpoint(self, vpc: str, table: str, service: str = "s3") -> None:
        self.ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=f"com.amazonaws.us-east-1.{service}", RouteTableIds=[table])

    def subnet(self, letter: str, vpc: str, size: int = 24) -> str:
        self._subnets += 1
        cidr, zone = f"10.0.{self._subnets}.0/{size}", f"us-east-1{letter}"
        return str(self.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"])

    def group(self, vpc: str = "", *, outbound: bool = True) -> str:
        vpc = vpc or self.ids["vpc"]
        made = str(self.ec2.create_security_group(GroupName=self.new("group"), Description="-", VpcId=vpc)["GroupId"])
        if not outbound:
            anywhere = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
            self.ec2.revoke_security_group_egress(GroupId=made, IpPermissions=[anywhere])
        return made

    def let_in(self, group: str, port: int = -1, last: int = 0, *, from_group: str = "", from_cidr: str = "") -> None:
        rule = a_rule(port, last, from_group, from_cidr)
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])

    def file_system(self, *subnets: str, group: str = "") -> str:
        """Create an EFS file system with mount targets."""
        made = str(self.efs.create_file_system(CreationToken=self.new())["FileSystemId"])
        for subnet in subnets:
            groups = [group or self.ids["store_group"]]
            self.efs.create_mount_target(FileSystemId=made, SubnetId=subnet, SecurityGroups=groups)
        return made

    def interface(self, group: str) -> str:
        made = self.ec2.create_network_interface(SubnetId=self.ids["subnet_a"], Groups=[group])
        return str(made["NetworkInterface"]["NetworkInterfaceId"])

    def fsx(self, name: str = "", **members: Any) -> str:
        self._number += 1
        name = name or f"fs-{self._number:017x}"
        there = {"VpcId": self.ids["vpc"], "SubnetIds": [self.ids["subnet_a"], self.ids["subnet_b"]]}
        self.aws.file_system(name, **(there | {"NetworkInterfaceIds": [self.ids["interface"]]} | members))
        return name

    def checked(self, overlay: str = "", *, checks: Any = CHECKS, account: Any = None, **ids: str) -> Report:
        """Check SPEC with the keys of `overlay` in place of its own."""
        plan = launcher.plan(launcher.parse_spec(self.spec(overlay, **ids), "job.yaml"))
        return check_account(plan, account or self.account, checks=checks, deadline=PATIENCE)

    def spec(self, overlay: str = "", **ids: str) -> str:
        replaced = {line.partition(":")[0] for line in overlay.splitlines() if not line.startswith(" ")}
        kept = [line for line in SPEC.splitlines() if line.partition(":")[0] not in replaced]
        return "\n".join([*kept, overlay, ""]).format(**(self.ids | ids))


def a_rule(port: int, last: int, group: str, cidr: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"IpProtocol": "-1"} if port < 0 else {"IpProtocol": "tcp", "FromPort": port}
    if port >= 0:
        rule["ToPort"] = last or port
    if group:
        rule["UserIdGroupPairs"] = [{"GroupId": group}]
    if cidr:
        rule["IpRanges"] = [{"CidrIp": cidr}]
    return rule


@contextmanager
def a_world(stand_in: aws_stand_in.StandIn) -> Iterator[World]:
    """Set up one account for all tests of a module, since it takes a second; this process uses it as AWS."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
            patch.delenv(variable)
        for variable, value in stand_in.environ.items():
            patch.setenv(variable, value)
        stand_in.reset()
        yield World(stand_in)


def nothing(world: World) -> dict[str, str]:
    return {}


SHARED = "channels: {{shared: {{source: EFS, file_system_id: %s, directory_path: /lists}}}}"
FAST = "channels: {{fast: {{source: FSxLustre, file_system_id: %s, directory_path: %s}}}}"
MACHINES = "resource_config: {{instance_type: %s, instance_count: %d, volume_size_in_gb: 50%s}}"
NETWORK = "vpc_config: {{security_group_ids: [%s], subnets: [%s]}}"
IN_GROUP = NETWORK % ("{job_group}", "{subnet_a}, {subnet_b}")
