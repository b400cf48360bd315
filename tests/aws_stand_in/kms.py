"""KMS: DescribeKey of another account's key, which moto answers as if it were ours, is denied; moto answers the rest.

Source: KMS's API reference (DescribeKey: a key of another account needs its key policy's permission).
"""

from __future__ import annotations

from typing import Any

from aws_stand_in.errors import CALLER, Answer, Refusal
from aws_stand_in.wire import Call

_ACCOUNT = "123456789012"


class Keys:
    """Keeps no state: tests use `deny` and moto's own keys."""

    def clear(self) -> None:
        """Do nothing, since there is no state."""

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Refuse every order: create keys through KMS."""
        raise Refusal("NoSuchControl", f"kms/{name} is nothing that can be ordered", 404)

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Leave the call to moto (None). Raises AccessDeniedException for another account's key."""
        key = str(call.parameters.get("KeyId", ""))
        if call.operation == "DescribeKey" and key.startswith("arn:") and key.split(":")[4] != _ACCOUNT:
            why = "because no resource-based policy allows the kms:DescribeKey action"
            message = f"User: {CALLER} is not authorized to perform: kms:DescribeKey on resource: {key} {why}"
            raise Refusal("AccessDeniedException", message)
        return None
