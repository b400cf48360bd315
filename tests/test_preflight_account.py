"""What preflight asks of an account besides S3: broken environments, each found, named and given its remedy; none in a good one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
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
]


class World:
    """An account in which the job of SPEC and CHANNELS runs. Tests add to it, and change nothing of what is there."""

    def __init__(self, aws: aws_stand_in.StandIn) -> None:
        self.aws = aws
        self.account = Account(region="us-east-1")
        self.ec2, self.iam, self.kms, self.efs = (aws.client(service) for service in ("ec2", "iam", "kms", "efs"))
        self.ids: dict[str, str] = {"fsx": "fs-0fedcba9876543210", "role": "training"}
        self._number = 0
        self.role(name="training")
        s3 = aws.client("s3")
        for bucket in ("data", "out", "lent"):
            s3.create_bucket(Bucket=bucket)
            s3.put_object(Bucket=bucket, Key="train/1.tar", Body=b"data")
        policy = {"Effect": "Allow", "Principal": {"AWS": ROLE % "training"}, "Action": "s3:*", "Resource": "*"}
        s3.put_bucket_policy(Bucket="lent", Policy=json.dumps({"Version": "2012-10-17", "Statement": [policy]}))
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
        self.let_in(store, 1018, 1023, from_group=job)
        self.endpoint(vpc, self.ids["table"])

    def _file_systems(self) -> None:
        self.ids["efs"] = self.file_system(self.ids["subnet_a"], self.ids["subnet_b"])
        self.ids["interface"] = self.interface(self.ids["store_group"])
        self.fsx(self.ids["fsx"])

    def new(self, kind: str = "new") -> str:
        """A name that nothing has yet."""
        self._number += 1
        return f"{kind}-{self._number}"

    def role(self, statements: list[dict[str, Any]] | None = None, trust: Any = None, **more: Any) -> str:
        name = str(more.pop("name", "")) or self.new("role")
        document = TRUST if trust is None else {"Version": "2012-10-17", "Statement": trust}
        self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document), **more)
        policy = json.dumps({"Version": "2012-10-17", "Statement": POLICY if statements is None else statements})
        self.iam.put_role_policy(RoleName=name, PolicyName="job", PolicyDocument=policy)
        return name

    def key(self, **more: Any) -> str:
        return str(self.kms.create_key(**more)["KeyMetadata"]["KeyId"])

    def vpc(self) -> tuple[str, str]:
        """A VPC, and its main route table."""
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        tables = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
        return str(vpc), str(tables[0]["RouteTableId"])

    def endpoint(self, vpc: str, table: str, service: str = "s3") -> None:
        self.ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=f"com.amazonaws.us-east-1.{service}", RouteTableIds=[table])

    def subnet(self, letter: str, vpc: str, size: int = 24) -> str:
        self._number += 1
        cidr, zone = f"10.0.{self._number}.0/{size}", f"us-east-1{letter}"
        return str(self.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"])

    def group(self, vpc: str = "", *, outbound: bool = True) -> str:
        vpc = vpc or self.ids["vpc"]
        made = str(self.ec2.create_security_group(GroupName=self.new("group"), Description="-", VpcId=vpc)["GroupId"])
        if not outbound:
            anywhere = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
            self.ec2.revoke_security_group_egress(GroupId=made, IpPermissions=[anywhere])
        return made

    def let_in(self, group: str, port: int = -1, last: int = 0, *, from_group: str = "", from_cidr: str = "") -> None:
        rule = _rule(port, last, from_group, from_cidr)
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])

    def file_system(self, *subnets: str, group: str = "") -> str:
        """An EFS file system with mount targets."""
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

    def checked(self, overlay: str = "", *, checks: Any = CHECKS, **ids: str) -> Report:
        """Preflight of SPEC with the keys of `overlay` in place of its own."""
        replaced = {line.partition(":")[0] for line in overlay.splitlines() if not line.startswith(" ")}
        kept = [line for line in SPEC.splitlines() if line.partition(":")[0] not in replaced]
        text = "\n".join([*kept, overlay, ""]).format(**(self.ids | ids))
        plan = launcher.plan(launcher.parse_spec(text, "job.yaml"))
        return preflight(plan, self.account, checks=checks, deadline=30.0)


def _rule(port: int, last: int, group: str, cidr: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"IpProtocol": "-1"} if port < 0 else {"IpProtocol": "tcp", "FromPort": port}
    if port >= 0:
        rule["ToPort"] = last or port
    if group:
        rule["UserIdGroupPairs"] = [{"GroupId": group}]
    if cidr:
        rule["IpRanges"] = [{"CidrIp": cidr}]
    return rule


@pytest.fixture(scope="module")
def made(running_aws: aws_stand_in.StandIn) -> Iterator[World]:
    """One account for all tests of this module, since it takes a second to set up."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
            patch.delenv(variable)
        for variable, value in running_aws.environ.items():
            patch.setenv(variable, value)
        running_aws.reset()
        yield World(running_aws)


