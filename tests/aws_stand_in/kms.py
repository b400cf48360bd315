"""KMS: DescribeKey of another account's key, which moto answers as if it were ours, is denied; all else is moto's.

Source: KMS's API reference (DescribeKey: a key of another account needs its key policy's permission).
"""

from __future__ import annotations

from typing import Any

from aws_stand_in.errors import CALLER, Answer, Refusal
from aws_stand_in.wire import Call

_ACCOUNT = "123456789012"


class Keys:
    """Nothing is kept: `deny` and moto's own keys serve a test."""

    def clear(self) -> None:
        """Nothing is kept."""

    def control(self, name: str, said: dict[str, Any]) -> Any:
        """Nothing can be ordered: make keys through KMS."""
        raise Refusal("NoSuchControl", f"kms/{name} is nothing that can be ordered", 404)

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """None: moto's. Raises AccessDeniedException."""
        key = str(call.parameters.get("KeyId", ""))
        if call.operation == "DescribeKey" and key.startswith("arn:") and key.split(":")[4] != _ACCOUNT:
            why = "because no resource-based policy allows the kms:DescribeKey action"
            message = f"User: {CALLER} is not authorized to perform: kms:DescribeKey on resource: {key} {why}"
            raise Refusal("AccessDeniedException", message)
        return None
