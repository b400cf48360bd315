"""Channels of a SageMaker dataset resource, for serverless fine-tuning jobs."""

from typing import ClassVar, Literal

from launcher.spec.channels.base import BaseChannel
from launcher.spec.values import Text


class DatasetChannel(BaseChannel):
    """A dataset resource of SageMaker, by its ARN."""

    MEMBER = "DatasetSource"
    WITHOUT: ClassVar = {
        "DATA": "only SageMaker can read a dataset resource",
        "PROVIDERS": "only SageMaker can read a dataset resource",
        "ACCOUNT_CHECKS": "no check asks SageMaker about dataset resources",
        "WAYS": "SageMaker reads it in its own way, so there is nothing to choose",
        "MEASURED_AS": "only SageMaker can read a dataset resource",
    }
    EXAMPLE = "serverless-dataset"

    NOT_OF_KIND = ("CompressionType", "InputMode", "RecordWrapperType", "ShuffleConfig")

    source: Literal["Dataset"]
    dataset_arn: Text | None = None

    def described(self, training_input_mode: str | None) -> str:
        return f"dataset {self.dataset_arn}"
