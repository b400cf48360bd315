"""What a storage kind answers for itself; the table of kinds is in this package's `__init__`.

A kind is one file with one class below `BaseChannel`. It says what may be written (its fields), what it becomes in the
request (`input_data_config`) or in the container's environment (`connector`), and where each of its keys went
(`PLACES`), so that a problem found in the request is reported at the key that caused it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from launcher.spec.model import Section, as_request, aws_name
from launcher.spec.values import Text


class BaseChannel(Section, ABC):
    """The keys of every channel."""

    # Key -> the members above its own in an InputDataConfig entry. Keys not named here lie in the entry itself.
    PLACES: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    source: Text | None = None
    content_type: Text | None = None
    """The MIME type of the data; the readers in the container choose the record format by it."""

    @abstractmethod
    def input_data_config(self, name: str, training_input_mode: str | None) -> dict[str, Any] | None:
        """This channel's InputDataConfig entry, or None where the service has no part in it.

        `training_input_mode` is the job's, which a channel takes over where it says nothing itself.
        """

    def connector(self, name: str) -> dict[str, str] | None:
        """What the container must be told to read this channel by itself, or None where SageMaker brings it."""
        return None

    @abstractmethod
    def described(self, training_input_mode: str | None) -> str:
        """Where it lies and how it arrives, in a few words for people."""

    def _entry(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """An InputDataConfig entry of these values (key -> value), each at its place, without what is None."""
        entry: dict[str, Any] = {"ChannelName": name, "DataSource": {}}
        for key, value in values.items():
            if value is None:
                continue
            level = entry
            for member in self.PLACES.get(key, ()):
                level = level.setdefault(member, {})
            level[aws_name(key)] = as_request(value)
        return entry
