"""Rules on single channels and on channels together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from entrypoints import contract
from launcher.checks.rule import Draft, Entry, Found, Rule

MAX_CHANNELS = 20


def at_most_20(draft: Draft) -> Iterator[Found]:
    """The service takes 20 InputDataConfig entries; channels of source S3Connector are none and do not count."""
    names = [entry.name for entry in draft.entries]
    if len(names) > MAX_CHANNELS:
        yield (
            ("channels", names[MAX_CHANNELS]),
            f"is channel {MAX_CHANNELS + 1} of {len(names)}, but AWS takes {MAX_CHANNELS}; join channels, or read some by"
            " source: S3Connector, which do not count",
        )


def gzip_needs_pipe(draft: Draft) -> Iterator[Found]:
    """The service unzips only what it streams: "File mode only supports NONE, got Gzip instead"."""
    for entry in draft.entries:
        if entry.get("CompressionType") == "Gzip" and entry.get("InputMode") != "Pipe":
            mode = entry.get("InputMode")
            message = f"'Gzip' works only with input_mode Pipe, not {mode}; unzip the objects or use Pipe"
            yield entry.path("compression_type"), message


def recordio_needs_pipe(draft: Draft) -> Iterator[Found]:
    """Objects are wrapped as records only in a stream (Channel.RecordWrapperType in the service model)."""
    for entry in draft.entries:
        if entry.get("RecordWrapperType") == "RecordIO" and entry.get("InputMode") != "Pipe":
            mode = entry.get("InputMode")
            message = f"'RecordIO' works only with input_mode Pipe, not {mode}; delete it or use Pipe"
            yield entry.path("record_wrapper_type"), message


def augmented_manifest_needs_pipe(draft: Draft) -> Iterator[Found]:
    """S3DataSource.S3DataType: an AugmentedManifestFile can only be used in Pipe mode."""
    for entry in _of_type(draft, "AugmentedManifestFile"):
        if entry.get("InputMode") != "Pipe":
            yield (
                entry.path("s3_data_type"),
                "'AugmentedManifestFile' works only with input_mode Pipe; write input_mode: Pipe",
            )


def attribute_names_belong_to_augmented_manifests(draft: Draft) -> Iterator[Found]:
    """AttributeNames pick from the lines of an augmented manifest: it needs at least one, and nothing else takes any."""
    for entry in draft.entries:
        augmented, names = entry.get("S3DataType") == "AugmentedManifestFile", entry.get("AttributeNames")
        if augmented and not names:
            yield entry.path("attribute_names"), "is missing; name the attributes to send, such as [source-ref, class]"
        elif names and not augmented:
            yield entry.path("attribute_names"), "works only with s3_data_type AugmentedManifestFile; delete it"


def fast_file_needs_prefix(draft: Draft) -> Iterator[Found]:
    """Channels that use FastFile must use S3Prefix (developer guide; the model excludes augmented manifests only)."""
    for entry in draft.entries:
        if entry.get("InputMode") == "FastFile" and entry.get("S3DataType") == "ManifestFile":
            message = "'ManifestFile' does not go with input_mode FastFile; use File or Pipe, or a prefix"
            yield entry.path("s3_data_type"), message


def fast_file_wants_a_folder(draft: Draft) -> Iterator[Found]:
    """FastFile sees folders: a URI that is part of a folder's name finds nothing (developer guide, FastFile note)."""
    for entry in draft.entries:
        uri = entry.get("S3Uri")
        if entry.get("InputMode") == "FastFile" and uri and _key(uri) and not uri.endswith("/"):
            yield entry.path("s3_uri"), f"{uri!r} should be a whole folder under FastFile; end it with '/'"


def manifest_is_an_object(draft: Draft) -> Iterator[Found]:
    """A manifest's S3Uri identifies an object (S3DataSource.S3DataType)."""
    for entry in (*_of_type(draft, "ManifestFile"), *_of_type(draft, "AugmentedManifestFile")):
        uri = entry.get("S3Uri")
        if uri and (uri.endswith("/") or not _key(uri)):
            yield entry.path("s3_uri"), f"{uri!r} is a folder, but a manifest is one object; write its whole key"


