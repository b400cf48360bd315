"""Channels that SageMaker itself brings from S3: copied (File), mounted lazily (FastFile) or streamed (Pipe)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from launcher.spec.channels.base import BaseChannel
from launcher.spec.model import Section
from launcher.spec.values import Boolean, Integer, Text

_DATA_SOURCE = ("DataSource", "S3DataSource")


class ShuffleConfig(Section):
    """The order of the objects changes with every epoch, by this seed."""

    seed: Integer | None = None


class ModelAccessConfig(Section):
    """Whether the terms of a model that asks for it are accepted."""

    accept_eula: Boolean | None = None


class HubAccessConfig(Section):
    """The entry of a private hub."""

    hub_content_arn: Text | None = None


class S3Channel(BaseChannel):
    """A prefix or a manifest in S3. A bare `s3://...` in place of the mapping is its `s3_uri`."""

    PLACES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "s3_uri": _DATA_SOURCE,
        "s3_data_type": _DATA_SOURCE,
        "s3_data_distribution_type": _DATA_SOURCE,
        "attribute_names": _DATA_SOURCE,
        "instance_group_names": _DATA_SOURCE,
        "model_access_config": _DATA_SOURCE,
        "hub_access_config": _DATA_SOURCE,
    }

    source: Literal["S3"] = "S3"
    s3_uri: Text | None = None
    """A prefix, or the manifest's own URI."""
    s3_data_type: Text | None = "S3Prefix"
    s3_data_distribution_type: Text | None = "FullyReplicated"
    attribute_names: tuple[Text, ...] | None = None
    """Attributes to send of each line of an augmented manifest, in this order."""
    instance_group_names: tuple[Text, ...] | None = None
    input_mode: Text | None = None
    """How it arrives; the job's `training_input_mode` (File unless said) where absent."""
    compression_type: Text | None = None
    record_wrapper_type: Text | None = None
    shuffle_config: ShuffleConfig | None = None
    model_access_config: ModelAccessConfig | None = None
    hub_access_config: HubAccessConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return {"s3_uri": value} if isinstance(value, str) else value

    def input_data_config(self, name: str, training_input_mode: str | None) -> dict[str, Any]:
        values = {key: value for key, value in self if key != "source"}
        return self._entry(name, {**values, "input_mode": self._mode(training_input_mode)})

    def described(self, training_input_mode: str | None) -> str:
        sharded = f", {self.s3_data_distribution_type}" if self.s3_data_distribution_type != "FullyReplicated" else ""
        return f"{self.s3_uri} by {self._mode(training_input_mode) or 'File'}{sharded}"

    def _mode(self, training_input_mode: str | None) -> str | None:
        return self.input_mode if "input_mode" in self.model_fields_set else training_input_mode
