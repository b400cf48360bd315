"""Rules on the network: VPC, isolation, private registries and encryption of traffic."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.request.view import Draft
from launcher.rules.rule import Mistake, error, warning

# The accounts that own AWS Marketplace's algorithms and model packages, one per region, taken from the ARNs in AWS's own
# notebooks (aws/amazon-sagemaker-examples, aws_marketplace).
_MARKETPLACE = {
    "ap-northeast-1": "977537786026",
    "ap-northeast-2": "745090734665",
    "ap-south-1": "077584701553",
    "ap-southeast-1": "192199979996",
    "ap-southeast-2": "666831318237",
    "ca-central-1": "470592106596",
    "eu-central-1": "446921602837",
    "eu-north-1": "136758871317",
    "eu-west-1": "985815980388",
    "eu-west-2": "856760150666",
    "eu-west-3": "843114510376",
    "sa-east-1": "270155090741",
    "us-east-1": "865070037744",
    "us-east-2": "057799348421",
    "us-west-1": "382657785993",
    "us-west-2": "594846645681",
}


@error("marketplace-needs-isolation")
def marketplace_is_isolated(draft: Draft) -> Iterator[Mistake]:
    """Algorithms of AWS Marketplace run only without a network."""
    if is_of_marketplace(draft) and not draft.get("EnableNetworkIsolation"):
        message = "is of AWS Marketplace, which runs without a network; add enable_network_isolation: true"
        yield ("AlgorithmSpecification", "AlgorithmName"), message


@warning("algorithm-may-need-isolation")
def other_accounts_may_be_of_marketplace(draft: Draft) -> Iterator[Mistake]:
    """An algorithm of another account may be of AWS Marketplace, whose algorithms run only without a network."""
    account, own = _account(draft.get("AlgorithmSpecification.AlgorithmName")), _account(draft.get("RoleArn"))
    stranger = account and own and account != own and not is_of_marketplace(draft)
    if stranger and not draft.get("EnableNetworkIsolation"):
        message = "is in another account; if it is from AWS Marketplace, the job needs enable_network_isolation: true"
        yield ("AlgorithmSpecification", "AlgorithmName"), message


def is_of_marketplace(draft: Draft) -> bool:
    return _account(draft.get("AlgorithmSpecification.AlgorithmName")) in _MARKETPLACE.values()


def _account(arn: str | None) -> str | None:
    """Return the account in an ARN; None for a bare name."""
    found = re.match(r"arn:[^:]*:[^:]*:[^:]*:(\d{12}):", arn or "")
    return found[1] if found else None


@error("private-registry-needs-vpc")
def private_registry_needs_a_vpc(draft: Draft) -> Iterator[Mistake]:
    """An image of a private registry is pulled through the job's own network."""
    if _access_mode(draft) == "Vpc" and draft.get("VpcConfig") is None:
        remedy = "add vpc_config: {security_group_ids: [sg-...], subnets: [subnet-...]}"
        place = ("AlgorithmSpecification", "TrainingImageConfig", "TrainingRepositoryAccessMode")
        yield place, f"'Vpc' pulls the image through the job's VPC; {remedy}"


@error("registry-credentials-need-vpc")
def credentials_are_for_a_private_registry(draft: Draft) -> Iterator[Mistake]:
    """Registry credentials are for private registries, which need the access mode Vpc; ECR uses the job's role."""
    given = draft.get("AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig")
    if given and _access_mode(draft) not in (None, "Vpc"):
        message = "is for private registries; delete it, or write training_repository_access_mode: Vpc"
        yield ("AlgorithmSpecification", "TrainingImageConfig", "TrainingRepositoryAuthConfig"), message


def _access_mode(draft: Draft) -> str | None:
    mode: str | None = draft.get("AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode")
    return mode


@error("vpc-config-ids")
def ids_are_of_their_kind(draft: Draft) -> Iterator[Mistake]:
    """Ids of subnets begin with `subnet-`, those of security groups with `sg-`; the patterns allow either for both."""
    for path, name in draft.each("VpcConfig.Subnets"):
        if name.startswith(("sg-", "vpc-")):
            yield path, f"{name!r} is not a subnet; write an id such as subnet-0123456789abcdef0"
    for path, name in draft.each("VpcConfig.SecurityGroupIds"):
        if name.startswith(("subnet-", "vpc-")):
            yield path, f"{name!r} is not a security group; write an id such as sg-0123456789abcdef0"


@warning("vpc-config-id-form")
def ids_have_their_form(draft: Draft) -> Iterator[Mistake]:
    """Subnets and security groups are given by id, not by their names or a zone."""
    for member, form in (("Subnets", "subnet-"), ("SecurityGroupIds", "sg-")):
        for path, name in draft.each(f"VpcConfig.{member}"):
            # vpc-config-ids reports ids of another kind; templates are filled in later.
            if not name.startswith(("subnet-", "sg-", "vpc-", "{", "<", "$")):
                yield path, f"{name!r} is not an id; write one such as {form}0123456789abcdef0"


@warning("traffic-encryption-of-one")
def encryption_between_several(draft: Draft) -> Iterator[Mistake]:
    """Only traffic between instances is encrypted, so the key has no effect on one instance."""
    if draft.get("EnableInterContainerTrafficEncryption") and draft.instance_count == 1:
        yield ("EnableInterContainerTrafficEncryption",), "has no effect on one instance; delete it"


@error("connector-needs-network")
def connector_reads_over_the_network(draft: Draft) -> Iterator[Mistake]:
    """A script that reads S3 by itself needs a network and credentials, and an isolated container has neither."""
    if draft.get("EnableNetworkIsolation"):
        for name, channel in draft.spec.all_channels.items():
            if channel.connector(name) is not None:
                what = f"{channel.source!r} reads S3 from inside the container, which enable_network_isolation forbids"
                yield ("channels", name, "source"), f"{what}; use source: S3"


@warning("requirements-need-network")
def requirements_need_the_network(draft: Draft) -> Iterator[Mistake]:
    """A requirements file is installed from a package index, which an isolated container cannot reach."""
    code = draft.spec.code
    if draft.get("EnableNetworkIsolation") and code is not None and code.requirements is not None:
        remedy = "add the packages to the image, or send them with the code"
        yield ("code", "requirements"), f"cannot be installed under enable_network_isolation; {remedy}"
