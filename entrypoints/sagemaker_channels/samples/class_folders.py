"""Classes of samples whose objects are in one folder per class, as torchvision's ImageFolder has them: `cat/1.png`, `dog/x/2.png`.

    classes = find_classes("train")                       # {"cat": 0, "dog": 1}
    label = class_index(sample, classes)                  # 0 for the sample with the key cat/1.png

The class is the first folder of the key, relative to the channel's s3_uri or directory_path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import find_channel, known_environment
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import KEY, Sample
from sagemaker_channels.sources import mounted
from sagemaker_channels.sources.readers import reader_of

_NAMED = 'name the classes, if the keys of samples have them, as members of a tar may: classes = {"cat": 0, "dog": 1}'


def find_classes(
    name: str | os.PathLike[str],
    *,
    region: str | None = None,
    endpoint: str | None = None,
    environment: Environment | None = None,
) -> dict[str, int]:
    """Return the number of each class folder of a channel, from 0, in the order of their names: the same on all ranks.

    It lists a channel of the S3 Connector, and only the first level of one that is a folder.

    Args:
        name: The channel's name, an S3 prefix or a folder.
        region: The region of a channel that is an S3 prefix, if not that of the variables (AWS_REGION).
        endpoint: The URL of its store, if not that of the variables (AWS_ENDPOINT_URL) or AWS.
        environment: The job; this container's if not given.

    Raises:
        ChannelError: The channel cannot be listed (a Pipe), each host has other objects of it (ShardedByS3Key), or an object is not
            in a folder.
    """
    environment = known_environment(environment)
    channel = find_channel(environment, name, is_dataset=False, region=region, endpoint=endpoint)
    reader = reader_of(channel)
    if reader is None:
        reason = "a Pipe cannot be listed and sends objects without their names; use another input mode"
        raise ChannelError(f"{reason}, or {_NAMED}", channel=channel.name)
    if channel.distribution == contract.SHARDED and channel.hosts != 1:
        reason = "with ShardedByS3Key each host has other objects, and may lack a class"
        raise ChannelError(reason, channel=channel.name, remedy=f"use FullyReplicated, or {_NAMED}")
    found = set()
    objects = mounted.top_names(channel) if reader is mounted else reader.objects(channel, 0)
    for each in objects:
        key = reader.key_of(channel, each)
        folder, slash, _ = key.partition("/")
        if not slash:
            raise ChannelError(
                f"object {key!r} is not in a class folder",
                channel=channel.name,
                remedy=f"keep it out of the channel, or {_NAMED}",
            )
        found.add(folder)
    return {folder: number for number, folder in enumerate(sorted(found))}


def class_index(sample: Sample, classes: Mapping[str, int]) -> int:
    """Return the number of a sample's class by the first folder of its `__key__`.

    Raises:
        ChannelError: The sample has no key, or the folder is not one of `classes`.
    """
    if KEY not in sample:
        raise ChannelError(
            "a sample without __key__ has no class folder: in a Pipe, SageMaker sends the objects' bytes without their names",
            remedy="use input_mode: FastFile, or tar shards whose members are in class folders",
        )
    key: str = sample[KEY]
    folder, slash, _ = key.removeprefix("./").partition("/")
    if not slash or folder not in classes:
        known = ", ".join(map(repr, sorted(classes)[:5])) + (
            f" and {len(classes) - 5:,} more" if len(classes) > 5 else ""
        )
        raise ChannelError(f"sample {key!r} is not in a folder of one of the classes {known}")
    return classes[folder]
