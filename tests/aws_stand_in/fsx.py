"""FSx: DescribeFileSystems, for file systems that a test adds; moto answers the rest.

Source: FSx's API reference (DescribeFileSystems, FileSystem, LustreFileSystemConfiguration, FileSystemNotFound).
"""

from __future__ import annotations

from typing import Any

from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.wire import Call

_DEFAULT: dict[str, Any] = {
    "OwnerId": "123456789012",
    "CreationTime": 1700000000.0,
    "FileSystemType": "LUSTRE",
    "Lifecycle": "AVAILABLE",
    "StorageCapacity": 1200,
    "StorageType": "SSD",
    "VpcId": "vpc-0123456789abcdef0",
    "SubnetIds": ["subnet-0123456789abcdef0"],
    "NetworkInterfaceIds": ["eni-0123456789abcdef0"],
    "Tags": [],
}
_LUSTRE = {"DeploymentType": "SCRATCH_2", "MountName": "fsx1abcd"}


class FileSystems:
    """The account's file systems by ID."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all file systems."""
        self._systems: dict[str, dict[str, Any]] = {}

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Add a `file_system` with members as in DescribeFileSystems; members that are not given have defaults."""
        if name != "file_system":
            raise Refusal("NoSuchControl", f"fsx/{name} is nothing that can be ordered", 404)
        key = parameters["FileSystemId"]
        names = {
            "ResourceARN": f"arn:aws:fsx:us-east-1:123456789012:file-system/{key}",
            "DNSName": f"{key}.fsx.us-east-1.amazonaws.com",
        }
        lustre = _LUSTRE | parameters.get("LustreConfiguration", {})
        self._systems[key] = _DEFAULT | names | parameters | {"LustreConfiguration": lustre}
        return self._systems[key]

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return DescribeFileSystems' answer. Raises FileSystemNotFound."""
        if call.operation != "DescribeFileSystems":
            return None
        wanted = call.parameters.get("FileSystemIds") or list(self._systems)
        for key in wanted:
            if key not in self._systems:
                raise Refusal("FileSystemNotFound", f"File system '{key}' does not exist.")
        start = int(call.parameters.get("NextToken") or 0)
        size = int(call.parameters.get("MaxResults") or 2147483647)
        answer: dict[str, Any] = {"FileSystems": [self._systems[key] for key in wanted[start : start + size]]}
        if start + size < len(wanted):
            answer["NextToken"] = str(start + size)
        return answer