def whole_bucket(draft: Draft) -> Iterator[Found]:
    """A URI without a key selects every object of the bucket."""
    for entry in draft.entries:
        uri = entry.get("S3Uri")
        if uri and not _key(uri) and entry.get("S3DataType") == "S3Prefix":
            yield entry.path("s3_uri"), f"{uri!r} means the whole bucket; add the folder if that is not meant"


def sharding_needs_hosts(draft: Draft) -> Iterator[Found]:
    """ShardedByS3Key gives each host its share; one host gets everything (S3DataDistributionType)."""
    for entry in draft.entries:
        if entry.get("S3DataDistributionType") == contract.SHARDED and draft.instance_count == 1:
            yield entry.path("s3_data_distribution_type"), "'ShardedByS3Key' shards nothing over one instance"


def names_do_not_collide(draft: Draft) -> Iterator[Found]:
    """Names that differ by case share SM_CHANNEL_<NAME>; Pipe channel `x` in epoch 0 is the file `x_0`."""
    by_upper: dict[str, str] = {}
    pipes = {entry.name for entry in draft.entries if entry.get("InputMode") == "Pipe"}
    for name in draft.spec.all_channels:
        if (other := by_upper.setdefault(name.upper(), name)) != name:
            yield ("channels", name), f"shares the variable SM_CHANNEL_{name.upper()} with channel {other}; rename one"
        epoch = re.fullmatch(r"(.+)_[0-9]+", name)
        if epoch and epoch[1] in pipes:
            yield ("channels", name), f"is also the name of a FIFO of Pipe channel {epoch[1]}; rename one"


def names_readable_from_a_shell(draft: Draft) -> Iterator[Found]:
    """A channel `a-b` gives SM_CHANNEL_A-B, which no shell can read."""
    for name in draft.spec.all_channels:
        if re.search(r"[-.]", name) and draft.spec.code and str(draft.spec.code.entry_point).endswith(".sh"):
            better = re.sub(r"[-.]", "_", name)
            yield (
                ("channels", name),
                f"gives SM_CHANNEL_{name.upper()}, which a shell cannot read; {better} can be read",
            )


def pipe_order_across_hosts(draft: Draft) -> Iterator[Found]:
    """Each host streams all of a FullyReplicated channel; the order is not promised to be the same on each."""
    for entry in draft.entries:
        replicated = entry.get("S3DataDistributionType") in (None, "FullyReplicated")
        if draft.instance_count > 1 and entry.get("InputMode") == "Pipe" and replicated:
            yield (
                entry.path("input_mode"),
                "streams all the data to every host, in an order that is not promised to be the same on each; to read"
                " each sample once over all hosts use s3_data_distribution_type: ShardedByS3Key",
            )


def all_or_no_instance_groups(draft: Draft) -> Iterator[Found]:
    """If one channel names instance groups, all must; and each name is a group of the job."""
    entries = list(draft.entries)
    groups = {group.get("InstanceGroupName") for group in draft.get("ResourceConfig.InstanceGroups") or ()}
    some = any(entry.get("InstanceGroupNames") for entry in entries)
    for entry in entries:
        names = entry.get("InstanceGroupNames")
        if some and not names:
            yield ("channels", entry.name), "names no instance groups, but other channels do; add instance_group_names"
        for name in names or ():
            if name not in groups:
                yield entry.path("instance_group_names"), f"{name!r} is no group of resource_config.instance_groups"


def connector_reads_a_place(draft: Draft) -> Iterator[Found]:
    """What the connector reads is told to the container as it stands, so it must be a whole S3 URI."""
    for name, channel in draft.spec.all_channels.items():
        told = channel.connector(name)
        if told is not None and not re.match(r"s3://[^/]+", told.get(contract.CONNECTOR_S3_URI, "")):
            yield ("channels", name, "s3_uri"), "is no S3 URI; write where the objects lie, such as s3://bucket/prefix/"


def _of_type(draft: Draft, data_type: str) -> list[Entry]:
    return [entry for entry in draft.entries if entry.get("S3DataType") == data_type]


def _key(uri: str) -> str:
    """What follows the bucket in `s3://bucket/key`."""
    return uri.partition("://")[2].partition("/")[2]


