"""Rules on the keys that need a certain input mode: File, FastFile or Pipe.

Channels may differ in their modes: a channel's InputMode takes precedence over the job's TrainingInputMode, and
ShuffleConfig is allowed in every mode of S3 (Channel.InputMode and ShuffleConfig in the service model).
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.request.view import Draft, Entry
from launcher.rules.rule import Mistake, error, warning


@error("channel-gzip-needs-pipe")
def gzip_needs_pipe(draft: Draft) -> Iterator[Mistake]:
    """The service unzips only what it streams."""
    for entry in _not_piped(draft, "CompressionType", "Gzip"):
        what = f"'Gzip' works only with input_mode Pipe, not {entry.mode!r}"
        yield entry.path("CompressionType"), f"{what}; delete it, since open_channel unzips by itself, or use Pipe"


@error("channel-recordio-needs-pipe")
def recordio_needs_pipe(draft: Draft) -> Iterator[Mistake]:
    """Objects are wrapped as records only in a stream."""
    for entry in _not_piped(draft, "RecordWrapperType", "RecordIO"):
        if not entry.is_augmented:  # that needs both the wrapper and Pipe, by its own rule
            message = f"'RecordIO' works only with input_mode Pipe, not {entry.mode!r}; delete it or use Pipe"
            yield entry.path("RecordWrapperType"), message


@error("channel-augmented-manifest-needs-pipe")
def augmented_manifest_needs_pipe(draft: Draft) -> Iterator[Mistake]:
    """The objects of an augmented manifest can only be streamed."""
    for entry in _not_piped(draft, "S3DataType", "AugmentedManifestFile"):
        message = "'AugmentedManifestFile' works only with input_mode Pipe; write input_mode: Pipe"
        yield entry.path("S3DataType"), message


@warning("channel-augmented-manifest-records")
def attributes_need_boundaries(draft: Draft) -> Iterator[Mistake]:
    """Only RecordIO marks where one attribute of an augmented manifest ends and the next begins."""
    for entry in draft.entries:
        several = entry.is_augmented and len(entry.get("AttributeNames") or ()) > 1
        if several and draft.built_in is None and entry.get("RecordWrapperType") != "RecordIO":
            message = "is not RecordIO, and without it nothing marks the end of an attribute's value; write RecordIO"
            yield entry.path("RecordWrapperType"), message


@warning("channel-pipe-order")
def pipe_order_across_hosts(draft: Draft) -> Iterator[Mistake]:
    """Each host streams all of a FullyReplicated channel, not necessarily in the same order."""
    for entry in draft.entries:
        several = (draft.host_count(entry) or 1) > 1 and draft.built_in is None
        if several and entry.mode == "Pipe" and not (entry.is_sharded or entry.is_file_system):
            remedy = "to read each sample on one host only, use s3_data_distribution_type: ShardedByS3Key"
            yield entry.path("InputMode"), f"streams all the data to every host, maybe in different orders; {remedy}"


@warning("shuffle-needs-pipe")
def shuffling_needs_an_order(draft: Draft) -> Iterator[Mistake]:
    """Copied files have no order, so a script sees no difference; only the shards of the hosts are shuffled."""
    for entry in draft.entries:
        copied = entry.mode == "File" and not entry.is_file_system and not entry.is_sharded
        if copied and entry.get("ShuffleConfig"):
            message = "has no effect in File mode; use input_mode: Pipe, or shuffle in the script"
            yield entry.path("ShuffleConfig"), message


@error("channel-model-by-file")
def model_is_read_as_files(draft: Draft) -> Iterator[Mistake]:
    """The model that incremental training continues from is read as files, in File mode."""
    for entry in _models(draft):
        if entry.mode == "Pipe" or (entry.mode == "FastFile" and _has_algorithm(draft, entry)):
            message = f"is {entry.mode}, but the model for incremental training needs File mode; write File"
            yield entry.path("InputMode"), message


@warning("channel-model-by-fast-file")
def model_by_fast_file(draft: Draft) -> Iterator[Mistake]:
    """A channel `model` by FastFile is right for a script that mounts a model, but wrong for incremental training."""
    for entry in _models(draft):
        if entry.mode == "FastFile" and not _has_algorithm(draft, entry):
            message = "is FastFile, but incremental training needs File mode; write File if you continue a model"
            yield entry.path("InputMode"), message


def _models(draft: Draft) -> list[Entry]:
    """Return the channels of a model that incremental training continues from."""
    known = "application/x-sagemaker-model"
    return [entry for entry in draft.entries if entry.name == "model" or entry.content_type == known]


def _has_algorithm(draft: Draft, entry: Entry) -> bool:
    """Return whether one of AWS's algorithms reads the model, not the user's script."""
    return draft.built_in is not None or entry.content_type == "application/x-sagemaker-model"


def _not_piped(draft: Draft, member: str, value: str) -> list[Entry]:
    return [entry for entry in draft.entries if entry.mode not in ("Pipe", None) and entry.get(member) == value]