@pytest.fixture
def world(made: World) -> Iterator[World]:
    made.aws.clear_calls()
    yield made
    made.aws.clear_faults()


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


class Broken(NamedTuple):
    """An environment, the spec's keys that lead there, what is wrong with it, and what the message must say of that."""

    make: Callable[[World], dict[str, str]]  # gives ids to fill in, in the overlay and in what is said
    overlay: str
    found: list[tuple[str, str]]
    says: tuple[str, ...]


def nothing(world: World) -> dict[str, str]:
    return {}


def _without(*actions: str) -> list[dict[str, Any]]:
    return [*POLICY, {"Effect": "Deny", "Action": list(actions), "Resource": "*"}]


def a_role(*statements: dict[str, Any], **more: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"role": world.role(list(statements) or None, **more)}


def a_key(**more: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"key": world.key(**more)}


def a_disabled_key(world: World) -> dict[str, str]:
    key = world.key()
    world.kms.disable_key(KeyId=key)
    return {"key": key}


def a_key_that_goes(world: World) -> dict[str, str]:
    key = world.key()
    world.kms.schedule_key_deletion(KeyId=key)
    return {"key": key}


def a_quota(name: str, value: float) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        world.aws.quota(name, value)
        return {}

    return make


def running_jobs(world: World) -> dict[str, str]:
    """One job that holds 3 of 4 instances."""
    world.aws.quota("ml.g5.2xlarge for training job usage", 4)
    return {}


def a_vpc(
    *, route: Callable[[World, str, str], None] | None = None, size: int = 24
) -> Callable[[World], dict[str, str]]:
    """A VPC of its own, in which all else is right."""

    def make(world: World) -> dict[str, str]:
        vpc, table = world.vpc()
        if route is None:
            world.endpoint(vpc, table)
        else:
            route(world, vpc, table)
        group = world.group(vpc)
        world.let_in(group, from_group=group)
        subnet_a, subnet_b = (world.subnet(letter, vpc, size) for letter in "ab")
        return {"vpc": vpc, "table": table, "job_group": group, "subnet_a": subnet_a, "subnet_b": subnet_b}

    return make


def no_route(world: World, vpc: str, table: str) -> None:
    world.endpoint(vpc, table, "dynamodb")


def an_internet_gateway(world: World, vpc: str, table: str) -> None:
    gateway = world.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    world.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    world.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)


def another_table_for_b(world: World) -> dict[str, str]:
    ids = a_vpc()(world)
    table = world.ec2.create_route_table(VpcId=ids["vpc"])["RouteTable"]["RouteTableId"]
    world.ec2.associate_route_table(RouteTableId=table, SubnetId=ids["subnet_b"])
    return ids | {"table": table}


def another_vpc(world: World) -> dict[str, str]:
    vpc, _ = world.vpc()
    return {"other_vpc": vpc, "subnet_b": world.subnet("b", vpc)}


def a_group_of_another_vpc(world: World) -> dict[str, str]:
    vpc, _ = world.vpc()
    world.aws.refuse("ec2:DescribeSecurityGroupVpcAssociations", "UnauthorizedOperation", "no")
    return {"other_vpc": vpc, "other_group": world.group(vpc)}


def a_group(*, outbound: bool = True, ports: tuple[int, ...] = (-1,)) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        group = world.group(outbound=outbound)
        for port in ports:
            world.let_in(group, port, from_group=group)
        return {"job_group": group}

    return make


