"""Channels that the training script reads by itself, through the S3 Connector for PyTorch.

SageMaker has no part in them: they are no InputDataConfig entries and do not count towards its limit of channels. What
the container has to know travels as one environment variable a channel (`entrypoints.contract`).
"""

from typing import Any, Literal

from entrypoints import contract
from launcher.spec.channels.base import BaseChannel
from launcher.spec.values import Text


class S3ConnectorChannel(BaseChannel):
    """Every object below a prefix, fetched by the container as it needs them."""

    source: Literal["S3Connector"]
    s3_uri: Text | None = None
    style: Literal["iterable", "map"] | None = "iterable"
    """`iterable` streams in order, `map` gives random access."""

    def input_data_config(self, name: str, training_input_mode: str | None) -> dict[str, Any] | None:
        return None

    def described(self, training_input_mode: str | None) -> str:
        return f"{self.s3_uri} by the S3 Connector, {self.style}"

    def connector(self, name: str) -> dict[str, str]:
        told = {
            contract.CONNECTOR_CHANNEL: name,
            contract.CONNECTOR_S3_URI: self.s3_uri,
            contract.CONNECTOR_STYLE: self.style,
            contract.CONNECTOR_CONTENT_TYPE: self.content_type,
        }
        return {key: value for key, value in told.items() if value is not None}
