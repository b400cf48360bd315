"""Channels of a SageMaker dataset resource, for serverless fine-tuning jobs."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from launcher.spec.channels.base import BaseChannel
from launcher.spec.values import Text


class DatasetChannel(BaseChannel):
    """A dataset that SageMaker keeps, by its ARN."""

    PLACES: ClassVar[Mapping[str, tuple[str, ...]]] = {"dataset_arn": ("DataSource", "DatasetSource")}

    source: Literal["Dataset"]
    dataset_arn: Text | None = None

    def input_data_config(self, name: str, training_input_mode: str | None) -> dict[str, Any]:
        return self._entry(name, {key: value for key, value in self if key != "source"})

    def described(self, training_input_mode: str | None) -> str:
        return f"dataset {self.dataset_arn}"