def a_group_out_to_the_vpc_only(world: World) -> dict[str, str]:
    ids = a_group(outbound=False)(world)
    rules = [_rule(-1, 0, "", "10.0.0.0/16")]
    world.ec2.authorize_security_group_egress(GroupId=ids["job_group"], IpPermissions=rules)
    return ids


def an_efs(*letters: str) -> Callable[[World], dict[str, str]]:
    return lambda world: {"efs": world.file_system(*(world.ids[f"subnet_{letter}"] for letter in letters))}


def an_efs_of_another_vpc(world: World) -> dict[str, str]:
    vpc, _ = world.vpc()
    return {"other_vpc": vpc, "efs": world.file_system(world.subnet("a", vpc), group=world.group(vpc))}


def a_closed_efs(world: World) -> dict[str, str]:
    group = world.group()
    world.let_in(group, 2048, from_group=world.ids["job_group"])
    world.let_in(group, 2049, from_cidr="10.1.0.0/16")
    return {"closed": group, "efs": world.file_system(world.ids["subnet_a"], world.ids["subnet_b"], group=group)}


def an_fsx(**members: Any) -> Callable[[World], dict[str, str]]:
    return lambda world: {"fsx": world.fsx(**members)}


def an_fsx_in_one_zone(world: World) -> dict[str, str]:
    return {"fsx": world.fsx(SubnetIds=[world.ids["subnet_a"]])}


def an_fsx_open_on(*ports: int) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        group = world.group()
        for port in ports:
            world.let_in(group, port, from_group=world.ids["job_group"])
        return {"closed": group, "fsx": world.fsx(NetworkInterfaceIds=[world.interface(group)])}

    return make


def a_job(world: World) -> dict[str, str]:
    """A job that is there already."""
    sagemaker, request = world.aws.client("sagemaker"), dict(launcher.plan(launcher.parse_spec(OLDER)).request)
    sagemaker.create_training_job(**request)
    return {}


OLDER = """\
training_job_name: digits-0
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.5
role_arn: arn:aws:iam::123456789012:role/training
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://out/}
"""
MACHINES = "resource_config: {{instance_type: %s, instance_count: %d, volume_size_in_gb: 50%s}}"
FAST = "channels: {{fast: {{source: FSxLustre, file_system_id: %s, directory_path: %s}}}}"
SHARED = "channels: {{shared: {{source: EFS, file_system_id: %s, directory_path: /lists}}}}"
RULE = "debug_rule_configurations: [{{rule_configuration_name: a, rule_evaluator_image: a:1, instance_type: ml.c5.xlarge}}]"
NETWORK = "vpc_config: {{security_group_ids: [%s], subnets: [%s]}}"
IN_GROUP = NETWORK % ("{job_group}", "{subnet_a}, {subnet_b}")
GONE = "subnet-0123456789abcdef0"
ROLE_AT, SUBNETS_AT = "role_arn", "vpc_config.subnets"
GROUPS_AT, TYPE_AT = "vpc_config.security_group_ids", "resource_config.instance_type"

