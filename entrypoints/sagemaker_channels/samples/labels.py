"""The `.lst` files of a channel as one table of images and classes, and a check that an epoch saw each image once.

Lists are small: every process reads them whole, before the first image. They must arrive as files (File, FastFile, EFS, FSx). A
channel may hold several lists, for example one per person who labels; each path may be in only one of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import find_channel
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.readers import mounted, reader_of
from sagemaker_channels.samples.lst import Line, read_lst

ENDING = ".lst"


@dataclass(frozen=True)
class Labels:
    """All lists of one channel."""

    channel: str
    lines: Mapping[str, Line]  # by path
    numbers: Mapping[str, int]  # of each path's line, from 0
    size: int  # bytes of all lists

    @property
    def classes(self) -> int:
        """The number of classes: the highest class in a line, plus one."""
        return 1 + max((class_of(line) for line in self.lines.values()), default=-1)


def read_labels(environment: Environment, name: str) -> Labels:
    """Return the lines of every `.lst` file of a channel; each line must have one class.

    Raises:
        ChannelError: The channel has no list or does not arrive as files, a label is not a whole number from 0 on, or a path
            is listed twice.
    """
    channel = find_channel(environment, name)
    if reader_of(channel) is not mounted:
        raise ChannelError(
            f"channel {name!r} has input_mode {channel.mode}, but lists are read as files; use input_mode: File, EFS or FSx"
        )
    files = [path for path in mounted.objects(channel) if path.endswith(ENDING)]
    if not files:
        raise ChannelError(f"channel {name!r}: no {ENDING} file in {channel.path}; name the folder that holds the list")
    lines: dict[str, Line] = {}
    for path in files:
        file = channel.path / path
        for line in read_lst(file).values():
            if line.path in lines:
                raise ChannelError(
                    f"{file}: {line.path!r} is in another list of channel {name!r}, too; remove one line"
                )
            if len(line.labels) != 1 or line.labels[0] < 0 or not line.labels[0].is_integer():
                shown = ", ".join(f"{label:g}" for label in line.labels)
                raise ChannelError(
                    f"{file}: the label of {line.path!r} is {shown}; expected one whole number from 0 on"
                )
            lines[line.path] = line
    if not lines:
        raise ChannelError(
            f"channel {name!r}: {', '.join(files)} has no lines; write index, class and path of each image"
        )
    size = sum((channel.path / path).stat().st_size for path in files)
    return Labels(name, lines, {path: number for number, path in enumerate(lines)}, size)


def class_of(line: Line) -> int:
    """Return the class of a line's image."""
    return int(line.labels[0])


def check_seen(channel: str, labels: Labels, seen: Iterable[int], *, whole: bool = True) -> None:
    """Check that all processes together saw the image of each line once in an epoch.

    Args:
        channel: The images' channel, for messages.
        labels: The list.
        seen: The numbers of the lines whose images were seen.
        whole: Whether the channel should hold all of the list's images.

    Raises:
        ChannelError: An image was not seen, or seen twice; the message has an example.
    """
    times = Counter(seen)
    # A run on some objects of each channel (`--local --sample`) has lists with more lines.
    whole = whole and contract.SAMPLE_VARIABLE not in os.environ
    lost = [path for path, number in labels.numbers.items() if whole and not times[number]]
    again = [path for path, number in labels.numbers.items() if times[number] > 1]
    found = []
    if lost:
        found.append(f"lines without an image: {len(lost):,}, the first {min(lost)!r}")
    if again:
        found.append(f"images read more than once: {len(again):,}, the first {min(again)!r}")
    if found:
        raise ChannelError(
            f"channel {channel!r} and its list {labels.channel!r} differ: {'; '.join(found)}; correct the list or the images"
        )
