"""Rules on the keys that need a certain input mode: File, FastFile or Pipe.

Channels may differ in their modes: a channel's InputMode takes precedence over the job's TrainingInputMode, and
ShuffleConfig is allowed in every mode of S3 (Channel.InputMode and ShuffleConfig in the service model).
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Mistake, Rule
from launcher.request.view import Draft, Entry


def gzip_needs_pipe(draft: Draft) -> Iterator[Mistake]:
    """The service unzips only what it streams.

    It answers: "Invalid compression type for channel training: File mode only supports NONE, got Gzip instead". (In 2019 it
    looked at the job's TrainingInputMode only, though the channel itself said Pipe.)
    Source: aws/sagemaker-python-sdk issue 716; Channel.CompressionType in the service model ("used only in Pipe input mode").
    """
    for entry in _not_piped(draft):
        if entry.get("CompressionType") == "Gzip":
            mode = entry.get("InputMode")
            remedy = "delete it, since open_channel unzips by itself, or use Pipe"
            message = f"'Gzip' works only with input_mode Pipe, not {mode!r}; {remedy}"
            yield entry.path("compression_type"), message


def recordio_needs_pipe(draft: Draft) -> Iterator[Mistake]:
    """Objects are wrapped as records only in a stream.

    Source: Channel.RecordWrapperType in the service model ("In File mode, leave this field unset or set it to None"). Data
    that is in RecordIO format already needs no wrapper in any mode.
    """
    for entry in _not_piped(draft):
        # An augmented manifest needs both the wrapper and Pipe, which its own rule says.
        if entry.get("RecordWrapperType") == "RecordIO" and entry.get("S3DataType") != "AugmentedManifestFile":
            mode = entry.get("InputMode")
            message = f"'RecordIO' works only with input_mode Pipe, not {mode!r}; delete it or use Pipe"
            yield entry.path("record_wrapper_type"), message


def augmented_manifest_needs_pipe(draft: Draft) -> Iterator[Mistake]:
    """The objects of an augmented manifest can only be streamed.

    One page of the developer guide (model-access-training-data) lists augmented manifests for File mode; the service model,
    the page on them and the service itself allow Pipe only.
    Source: S3DataSource.S3DataType in the service model; developer guide, augmented-manifest.
    """
    for entry in _not_piped(draft):
        if entry.get("S3DataType") == "AugmentedManifestFile":
            yield (
                entry.path("s3_data_type"),
                "'AugmentedManifestFile' works only with input_mode Pipe; write input_mode: Pipe",
            )


def attributes_need_boundaries(draft: Draft) -> Iterator[Mistake]:
    """Only RecordIO marks where one attribute of an augmented manifest ends and the next begins.

    Built-in algorithms have their own rule (built-in-augmented-manifest); the data of a single attribute can have boundaries
    itself, as tar shards do.
    Source: developer guide, augmented-manifest-stream ("streamed with the corresponding is-a-cat attribute value as one
    record. This can cause a problem").
    """
    for entry in draft.entries:
        several = entry.get("S3DataType") == "AugmentedManifestFile" and len(entry.get("AttributeNames") or ()) > 1
        if several and draft.built_in is None and entry.get("RecordWrapperType") != "RecordIO":
            yield (
                entry.path("record_wrapper_type"),
                "is not RecordIO, and without it nothing marks the end of an attribute's value; write RecordIO",
            )


def pipe_order_across_hosts(draft: Draft) -> Iterator[Mistake]:
    """Each host streams all of a FullyReplicated channel, not necessarily in the same order.

    So if each of n hosts reads every n-th record, some are read twice and some never. Built-in algorithms handle this.
    Source: S3DataSource.S3DataDistributionType and ShuffleConfig in the service model.
    """
    for entry in draft.entries:
        several = (draft.hosts_of(entry) or 1) > 1 and draft.built_in is None
        if several and entry.get("InputMode") == "Pipe" and not entry.is_sharded:
            yield (
                entry.path("input_mode"),
                "streams all the data to every host, maybe in different orders; to read each sample on one host only,"
                " use s3_data_distribution_type: ShardedByS3Key",
            )


def shuffling_needs_an_order(draft: Draft) -> Iterator[Mistake]:
    """Copied files have no order, so a script sees no difference; only the shards of the hosts are shuffled.

    The service accepts ShuffleConfig in every mode. A FastFile channel may be listed in another order, so it gets no warning.
    Source: ShuffleConfig in the service model ("For Pipe input mode, ... shuffling is done at the start of every epoch").
    """
    for entry in draft.entries:
        copied = entry.get("InputMode") == "File" and not entry.is_file_system and not entry.is_sharded
        if copied and entry.get("ShuffleConfig"):
            yield (
                entry.path("shuffle_config"),
                "has no effect in File mode; use input_mode: Pipe, or shuffle in the script",
            )


def model_comes_as_files(draft: Draft) -> Iterator[Mistake]:
    """The model that incremental training continues from is read as files, in File mode.

    The channel is called `model`, or its content type is application/x-sagemaker-model. A user's script can mount a large
    model by FastFile under this name; that is channel-model-by-fast-file, a warning.
    Source: Channel.InputMode in the service model ("To use a model for incremental training, choose File"); developer guide,
    incremental-training.
    """
    for entry in draft.entries:
        mode = entry.get("InputMode")
        if _is_model(entry) and (mode == "Pipe" or (mode == "FastFile" and _has_algorithm(draft, entry))):
            yield (
                entry.path("input_mode"),
                f"is {mode}, but the model for incremental training needs File mode; write File",
            )


def model_by_fast_file(draft: Draft) -> Iterator[Mistake]:
    """A channel `model` by FastFile is right for a script that mounts a model, but wrong for incremental training.

    Source: as for channel-model-by-file.
    """
    for entry in draft.entries:
        if _is_model(entry) and entry.get("InputMode") == "FastFile" and not _has_algorithm(draft, entry):
            yield (
                entry.path("input_mode"),
                "is FastFile, but incremental training needs File mode; write File if you continue a model",
            )


def _is_model(entry: Entry) -> bool:
    return entry.name == "model" or entry.content_type == "application/x-sagemaker-model"


def _has_algorithm(draft: Draft, entry: Entry) -> bool:
    """Return whether one of AWS's algorithms reads the model, not the user's script."""
    return draft.built_in is not None or entry.content_type == "application/x-sagemaker-model"


def _not_piped(draft: Draft) -> list[Entry]:
    return [entry for entry in draft.entries if entry.get("InputMode") not in ("Pipe", None)]


def _train(keys: str, uri: str = "s3://bucket/train/") -> str:
    return f"channels: {{train: {{s3_uri: {uri}, {keys}}}}}"


_AUGMENTED_ONLY = "s3_data_type: AugmentedManifestFile"
_AUGMENTED = f"{_AUGMENTED_ONLY}, record_wrapper_type: RecordIO"
_MANIFEST = "s3://bucket/train.manifest"
_TWO = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 10}\n"

RULES = (
    Rule(
        "channel-gzip-needs-pipe",
        "error",
        gzip_needs_pipe,
        wrong=_train("compression_type: Gzip, input_mode: FastFile"),
        right=_train("compression_type: Gzip, input_mode: Pipe"),
    ),
    Rule(
        "channel-recordio-needs-pipe",
        "error",
        recordio_needs_pipe,
        wrong=_train("record_wrapper_type: RecordIO"),
        right=_train("record_wrapper_type: RecordIO, input_mode: Pipe"),
    ),
    Rule(
        "channel-augmented-manifest-needs-pipe",
        "error",
        augmented_manifest_needs_pipe,
        wrong=_train("attribute_names: [a-ref], s3_data_type: AugmentedManifestFile", _MANIFEST),
        right=_train(f"attribute_names: [a-ref], input_mode: Pipe, {_AUGMENTED}", _MANIFEST),
    ),
    Rule(
        "channel-augmented-manifest-records",
        "warning",
        attributes_need_boundaries,
        wrong=_train(f"attribute_names: [a-ref, b], input_mode: Pipe, {_AUGMENTED_ONLY}", _MANIFEST),
        right=_train(f"attribute_names: [a-ref, b], input_mode: Pipe, {_AUGMENTED}", _MANIFEST),
    ),
    Rule(
        "channel-pipe-order",
        "warning",
        pipe_order_across_hosts,
        wrong=_TWO + _train("input_mode: Pipe"),
        right=_TWO + _train("input_mode: Pipe, s3_data_distribution_type: ShardedByS3Key"),
    ),
    Rule(
        "shuffle-needs-pipe",
        "warning",
        shuffling_needs_an_order,
        wrong=_train("shuffle_config: {seed: 1}"),
        right=_train("shuffle_config: {seed: 1}, input_mode: Pipe"),
    ),
    Rule(
        "channel-model-by-file",
        "error",
        model_comes_as_files,
        wrong="channels: {model: {s3_uri: s3://bucket/model.tar.gz, input_mode: Pipe}}",
        right="channels: {model: {s3_uri: s3://bucket/model.tar.gz, input_mode: File}}",
    ),
    Rule(
        "channel-model-by-fast-file",
        "warning",
        model_by_fast_file,
        wrong="channels: {model: {s3_uri: s3://bucket/model/, input_mode: FastFile}}",
        right="channels: {weights: {s3_uri: s3://bucket/model/, input_mode: FastFile}}",
    ),
)
