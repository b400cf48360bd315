"""IAM's SimulatePrincipalPolicy, evaluated from the policies that moto stores for a role or a user.

A subset of IAM's evaluation, from the IAM user guide ("Policy evaluation logic", "Policy simulator"): inline and attached
policies, the call's `PolicyInputList`, and a permissions boundary; Action, NotAction, Resource and NotResource with `*` and `?`;
an explicit Deny before an Allow before nothing. A condition holds if its keys are in ContextEntries and its operator is one of
StringEquals, StringLike, ArnEquals, ArnLike and Bool (with IfExists); a key that is not given is reported in MissingContextValues
and the statement does not count, be it Allow or Deny. Any other operator is reported in the same way.

AWS's own policies (`arn:aws:iam::aws:policy/...`) are attached to a role here and not in moto, which would take a second at each
reset to create them all; so ListAttachedRolePolicies does not name them.

Left out: resource policies, service control policies, session policies, groups of users, and policy variables. moto answers all
other calls. If a call names several resources, EvalDecision is that of the worst; the reference leaves it open.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import MockRawResponse

from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.moto_app import Moto
from aws_stand_in.wire import Call

_NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"
_OF_AWS = "arn:aws:iam::aws:policy/"
_SAME = ("StringEquals", "StringLike", "ArnEquals", "ArnLike", "Bool")
Statement = tuple[str, Mapping[str, Any]]  # with the name of its policy
Judged = tuple[str, list[str], list[str]]  # the decision, the policies that made it, the context keys that were missing


class Simulator:
    """Reads a principal's policies from moto and evaluates them."""

    def __init__(self, moto: Moto) -> None:
        self._moto = moto
        self.clear()

    def clear(self) -> None:
        """Detach AWS's own policies from all roles."""
        self._attached: dict[str, dict[str, Any]] = {}  # role -> the ARN and document of each of AWS's own policies
        self._known: dict[
            str, tuple[list[tuple[str, Any]], Any]
        ] = {}  # what moto holds for an ARN, until something is written

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Refuse every order: add policies to a role through IAM."""
        raise Refusal("NoSuchControl", f"iam/{name} is nothing that can be ordered", 404)

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return SimulatePrincipalPolicy's answer; None leaves the call to moto. Raises NoSuchEntity, InvalidInput."""
        parameters = call.parameters
        if call.writes:
            self._known.clear()
        if call.operation in ("AttachRolePolicy", "DetachRolePolicy") and parameters.get("PolicyArn", "").startswith(
            _OF_AWS
        ):
            return self._attach(
                parameters["RoleName"], parameters["PolicyArn"], attach=call.operation == "AttachRolePolicy"
            )
        if call.operation != "SimulatePrincipalPolicy":
            return None
        arn = parameters.get("PolicySourceArn", "")
        if arn not in self._known:
            self._known[arn] = self._policies(arn)
        policies, boundary = self._known[arn]
        inputs = enumerate(parameters.get("PolicyInputList", []), 1)
        policies = [*policies, *((f"PolicyInputList.{number}", text) for number, text in inputs)]
        statements = [one for source, text in policies for one in _statements(source, text)]
        bounds = None if boundary is None else _statements("PermissionsBoundary", boundary)
        context = _context(parameters)
        resources = parameters.get("ResourceArns") or ["*"]
        results = []
        for action in parameters.get("ActionNames", []):
            if not re.fullmatch(r"[\w-]+:\w+", action):
                raise Refusal("InvalidInput", f"Invalid Entity Action: {action} does not match a single action.")
            judged = [(resource, _judge(action, resource, (statements, bounds), context)) for resource in resources]
            results.append(_written(action, judged))
        start, size = int(parameters.get("Marker") or 0), int(parameters.get("MaxItems") or 100)
        more = start + size < len(results)
        marker = (
            f"<IsTruncated>true</IsTruncated><Marker>{start + size}</Marker>"
            if more
            else "<IsTruncated>false</IsTruncated>"
        )
        members = "".join(f"<member>{one}</member>" for one in results[start : start + size])
        return _answer(call.operation, f"{marker}<EvaluationResults>{members}</EvaluationResults>")

    def _attach(self, role: str, arn: str, *, attach: bool) -> Answer:
        document = _policies_of_aws().get(arn.rpartition("/")[2])
        attached = self._attached.setdefault(role, {})
        if document is None or (not attach and arn not in attached):
            raise Refusal("NoSuchEntity", f"Policy {arn} was not found.", 404)
        if attach:
            attached[arn] = document
            return _answer("AttachRolePolicy", "")
        del attached[arn]
        return _answer("DetachRolePolicy", "")

    @functools.cached_property
    def _iam(self) -> Any:
        import boto3

        make: Any = boto3.client
        keys = {"aws_access_key_id": "stand-in", "aws_secret_access_key": "stand-in"}
        client = make("iam", region_name="us-east-1", **keys)
        client.meta.events.register("before-send.iam", self._ask_moto)
        return client

    def _ask_moto(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """Answer a call of the client, which is not sent."""
        sent: Any = request.headers.items()
        headers = [(name, value.decode() if isinstance(value, bytes) else value) for name, value in sent]
        answer = self._moto.answer("POST", "/", headers, str(request.body).encode())
        return AWSResponse(
            request.url, answer.status, HTTPHeaders.from_dict(answer.headers), MockRawResponse(answer.body)
        )

    def _policies(self, arn: str) -> tuple[list[tuple[str, Any]], Any]:
        """Return a role's or user's policies, each under the name that the simulator gives it, and its permissions boundary."""
        match = re.fullmatch(r"arn:[\w-]+:iam::\d{12}:(role|user)/(?:.+/)?([^/]+)", arn)
        if match is None:
            raise Refusal("InvalidInput", f"Invalid ARN: {arn} is that of no user, group or role.")
        kind, name = match.groups()
        iam, key = self._iam, {f"{kind.capitalize()}Name": name}
        try:
            principal = getattr(iam, f"get_{kind}")(**key)[kind.capitalize()]
        except iam.exceptions.NoSuchEntityException as error:
            message = error.response["Error"]["Message"]
            raise Refusal("NoSuchEntity", message, 404) from None
        inline = getattr(iam, f"list_{kind}_policies")(**key)["PolicyNames"]
        attached = getattr(iam, f"list_attached_{kind}_policies")(**key)["AttachedPolicies"]
        get_inline = getattr(iam, f"get_{kind}_policy")
        found = [(f"{kind}_{name}_{one}", get_inline(**key, PolicyName=one)["PolicyDocument"]) for one in inline]
        found += [(one["PolicyName"], self._document(one["PolicyArn"])) for one in attached]
        own = self._attached.get(name, {}) if kind == "role" else {}
        found += [(arn_of_aws.rpartition("/")[2], document) for arn_of_aws, document in own.items()]
        boundary = principal.get("PermissionsBoundary")
        return found, self._document(boundary["PermissionsBoundaryArn"]) if boundary else None

    def _document(self, arn: str) -> Any:
        version = self._iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        return self._iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]


