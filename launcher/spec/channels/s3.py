"""Channels that SageMaker reads from S3: copied (File), mounted lazily (FastFile) or streamed (Pipe)."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from launcher.spec.channels.base import BaseChannel
from launcher.spec.values import Text


class S3Channel(BaseChannel):
    """A prefix or a manifest in S3. A bare `s3://...` stands for a mapping with that `s3_uri`."""

    MEMBER = "S3DataSource"
    DATA = "s3/<bucket>/..."
    PROVIDERS: ClassVar = {"File": "copied", "FastFile": "mounted", "Pipe": "fifo"}
    ACCOUNT_CHECKS = ("buckets", "prefixes", "manifests")
    WAYS = tuple(PROVIDERS)
    MEASURED_AS: ClassVar = {
        "file": {"input_mode": "File"},
        "fast_file": {"input_mode": "FastFile"},
        "pipe": {"input_mode": "Pipe"},
    }
    EXAMPLE = "s3-file"

    source: Literal["S3"] = "S3"
    s3_uri: Text | None = None
    """A prefix, or the manifest's own URI."""
    s3_data_type: Text | None = "S3Prefix"
    s3_data_distribution_type: Text | None = "FullyReplicated"
    input_mode: Text | None = None
    """File, FastFile or Pipe; by default the job's `training_input_mode`, which is File unless the spec states it."""

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return {"s3_uri": value} if isinstance(value, str) else value

    def described(self, training_input_mode: str | None) -> str:
        sharded = f", {self.s3_data_distribution_type}" if self.s3_data_distribution_type != "FullyReplicated" else ""
        return f"{self.s3_uri} by {self._mode(training_input_mode) or 'File'}{sharded}"

    def _mode(self, training_input_mode: str | None) -> str | None:
        return self.input_mode if "input_mode" in self.model_fields_set else training_input_mode

    def _values(self, training_input_mode: str | None) -> Iterable[tuple[str, Any]]:
        for key, value in self:
            yield key, self._mode(training_input_mode) if key == "input_mode" else value
