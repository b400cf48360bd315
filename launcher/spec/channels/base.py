"""The card of a storage kind: one class below `BaseChannel` in a file of its own, and one row of `KINDS`.

The card holds everything that differs between kinds: its keys, its entry in a request, how a local run delivers it, and what the
account checks, `launch advise` and `launch measure` know of it. These read the card; none of them names a kind.
tests/launcher/spec/test_channel_cards.py names what a new card lacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import create_model

from launcher.spec.aws_model import shapes
from launcher.spec.model import Section, as_request, aws_name
from launcher.spec.structures import fields
from launcher.spec.values import Text


class BaseChannel(Section, ABC):
    """The keys of every channel, and what a card may state besides its keys."""

    MEMBER: ClassVar[str | None] = None
    """The member of DataSource that says where the data is; None if the script reads the data itself."""
    DATA: ClassVar[str] = ""
    """Where `--data` has the data of this kind: a folder, and in it a directory per bucket or file system."""
    PROVIDERS: ClassVar[Mapping[str, str]] = {}
    """Input mode -> the module in `launcher.local.channels` that delivers the channel in a local run."""
    HAS_MOUNT_NAME: ClassVar[bool] = False
    """Whether the path on a file system begins with its mount name, which a folder of `--data` may lack."""
    ACCOUNT_CHECKS: ClassVar[tuple[str, ...]] = ()
    """Names of the account checks that look at the data."""
    WAYS: ClassVar[tuple[str, ...]] = ()
    """Ways in which the data can arrive, as `launch advise` compares them (`launcher.advice.ways`)."""
    MEASURED_AS: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Channel of `launch measure` that reads the data (`ARRIVALS` of `sagemaker_channels.tools.ways`) -> its own keys."""
    EXAMPLE: ClassVar[str] = ""
    """The bundled spec that shows this kind: `launch --example NAME`."""
    WITHOUT: ClassVar[Mapping[str, str]] = {}
    """Name of an attribute above that is empty on purpose -> the reason."""
    NOT_OF_KIND: ClassVar[tuple[str, ...]] = ()
    """Members of an InputDataConfig entry that the service refuses, or that have no meaning, for this kind."""

    source: Text | None = None
    content_type: Text | None = None
    """The MIME type of the data; the readers in the container choose the record format by it."""

    if TYPE_CHECKING:

        def __getattr__(self, key: str) -> Any:
            """Return the value of a key that only some kinds have."""

    @classmethod
    def data_folder(cls) -> str:
        """Return the folder of `--data` that stands for the storage."""
        return cls.DATA.partition("/")[0]

    @classmethod
    def folders(cls, root: Path, directory_path: str) -> list[Path]:
        """Return where a directory of a file system may be below its local folder: if paths have a mount name, also without it."""
        _, *parts = PurePosixPath("/", directory_path).parts
        tails = [parts, parts[1:]] if parts and cls.HAS_MOUNT_NAME else [parts]
        return [root.joinpath(*tail) for tail in tails]

    @abstractmethod
    def described(self, training_input_mode: str | None) -> str:
        """Return where the data is and how it is read, in a few words for people."""

    def connector(self, name: str) -> dict[str, str] | None:
        """Return the settings by which the script reads this channel itself; None if SageMaker delivers it."""
        return None

    def input_data_config(self, name: str, training_input_mode: str | None) -> dict[str, Any] | None:
        """Return the InputDataConfig entry, with the job's input mode if the channel has none; None if there is no entry."""
        if self.MEMBER is None:
            return None
        entry: dict[str, Any] = {"ChannelName": name, "DataSource": {}}
        if fixed := self.fixed_members():
            entry["DataSource"][self.MEMBER] = fixed
        for key, value in self._values(training_input_mode):
            if key == "source" or value is None:
                continue
            *above, member = self.place(key)
            level = entry
            for part in above:
                level = level.setdefault(part, {})
            level[member] = as_request(value)
        return entry

    @classmethod
    def place(cls, key: str) -> tuple[str, ...]:
        """Return the path of a key's member in an InputDataConfig entry."""
        member = aws_name(key)
        is_of_entry = cls.MEMBER is None or member in shapes()["Channel"]["members"]
        return (member,) if is_of_entry else ("DataSource", str(cls.MEMBER), member)

    @classmethod
    def complete(cls) -> type[BaseChannel]:
        """Return this kind with a key for each member of its entry and of its data source that it does not define itself."""
        if cls.MEMBER is None:
            return cls
        left_out = ("ChannelName", "DataSource", *cls.NOT_OF_KIND, *cls.fixed_members())
        of_aws = fields(cls.MEMBER, left_out) | fields("Channel", left_out)
        more = {key: field for key, field in of_aws.items() if key not in cls.model_fields}
        return create_model(cls.__name__, __base__=cls, __doc__=cls.__doc__, **more)

    @classmethod
    def fixed_members(cls) -> dict[str, str]:
        """Return the members of the data source that are the same for every channel of this kind."""
        return {}

    @classmethod
    def members(cls, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the members of an InputDataConfig entry that have keys in this kind; None if the entry is of another kind."""
        sources, fixed = entry.get("DataSource"), cls.fixed_members()
        data = sources.get(cls.MEMBER) if isinstance(sources, dict) and len(sources) == 1 else None
        if not isinstance(data, dict) or not fixed.items() <= data.items():
            return None
        rest = {member: value for member, value in entry.items() if member not in ("ChannelName", "DataSource")}
        return {member: value for member, value in data.items() if member not in fixed} | rest

    def _values(self, training_input_mode: str | None) -> Iterable[tuple[str, Any]]:
        """Yield each key with its value, those that depend on the job included."""
        yield from self