BROKEN = {
    "a name that is taken": Broken(
        a_job,
        "training_job_name: digits-0",
        [("name-taken", "training_job_name")],
        ("'digits-0'", "--name", "base_name"),
    ),
    "a role of another account": Broken(
        nothing,
        "role_arn: arn:aws:iam::210987654321:role/training",
        [("role-other-account", ROLE_AT)],
        ("210987654321", "name one of 123456789012"),
    ),
    "a misspelt role": Broken(
        nothing, f"role_arn: {ROLE % 'trainin'}", [("role-missing", ROLE_AT)], ("'trainin'", ROLE % "training")
    ),
    "a role named without its path": Broken(
        a_role(Path="/service-role/"), "", [("role-missing", ROLE_AT)], (ROLE % "service-role/{role}",)
    ),
    "a role for EC2": Broken(
        a_role(trust=[TRUST["Statement"][0] | {"Principal": {"Service": "ec2.amazonaws.com"}}]),
        "",
        [("role-trust", ROLE_AT)],
        ("ec2.amazonaws.com", "sagemaker.amazonaws.com"),
    ),
    "a role that may not read the data": Broken(
        a_role(*POLICY[1:], allow(["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::out/*", "arn:aws:s3:::data/list")),
        "",
        [("role-denied", "channels.train.s3_uri")],
        ("s3:GetObject", "s3://data/train/"),
    ),
    "a role that may list another folder": Broken(
        a_role(
            POLICY[0],
            *POLICY[2:],
            allow(["s3:ListBucket"], "arn:aws:s3:::data", Condition={"StringLike": {"s3:prefix": "b/*"}}),
        ),
        "",
        [("role-denied", "channels.train.s3_uri")],
        ("s3:ListBucket", "bucket data"),
    ),
    "a role that may only read what is tagged": Broken(
        a_role(
            *POLICY[1:],
            allow(["s3:PutObject", "s3:GetObject"], "arn:aws:s3:::out/*", "arn:aws:s3:::data/list"),
            allow(["s3:GetObject"], Condition={"StringEquals": {"s3:ExistingObjectTag/SageMaker": "true"}}),
        ),
        "",
        [("role-denied", "channels.train.s3_uri")],
        ("s3:GetObject",),
    ),
    "a role that may not write the output": Broken(
        a_role(*_without("s3:PutObject")),
        "",
        [("role-denied", "output_data_config.s3_output_path"), ("role-denied", "checkpoint_config.s3_uri")],
        ("s3:PutObject", "s3://out/"),
    ),
    "a role that may not use the key": Broken(
        a_role(*_without("kms:GenerateDataKey")),
        "",
        [("role-denied", "output_data_config.kms_key_id")],
        ("kms:GenerateDataKey", "arn:aws:kms:"),
    ),
    "a role that may not pull the image": Broken(
        a_role(*_without("ecr:BatchGetImage")), "", [("role-denied", "image")], ("ecr:BatchGetImage", "training")
    ),
    "a role that may make no network interfaces": Broken(
        a_role(*_without("ec2:CreateNetworkInterface")),
        "",
        [("role-denied", "vpc_config")],
        ("ec2:CreateNetworkInterface",),
    ),
    "a role that may not write its log": Broken(
        a_role(*_without("logs:*")), "", [("role-lacks", ROLE_AT)], ("logs:CreateLogStream, logs:PutLogEvents",)
    ),
    "a key that is disabled": Broken(
        a_disabled_key, "", [("key-disabled", "resource_config.volume_kms_key_id")], ("enable-key --key-id {key}",)
    ),
    "a key that is going": Broken(
        a_key_that_goes, "", [("key-disabled", "resource_config.volume_kms_key_id")], ("cancel-key-deletion",)
    ),
    "no such key": Broken(
        nothing,
        "output_data_config: {{s3_output_path: s3://out/, kms_key_id: alias/main}}",
        [("key-missing", "output_data_config.kms_key_id")],
        ("'alias/main'", "list-aliases"),
    ),
    "a key of another region": Broken(
        nothing,
        "output_data_config: {{s3_output_path: s3://out/, kms_key_id: 'arn:aws:kms:eu-west-1:123456789012:alias/a'}}",
        [("key-region", "output_data_config.kms_key_id")],
        ("eu-west-1", "name a key of us-east-1"),
    ),
    "a key that signs": Broken(
        a_key(KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256"),
        "",
        [("key-kind", "resource_config.volume_kms_key_id")],
        ("SIGN_VERIFY", "SYMMETRIC_DEFAULT"),
    ),
    "a tag that is not there": Broken(
        nothing,
        "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.6",
        [("image-missing", "image")],
        ("'1.6'", "1.5"),
    ),
    "a repository that is not there": Broken(
        nothing,
        "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/trainig:1.5",
        [("image-missing", "image")],
        ("'trainig'", "did you mean training?"),
    ),
    "a digest that is not there": Broken(
        nothing,
        f"image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training@sha256:{'0' * 64}",
        [("image-missing", "image")],
        ("sha256:0000",),
    ),
    "a quota of 0": Broken(
        a_quota("ml.g5.xlarge for training job usage", 0),
        MACHINES % ("ml.g5.xlarge", 1, ""),
        [("quota-exceeded", TYPE_AT)],
        ("'ml.g5.xlarge for training job usage' is 0", "needs 1"),
    ),
    "a quota of less": Broken(
        nothing, MACHINES % ("ml.m5.large", 21, ""), [("quota-exceeded", TYPE_AT)], ("is 20", "needs 21")
    ),
    "a quota for spot": Broken(
        a_quota("ml.g5.4xlarge for spot training job usage", 1),
        MACHINES % ("ml.g5.4xlarge", 2, "") + "\nenable_managed_spot_training: true\n"
        "stopping_condition: {{max_runtime_in_seconds: 60, max_wait_time_in_seconds: 60}}",
        [("quota-exceeded", TYPE_AT)],
        ("'ml.g5.4xlarge for spot training job usage' is 1",),
    ),
    "a quota for warm pools": Broken(
        nothing,
        MACHINES % ("ml.m5.large", 1, ", keep_alive_period_in_seconds: 600"),
        [("quota-exceeded", TYPE_AT)],
        ("'ml.m5.large for training warm pool usage' is 0",),
    ),
    "a quota for rules": Broken(
        a_quota("ml.c5.xlarge for processing job usage", 0),
        RULE,
        [("quota-exceeded", "debug_rule_configurations[0].instance_type")],
        ("'ml.c5.xlarge for processing job usage' is 0",),
    ),
    "a subnet that is gone": Broken(
        nothing,
        NETWORK % ("{job_group}", "{subnet_a}, " + GONE),
        [("subnet-missing", "vpc_config.subnets[1]")],
        (GONE, "us-east-1"),
    ),
    "subnets of two VPCs": Broken(
        another_vpc, "", [("subnets-of-several-vpcs", SUBNETS_AT)], ("{subnet_b} in {other_vpc}",)
    ),
    "subnets that are too small": Broken(
        a_vpc(size=28),
        MACHINES % ("ml.m5.large", 12, ""),
        [("subnet-full", SUBNETS_AT)],
        ("{subnet_a} has 11", "needs 24 (12 x 2)"),
    ),
    "a subnet that is too small for EFA": Broken(
        a_vpc(size=28),
        MACHINES % ("ml.p4d.24xlarge", 3, ""),
        [("subnet-tight", SUBNETS_AT)],
        ("15 free addresses (3 x 5)",),
    ),
    "a zone without the machines": Broken(
        nothing,
        MACHINES % ("ml.p4d.24xlarge", 1, "") + "\n" + NETWORK % ("{job_group}", "{subnet_e}"),
        [("zone-lacks-type", SUBNETS_AT)],
        ("ml.p4d.24xlarge", "name a subnet in use1-az"),
    ),
    "a security group that is gone": Broken(
        nothing,
        NETWORK % ("{job_group}, sg-0123456789abcdef0", "{subnet_a}"),
        [("security-group-missing", "vpc_config.security_group_ids[1]")],
        ("sg-0123456789abcdef0", "{vpc}"),
    ),
    "a security group of another VPC": Broken(
        a_group_of_another_vpc,
        NETWORK % ("{job_group}, {other_group}", "{subnet_a}"),
        [("security-group-vpc", "vpc_config.security_group_ids[1]")],
        ("{other_group} is of {other_vpc}", "{vpc}"),
    ),
    "hosts that cannot talk": Broken(
        a_group(ports=(22,)), IN_GROUP, [("hosts-cannot-talk", GROUPS_AT)], ("inbound rule to {job_group}",)
    ),
    "a group that lets out to the VPC only": Broken(
        a_group_out_to_the_vpc_only, IN_GROUP, [("security-group-closed", GROUPS_AT)], ("TCP 443", "{job_group}")
    ),
    "no way to S3": Broken(
        a_vpc(route=no_route),
        "",
        [("s3-unreachable", SUBNETS_AT)],
        ("{subnet_a} ({table})", "--vpc-id {vpc} --service-name com.amazonaws.us-east-1.s3 --route-table-ids {table}"),
    ),
    "no way to S3 from one subnet": Broken(
        another_table_for_b, "", [("s3-unreachable-from-some", SUBNETS_AT)], ("{subnet_b} ({table})",)
    ),
    "an internet gateway only": Broken(
        a_vpc(route=an_internet_gateway),
        "",
        [("s3-by-internet-gateway", SUBNETS_AT)],
        ("no public addresses", "{table}"),
    ),
    "an EFS that is gone": Broken(
        nothing,
        SHARED % "fs-0123456789abcdef0",
        [("efs-missing", "channels.shared.file_system_id")],
        ("fs-0123456789abcdef0", "describe-file-systems"),
    ),
    "FSx taken for EFS": Broken(
        nothing, SHARED % "{fsx}", [("efs-missing", "channels.shared.file_system_id")], ("source: FSxLustre",)
    ),
    "an EFS without mount targets": Broken(
        an_efs(),
        SHARED % "{efs}",
        [("efs-no-mount-target", "channels.shared.file_system_id")],
        ("none at all", "--file-system-id {efs} --subnet-id {subnet_a}"),
    ),
    "an EFS in one zone of two": Broken(
        an_efs("a"),
        SHARED % "{efs}",
        [("efs-no-mount-target-in-some", "channels.shared.file_system_id")],
        ("{subnet_b}", "it has some in use1-az"),
    ),
    "an EFS of another VPC": Broken(
        an_efs_of_another_vpc,
        SHARED % "{efs}",
        [("efs-other-vpc", "channels.shared.file_system_id")],
        ("{other_vpc}", "the job is in {vpc}"),
    ),
    "an EFS that lets nobody in": Broken(
        a_closed_efs,
        SHARED % "{efs}",
        [("security-group-closed", "channels.shared.file_system_id")] * 2,
        ("inbound rule to {closed}: TCP 2049 from {job_group}",),
    ),
    "an FSx that is gone": Broken(
        nothing,
        FAST % ("fs-0123456789abcdef0", "/fsx1abcd/images"),
        [("fsx-missing", "channels.fast.file_system_id")],
        ("fs-0123456789abcdef0",),
    ),
    "an FSx that is being made": Broken(
        an_fsx(Lifecycle="CREATING"),
        FAST % ("{fsx}", "/fsx1abcd/images"),
        [("fsx-not-ready", "channels.fast.file_system_id")],
        ("CREATING", "wait"),
    ),
    "an FSx for Windows": Broken(
        an_fsx(FileSystemType="WINDOWS"),
        FAST % ("{fsx}", "/fsx1abcd/images"),
        [("fsx-not-lustre", "channels.fast.file_system_id")],
        ("WINDOWS",),
    ),
    "an FSx of another mount name": Broken(
        an_fsx(),
        FAST % ("{fsx}", "/fsx/images"),
        [("fsx-mount-name-wrong", "channels.fast.directory_path")],
        ("write '/fsx1abcd/images'",),
    ),
    "an FSx without its mount name": Broken(
        an_fsx(),
        FAST % ("{fsx}", "/some-data/images"),
        [("fsx-mount-name-wrong", "channels.fast.directory_path")],
        ("write '/fsx1abcd/some-data/images'",),
    ),
    "an FSx of another VPC": Broken(
        an_fsx(VpcId="vpc-0aaaaaaaaaaaaaaaa"),
        FAST % ("{fsx}", "/fsx1abcd"),
        [("fsx-other-vpc", "channels.fast.file_system_id")],
        ("vpc-0aaaaaaaaaaaaaaaa", "{vpc}"),
    ),
    "an FSx of another zone": Broken(
        an_fsx_in_one_zone,
        FAST % ("{fsx}", "/fsx1abcd"),
        [("fsx-other-zone", "channels.fast.file_system_id")],
        ("{subnet_b}", "use a subnet such as {subnet_a}"),
    ),
    "an FSx that lets nobody in": Broken(
        an_fsx_open_on(1018),
        FAST % ("{fsx}", "/fsx1abcd"),
        [("security-group-closed", "channels.fast.file_system_id")],
        ("inbound rule to {closed}: TCP 988 from {job_group}",),
    ),
    "an FSx that lets in on one port": Broken(
        an_fsx_open_on(988),
        FAST % ("{fsx}", "/fsx1abcd"),
        [("security-group-ports", "channels.fast.file_system_id")],
        ("TCP 1018-1023",),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_named_and_given_its_remedy(world: World, name: str) -> None:
    broken = BROKEN[name]
    ids = world.ids | broken.make(world)
    world.aws.clear_calls()
    report = world.checked(broken.overlay, **ids)
    assert found(report) == broken.found
    for problem in report.problems:
        assert len(problem.message) < 320
        assert not problem.message.endswith(".")
    text = " ".join(str(problem) for problem in report.problems)
    for said in broken.says:
        assert said.format(**ids) in text
    assert world.aws.writing_calls() == []
