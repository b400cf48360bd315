"""Channels that the training script itself reads, through the S3 Connector for PyTorch.

They have no InputDataConfig entry and do not count towards SageMaker's limit of channels. The container gets the settings of
each in one environment variable (`sagemaker_channels.contract`).
"""

from typing import ClassVar, Literal

from launcher.spec.channels.base import BaseChannel
from launcher.spec.values import Text
from sagemaker_channels import contract


class S3ConnectorChannel(BaseChannel):
    """Every object below a prefix, fetched by the script when it needs them."""

    DATA = "s3/<bucket>/..."
    ACCOUNT_CHECKS = ("buckets", "prefixes")
    WAYS = ("S3Connector",)
    MEASURED_AS: ClassVar = {"s3": {}}
    EXAMPLE = "s3-connector"
    WITHOUT: ClassVar = {
        "MEMBER": "the request names the channel in an environment variable",
        "PROVIDERS": "the script reads S3 itself",
    }

    source: Literal["S3Connector"]
    s3_uri: Text | None = None
    style: Literal["iterable", "map"] | None = "iterable"
    """`iterable` streams in order, `map` gives random access."""

    def described(self, training_input_mode: str | None) -> str:
        return f"{self.s3_uri} by the S3 Connector, {self.style}"

    def connector(self, name: str) -> dict[str, str]:
        settings = {
            contract.CONNECTOR_CHANNEL: name,
            contract.CONNECTOR_S3_URI: self.s3_uri,
            contract.CONNECTOR_STYLE: self.style,
            contract.CONNECTOR_CONTENT_TYPE: self.content_type,
        }
        return {key: value for key, value in settings.items() if value is not None}
