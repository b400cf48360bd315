"""STS: GetCallerIdentity of keys that were made up is the role `developer`; moto answers for the keys that it has issued itself."""

from __future__ import annotations

import re
from typing import Any

from aws_stand_in.errors import CALLER, Answer, Refusal
from aws_stand_in.wire import Call

_ISSUED = re.compile(r"Credential=(AKIA|ASIA)")


class Callers:
    """Keeps no state."""

    def clear(self) -> None:
        """Do nothing, since there is no state."""

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Refuse every order: take the keys of an IAM user, or assume a role."""
        raise Refusal("NoSuchControl", f"sts/{name} is nothing that can be ordered", 404)

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return GetCallerIdentity's answer; None leaves the call to moto."""
        if call.operation != "GetCallerIdentity" or _ISSUED.search(call.headers.get("Authorization", "")):
            return None
        result = f"<Arn>{CALLER}</Arn><UserId>AROASTANDIN:stand-in</UserId><Account>{CALLER.split(':')[4]}</Account>"
        text = (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<GetCallerIdentityResult>{result}</GetCallerIdentityResult></GetCallerIdentityResponse>"
        )
        return Answer(200, text.encode(), {"Content-Type": "text/xml"})
