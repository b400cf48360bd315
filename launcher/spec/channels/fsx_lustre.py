"""Channels on Amazon FSx for Lustre: the path begins with the file system's mount name, `/<MountName>/...`."""

from typing import ClassVar, Literal

from launcher.spec.channels.efs import FileSystemChannel


class FSxLustreChannel(FileSystemChannel):
    """A directory of an FSx for Lustre file system."""

    DATA = "fsx/<fs-id>/"
    ACCOUNT_CHECKS = ("FSx",)
    WAYS = ("FSxLustre",)
    MEASURED_AS: ClassVar = {"fsx": {}}
    EXAMPLE = "fsx-lustre"
    HAS_MOUNT_NAME = True

    source: Literal["FSxLustre"]
