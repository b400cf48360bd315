"""The route from the job's subnets to a package index, which the container needs to install `code.requirements`.

The interfaces that SageMaker creates have no public addresses, so only NAT, or something else that may lead out, is a route to
pypi.org; an endpoint for S3 is none. Settings of pip or of a proxy in the environment may name an index inside the VPC, and so may
an endpoint of CodeArtifact: nothing is reported then.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.account.check import Check, Finding, Subject, joined
from launcher.account.network.s3_route import GONE, deleted_nat_gateways, table_of, way_out
from launcher.account.network.vpc import described, subnets, vpc_id
from launcher.errors import SpecPath

_REQUIREMENTS: SpecPath = ("code", "requirements")
_OTHER_INDEX = ("PIP_", "UV_", "HTTPS_PROXY", "ALL_PROXY")  # beginnings of variables


def _ask(subject: Subject) -> Iterator[Finding]:
    code = subject.draft.spec.code
    variables = subject.draft.get("Environment") or {}
    if code is None or code.requirements is None or any(name.upper().startswith(_OTHER_INDEX) for name in variables):
        return
    if (vpc := vpc_id(subject)) is None:
        return
    endpoints = described(subject, "vpc_endpoints", "vpc-id", [vpc])
    working = [each for each in endpoints if str(each.get("State", "available")).lower() not in GONE]
    if any(".codeartifact." in str(each.get("ServiceName")) for each in working):
        return
    tables = described(subject, "route_tables", "vpc-id", [vpc])
    unfit = {*deleted_nat_gateways(subject, tables), *(each["VpcEndpointId"] for each in endpoints)}
    found = [(subnet["SubnetId"], table_of(subnet["SubnetId"], tables)) for subnet in subnets(subject)]
    closed = [name for name, table in found if table is not None and way_out(table, unfit) != "yes"]
    if closed:
        message = (
            f"cannot be downloaded, since no NAT leads out of {joined(closed)}; route the subnets to a NAT gateway, install the"
            " packages in the image, or set PIP_INDEX_URL to an index in the VPC"
        )
        yield _REQUIREMENTS, "requirements-unreachable", message


CHECK = Check("way to package index", _ask)
