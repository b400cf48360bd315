"""Channels on Amazon EFS: a directory of the file system, mounted at the channel's path."""

from typing import ClassVar, Literal, get_args

from launcher.spec.channels.base import BaseChannel
from launcher.spec.values import Text


class FileSystemChannel(BaseChannel):
    """The keys of all file systems: each is a mounted directory, always in File mode."""

    MEMBER = "FileSystemDataSource"
    PROVIDERS: ClassVar = {"File": "file_system"}
    NOT_OF_KIND = ("ShuffleConfig",)

    file_system_id: Text | None = None
    directory_path: Text | None = None
    """The full path of the directory on the file system."""
    file_system_access_mode: Text | None = "ro"
    input_mode: Text | None = "File"

    @classmethod
    def fixed_members(cls) -> dict[str, str]:
        return {"FileSystemType": get_args(cls.model_fields["source"].annotation)[0]}

    def described(self, training_input_mode: str | None) -> str:
        return f"{self.file_system_id}:{self.directory_path} on {self.source}, {self.file_system_access_mode}"


class EFSChannel(FileSystemChannel):
    """A directory of an EFS file system."""

    DATA = "efs/<fs-id>/"
    ACCOUNT_CHECKS = ("EFS",)
    WAYS = ("EFS",)
    MEASURED_AS: ClassVar = {"efs": {}}
    EXAMPLE = "efs"

    source: Literal["EFS"]
