"""Facts about instance types that rules need, by family: storage and accelerators.

The sources are EC2's instance type pages (aws.amazon.com/ec2/instance-types) and, for families to which no volume can be
attached, the SageMaker SDK's `volume_size_supported` (any family with a `d`, g5, g6, p5, trn1). For a family that is not in the
table only EC2's naming convention counts: the first letters give the purpose, a `d` after the generation means disks of its own.
Unknown facts are None, and rules then report nothing.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

Storage = Literal["EBS", "NVMe"]

# Families without disks of their own, whose only space is VolumeSizeInGB.
_EBS_ONLY = re.compile(r"c4|c5n?|m[45]|r5|t3|p[23]|[cmr][678]i(-flex)?")
# Families in which every size has NVMe disks of a fixed size.
_NVME = re.compile(r"r5d|g4dn|g5|g6e?|g7e?|p3dn|p4de?|p5(e|en)?|p6-b[23]00|p6e-gb200|trn1n?|trn2")
_NAME = re.compile(
    r"ml\.(?P<family>(?P<letters>[a-z]+)(?P<generation>\d+)(?P<options>[a-z]*)(?:-[a-z0-9]+)?)\."
    r"(?:nano|micro|small|medium|large|\d*xlarge|metal(?:-\d+xl)?)"
)
_ACCELERATED = {"p": "GPU", "g": "GPU", "trn": "Trainium", "inf": "Inferentia"}
_CPU_ONLY = frozenset(("c", "m", "r", "t", "x", "z", "i", "d", "hpc"))
_ULTRA_SERVERS = ("p6e-", "trn2u")
_ARM = re.compile(r"[a-z]+\d+[a-z]*(?<=[0-9])g[a-z]*|p6e-gb\d+")  # Graviton: c7g, c6gn, g5g; and Grace


class InstanceType(NamedTuple):
    """One instance type; unknown facts are None."""

    name: str
    storage: Storage | None
    accelerator: str | None
    """GPU, Trainium or Inferentia; empty if it has none."""
    is_ultra_server: bool | None
    architecture: Literal["amd64", "arm64"] | None = None

    @property
    def is_accelerated(self) -> bool | None:
        return None if self.accelerator is None else self.accelerator != ""

    @property
    def has_gpu(self) -> bool | None:
        return None if self.accelerator is None else self.accelerator == "GPU"


@cache
def instance_type(name: str) -> InstanceType:
    """Return the facts about an instance type such as `ml.g5.xlarge`; all are None for a name of another form."""
    match = _NAME.fullmatch(name)
    if match is None:
        return InstanceType(name, None, None, None)
    family, letters = match["family"], match["letters"]
    storage: Storage | None = None
    if _EBS_ONLY.fullmatch(family):
        storage = "EBS"
    elif _NVME.fullmatch(family) or "d" in match["options"]:
        storage = "NVMe"
    accelerator = "" if letters in _CPU_ONLY else _ACCELERATED.get(letters)
    architecture: Literal["amd64", "arm64"] = "arm64" if _ARM.fullmatch(family) else "amd64"
    return InstanceType(name, storage, accelerator, family.startswith(_ULTRA_SERVERS), architecture)
