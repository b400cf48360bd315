"""Channels on Amazon EFS: a directory of the file system, mounted at the channel's path."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from launcher.spec.channels.base import BaseChannel
from launcher.spec.values import Text

_DATA_SOURCE = ("DataSource", "FileSystemDataSource")


class FileSystemChannel(BaseChannel):
    """What EFS and FSx for Lustre share: both are mounted directories, always in File mode."""

    PLACES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "file_system_id": _DATA_SOURCE,
        "file_system_type": _DATA_SOURCE,
        "directory_path": _DATA_SOURCE,
        "file_system_access_mode": _DATA_SOURCE,
    }

    file_system_id: Text | None = None
    directory_path: Text | None = None
    """The full path of the directory on the file system."""
    file_system_access_mode: Text | None = "ro"
    input_mode: Text | None = "File"
    compression_type: Text | None = None
    record_wrapper_type: Text | None = None

    def input_data_config(self, name: str, training_input_mode: str | None) -> dict[str, Any]:
        values = {key: value for key, value in self if key != "source"}
        return self._entry(name, {"file_system_type": self.source, **values})

    def described(self, training_input_mode: str | None) -> str:
        return f"{self.file_system_id}:{self.directory_path} on {self.source}, {self.file_system_access_mode}"


class EFSChannel(FileSystemChannel):
    """A directory of an EFS file system."""

    source: Literal["EFS"]
