"""Rules on how a channel arrives: what goes with File, FastFile and Pipe.

Any mix of modes is fine: a channel's InputMode stands above the job's TrainingInputMode, and ShuffleConfig goes with every
mode in S3 (Channel.InputMode and ShuffleConfig in the service model).
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Found, Rule
from launcher.request.view import Draft, Entry


def gzip_needs_pipe(draft: Draft) -> Iterator[Found]:
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


def recordio_needs_pipe(draft: Draft) -> Iterator[Found]:
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


def augmented_manifest_needs_pipe(draft: Draft) -> Iterator[Found]:
    """What an augmented manifest names can only be streamed.

    One page of the developer guide (model-access-training-data) has file mode take augmented manifests; the service model
    and the page on them have Pipe only, and so has the service.
    Source: S3DataSource.S3DataType in the service model; developer guide, augmented-manifest.
    """
    for entry in _not_piped(draft):
        if entry.get("S3DataType") == "AugmentedManifestFile":
            yield (
                entry.path("s3_data_type"),
                "'AugmentedManifestFile' works only with input_mode Pipe; write input_mode: Pipe",
            )


def attributes_need_boundaries(draft: Draft) -> Iterator[Found]:
    """Only RecordIO tells where one attribute of an augmented manifest ends and the next begins.

    Built-in algorithms have a rule of their own (built-in-augmented-manifest); of a single attribute the data itself can have
    boundaries, as tar shards do.
    Source: developer guide, augmented-manifest-stream ("streamed with the corresponding is-a-cat attribute value as one
    record. This can cause a problem").
    """
    for entry in draft.entries:
        several = entry.get("S3DataType") == "AugmentedManifestFile" and len(entry.get("AttributeNames") or ()) > 1
        if several and draft.built_in is None and entry.get("RecordWrapperType") != "RecordIO":
            yield (
                entry.path("record_wrapper_type"),
                "is not RecordIO, and without it nothing tells where an attribute's value ends; write RecordIO",
            )


def pipe_order_across_hosts(draft: Draft) -> Iterator[Found]:
    """Each host streams all of a FullyReplicated channel; the order is not promised to be the same on each.

    So hosts that each take every n-th record take some twice and some never. Built-in algorithms know how to share.
    Source: S3DataSource.S3DataDistributionType and ShuffleConfig in the service model.
    """
    for entry in draft.entries:
        several = (draft.hosts_of(entry) or 1) > 1 and draft.built_in is None
        if several and entry.get("InputMode") == "Pipe" and not entry.is_sharded:
            yield (
                entry.path("input_mode"),
                "streams all the data to every host, in an order that is not promised to be the same on each; to read"
                " each sample once over all hosts use s3_data_distribution_type: ShardedByS3Key",
            )


def shuffling_needs_an_order(draft: Draft) -> Iterator[Found]:
    """Copied files have no order, so shuffling changes nothing that a script could see; only the shards of hosts differ.

    The service takes ShuffleConfig in every mode. A FastFile channel may be listed in another order, so nothing is said of it.
    Source: ShuffleConfig in the service model ("For Pipe input mode, ... shuffling is done at the start of every epoch").
    """
    for entry in draft.entries:
        copied = entry.get("InputMode") == "File" and not entry.is_file_system and not entry.is_sharded
        if copied and entry.get("ShuffleConfig"):
            yield (
                entry.path("shuffle_config"),
                "does nothing in File mode; use input_mode: Pipe, or shuffle in the script",
            )


def model_comes_as_files(draft: Draft) -> Iterator[Found]:
    """The model that incremental training goes on from comes as files, in File mode.

    The channel is called `model`, or its content type is application/x-sagemaker-model. A script of one's own can mount a
    large model by FastFile under this name; that is channel-model-by-fast-file, a warning.
    Source: Channel.InputMode in the service model ("To use a model for incremental training, choose File"); developer guide,
    incremental-training.
    """
    for entry in draft.entries:
        mode = entry.get("InputMode")
        if _is_model(entry) and (mode == "Pipe" or (mode == "FastFile" and _has_algorithm(draft, entry))):
            yield entry.path("input_mode"), f"is {mode}, but a model to go on from comes in File mode; write File"


def model_by_fast_file(draft: Draft) -> Iterator[Found]:
    """A channel `model` by FastFile is right for a script that mounts a model, and wrong for incremental training.

    Source: as of channel-model-by-file.
    """
    for entry in draft.entries:
        if _is_model(entry) and entry.get("InputMode") == "FastFile" and not _has_algorithm(draft, entry):
            yield entry.path("input_mode"), "is FastFile, but incremental training takes its model in File mode only"


def _is_model(entry: Entry) -> bool:
    return entry.name == "model" or entry.content_type == "application/x-sagemaker-model"


def _has_algorithm(draft: Draft, entry: Entry) -> bool:
    """Whether one of AWS's algorithms reads the model, and no script of the user's."""
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
