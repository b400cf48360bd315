"""Rules on all channels: their number, names, sources and hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.request.view import Draft
from launcher.rules.rule import Mistake, error, repeated, warning
from sagemaker_channels import contract

MAX_CHANNELS = 20


@error("channels-at-most-20")
def at_most_20(draft: Draft) -> Iterator[Mistake]:
    """The service allows 20 channels; those of source S3Connector are not sent to it, so they do not count."""
    count = len(draft.get("InputDataConfig") or ())
    if count > MAX_CHANNELS:
        yield (
            draft.entries[MAX_CHANNELS].whole,
            f"is channel {MAX_CHANNELS + 1} of {count}, but AWS allows {MAX_CHANNELS}; join channels, or read some by"
            " source: S3Connector, which does not count",
        )


@error("channel-names-differ")
def names_differ(draft: Draft) -> Iterator[Mistake]:
    """Each channel becomes one directory, so no two may have the same name."""
    for path, name in repeated((entry.path("ChannelName"), entry.name) for entry in draft.entries if entry.name):
        yield path, f"{name!r} is the name of an earlier channel, too; rename one"


@error("channel-one-source")
def one_source(draft: Draft) -> Iterator[Mistake]:
    """A channel has exactly one source: S3, a file system, or a dataset."""
    for entry in draft.entries:
        sources = entry.get("DataSource")
        if sources is not None and not sources:
            yield entry.whole, "has no source; write s3_uri, or file_system_id, or dataset_arn"
        elif sources is not None and len(sources) > 1:
            yield entry.path("DataSource"), f"has {' and '.join(sources)}, but a channel has one source; keep one"


@error("channel-name-is-path")
def names_are_no_paths(draft: Draft) -> Iterator[Mistake]:
    """A channel's name is that of its directory, so it cannot be `.` or `..`, which the pattern allows."""
    for name in {*draft.spec.all_channels, *(entry.name for entry in draft.entries)}.intersection((".", "..")):
        yield ("channels", name), "cannot be the name of a channel's directory; rename it"


@warning("channel-names-collide")
def names_do_not_collide(draft: Draft) -> Iterator[Mistake]:
    """Names that differ by case share the variable SM_CHANNEL_<NAME>; Pipe channel `x` in epoch 0 is the file `x_0`."""
    by_upper: dict[str, str] = {}
    pipes = {entry.name for entry in draft.entries if entry.mode == "Pipe"}
    for name in draft.spec.all_channels:
        if (other := by_upper.setdefault(name.upper(), name)) != name:
            yield ("channels", name), f"shares the variable SM_CHANNEL_{name.upper()} with channel {other}; rename one"
        epoch = re.fullmatch(r"(.+)_[0-9]+", name)
        if epoch and epoch[1] in pipes:
            yield ("channels", name), f"is also the name of a FIFO of Pipe channel {epoch[1]}; rename one"


@warning("channel-name-in-shell")
def names_readable_from_a_shell(draft: Draft) -> Iterator[Mistake]:
    """A channel `a-b` gives SM_CHANNEL_A-B, which no shell can read."""
    for name in draft.spec.all_channels:
        if re.search(r"[-.]", name) and draft.spec.code and str(draft.spec.code.entry_point).endswith(".sh"):
            better = re.sub(r"[-.]", "_", name)
            message = f"gives SM_CHANNEL_{name.upper()}, which a shell cannot read; rename it {better}"
            yield ("channels", name), message


@warning("channel-sharded-over-one")
def sharding_needs_hosts(draft: Draft) -> Iterator[Mistake]:
    """ShardedByS3Key gives each host a shard of the objects; a single host gets all of them."""
    for entry in draft.entries:
        if entry.is_sharded and draft.host_count(entry) == 1 and draft.built_in != "randomcutforest":
            message = "'ShardedByS3Key' has no effect on the spec's one instance; delete it"
            yield entry.path("S3DataDistributionType"), message


@error("channel-instance-groups")
def all_or_no_instance_groups(draft: Draft) -> Iterator[Mistake]:
    """If one channel names instance groups, all must; and each name is a group of the job."""
    groups = {name for _, name in draft.each("ResourceConfig.InstanceGroups.InstanceGroupName")}
    some = any(entry.get("InstanceGroupNames") for entry in draft.entries)
    for entry in draft.entries:
        names = entry.get("InstanceGroupNames")
        if some and not names and not entry.is_file_system:
            yield entry.whole, "names no instance groups, but other channels do; add instance_group_names"
        for name in names or ():
            if name not in groups:
                yield entry.path("InstanceGroupNames"), f"{name!r} is not in resource_config.instance_groups; add it"


@error("connector-s3-uri")
def connector_reads_a_place(draft: Draft) -> Iterator[Mistake]:
    """The connector gets its URI unchanged, in an environment variable, so it must be a whole S3 URI."""
    for name, channel in draft.spec.all_channels.items():
        variables = channel.connector(name)
        if variables is not None and not re.match(r"s3://[^/]+", variables.get(contract.CONNECTOR_S3_URI, "")):
            yield ("channels", name, "s3_uri"), "is not an S3 URI; write one such as s3://bucket/prefix/"