def _answer(operation: str, result: str) -> Answer:
    text = (
        f'<{operation}Response xmlns="{_NAMESPACE}"><{operation}Result>{result}</{operation}Result>'
        f"<ResponseMetadata><RequestId>stand-in</RequestId></ResponseMetadata></{operation}Response>"
    )
    return Answer(200, text.encode(), {"Content-Type": "text/xml"})


@functools.cache
def _policies_of_aws() -> dict[str, Any]:
    """Return AWS's own policies by name, from moto's copy."""
    from moto.iam.aws_managed_policies import aws_managed_policies_data

    return {name: policy["Document"] for name, policy in json.loads(aws_managed_policies_data).items()}


def _statements(source: str, policy: Any) -> list[Statement]:
    document = json.loads(unquote(policy)) if isinstance(policy, str) else policy
    statements = document.get("Statement", [])
    return [(source, one) for one in _list(statements)]


def _context(parameters: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return ContextEntries, which the form holds flat: `ContextEntries.member.1.ContextKeyName`."""
    found = {}
    for key, name in parameters.items():
        match = re.fullmatch(r"ContextEntries\.member\.(\d+)\.ContextKeyName", key)
        if match:
            # The keys of one entry; its values are a list.
            start = f"ContextEntries.member.{match[1]}.ContextKeyValues"
            found[name.lower()] = [
                value for other, value in parameters.items() if other.startswith(start) for value in _list(value)
            ]
    return found


def _judge(
    action: str,
    resource: str,
    policies: tuple[list[Statement], list[Statement] | None],
    context: Mapping[str, list[str]],
) -> Judged:
    missing: list[str] = []
    found: dict[str, list[str]] = {}  # decision -> the policies that made it
    for statements in policies:
        if statements is None:
            continue
        fits = [
            (source, one["Effect"])
            for source, one in statements
            if _applies(one, action, resource) and _holds(one, context, missing)
        ]
        effects = {effect for _, effect in fits}
        decision = "explicitDeny" if "Deny" in effects else "allowed" if "Allow" in effects else "implicitDeny"
        counts = {"explicitDeny": "Deny", "allowed": "Allow"}.get(decision)
        found.setdefault(decision, []).extend(source for source, effect in fits if effect == counts)
    decision = _worst(found)
    return decision, found[decision], sorted(set(missing))


def _worst(decisions: Iterable[str]) -> str:
    found = set(decisions)
    return "explicitDeny" if "explicitDeny" in found else "implicitDeny" if "implicitDeny" in found else "allowed"


def _applies(statement: Mapping[str, Any], action: str, resource: str) -> bool:
    if "Action" in statement:
        fits = any(_like(action.lower(), pattern.lower()) for pattern in _list(statement["Action"]))
    else:
        fits = not any(_like(action.lower(), pattern.lower()) for pattern in _list(statement.get("NotAction", [])))
    if "Resource" in statement:
        return fits and any(_like(resource, pattern) for pattern in _list(statement["Resource"]))
    return fits and not any(_like(resource, pattern) for pattern in _list(statement.get("NotResource", [])))


def _holds(statement: Mapping[str, Any], context: Mapping[str, list[str]], missing: list[str]) -> bool:
    """Return whether all conditions hold; add the keys that the context lacks to `missing`."""
    holds = True
    for operator, keys in statement.get("Condition", {}).items():
        base = operator.removesuffix("IfExists")
        for key, wanted in keys.items():
            given = context.get(key.lower())
            if given is None and base != operator:
                continue
            if given is None or base not in _SAME:
                missing.append(key)
                holds = False
            else:
                pairs = [(str(value), str(pattern)) for value in given for pattern in _list(wanted)]
                alike = _like if "Like" in base or "Arn" in base else str.__eq__
                holds = holds and any(
                    alike(value.lower(), text.lower()) if base == "Bool" else alike(value, text)
                    for value, text in pairs
                )
    return holds


def _like(value: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(value, pattern.replace("[", "[[]"))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _written(action: str, judged: list[tuple[str, Judged]]) -> str:
    """Return one EvaluationResult; missing context is listed per resource if resources were named, else for the action."""
    is_everything = [resource for resource, _ in judged] == ["*"]
    specific = "".join(
        f"<member><EvalResourceName>{escape(resource)}</EvalResourceName><EvalResourceDecision>{decision}"
        f"</EvalResourceDecision>{_matched(sources)}<MissingContextValues>{_keys(missing)}</MissingContextValues></member>"
        for resource, (decision, sources, missing) in judged
        if not is_everything
    )
    worst = _worst(decision for _, (decision, _, _) in judged)
    sources = [source for _, (decision, of, _) in judged if decision == worst for source in of]
    return (
        f"<EvalActionName>{escape(action)}</EvalActionName><EvalResourceName>{escape(judged[0][0])}</EvalResourceName>"
        f"<EvalDecision>{worst}</EvalDecision>{_matched(sources)}"
        f"<MissingContextValues>{_keys(judged[0][1][2]) if is_everything else ''}</MissingContextValues>"
        f"<ResourceSpecificResults>{specific}</ResourceSpecificResults>"
    )


def _matched(sources: list[str]) -> str:
    members = "".join(
        f"<member><SourcePolicyId>{escape(one)}</SourcePolicyId><SourcePolicyType>IAM Policy</SourcePolicyType></member>"
        for one in sources
    )
    return f"<MatchedStatements>{members}</MatchedStatements>"


def _keys(missing: list[str]) -> str:
    return "".join(f"<member>{escape(key)}</member>" for key in missing)