def _train(keys: str) -> str:
    return f"channels: {{train: {{s3_uri: s3://bucket/train/, {keys}}}}}"


def _many(count: int) -> str:
    return "channels:\n" + "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(count))


_AUGMENTED = "s3_data_type: AugmentedManifestFile, s3_uri: s3://bucket/train.manifest, record_wrapper_type: RecordIO"
_TWO = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 10}\n"
_GROUPS = (
    "resource_config: {volume_size_in_gb: 10, instance_groups: [{instance_group_name: cpu, instance_type: ml.m5.large,"
    " instance_count: 1}]}\n"
)

RULES = (
    Rule("channels-at-most-20", "error", at_most_20, wrong=_many(21), right=_many(20)),
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
        wrong="channels: {train: {attribute_names: [a-ref], s3_data_type: AugmentedManifestFile, s3_uri: s3://b/m.json}}",
        right=f"channels: {{train: {{attribute_names: [a-ref], input_mode: Pipe, {_AUGMENTED}}}}}",
    ),
    Rule(
        "channel-attribute-names",
        "error",
        attribute_names_belong_to_augmented_manifests,
        wrong=_train("attribute_names: [source-ref]"),
        right=f"channels: {{train: {{attribute_names: [source-ref, class], input_mode: Pipe, {_AUGMENTED}}}}}",
    ),
    Rule(
        "channel-fast-file-needs-prefix",
        "error",
        fast_file_needs_prefix,
        wrong="channels: {train: {s3_uri: s3://b/train.manifest/x, s3_data_type: ManifestFile, input_mode: FastFile}}",
        right="channels: {train: {s3_uri: s3://b/train.manifest, s3_data_type: ManifestFile, input_mode: File}}",
    ),
    Rule(
        "channel-fast-file-folder",
        "warning",
        fast_file_wants_a_folder,
        wrong="channels: {train: {s3_uri: s3://bucket/train, input_mode: FastFile}}",
        right=_train("input_mode: FastFile"),
    ),
    Rule(
        "channel-manifest-is-object",
        "error",
        manifest_is_an_object,
        wrong=_train("s3_data_type: ManifestFile"),
        right="channels: {train: {s3_uri: s3://bucket/train.manifest, s3_data_type: ManifestFile}}",
    ),
    Rule(
        "channel-whole-bucket",
        "warning",
        whole_bucket,
        wrong="channels: {train: s3://bucket}",
        right="channels: {train: s3://bucket/train/}",
    ),
    Rule(
        "channel-sharded-over-one",
        "warning",
        sharding_needs_hosts,
        wrong=_train("s3_data_distribution_type: ShardedByS3Key"),
        right=_TWO + _train("s3_data_distribution_type: ShardedByS3Key"),
    ),
    Rule(
        "channel-names-collide",
        "warning",
        names_do_not_collide,
        wrong="channels: {a: s3://bucket/a/, A: s3://bucket/b/}",
        right="channels: {a: s3://bucket/a/, b: s3://bucket/b/}",
    ),
    Rule(
        "channel-name-in-shell",
        "warning",
        names_readable_from_a_shell,
        wrong="code: {entry_point: train.sh}\nchannels: {a-b: s3://bucket/a/}",
        right="code: {entry_point: train.sh}\nchannels: {a_b: s3://bucket/a/}",
    ),
    Rule(
        "channel-pipe-order",
        "warning",
        pipe_order_across_hosts,
        wrong=_TWO + _train("input_mode: Pipe"),
        right=_TWO + _train("input_mode: Pipe, s3_data_distribution_type: ShardedByS3Key"),
    ),
    Rule(
        "channel-instance-groups",
        "error",
        all_or_no_instance_groups,
        wrong=_GROUPS + "channels: {a: {s3_uri: s3://b/a/, instance_group_names: [cpu]}, b: s3://b/b/}",
        right=_GROUPS + "channels: {a: {s3_uri: s3://b/a/, instance_group_names: [cpu]}}",
    ),
    Rule(
        "connector-s3-uri",
        "error",
        connector_reads_a_place,
        wrong="channels: {train: {source: S3Connector, s3_uri: /data}}",
        right="channels: {train: {source: S3Connector, s3_uri: s3://bucket/data/}}",
    ),
)
