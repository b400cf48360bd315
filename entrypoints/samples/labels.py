"""A channel of `.lst` files as one table: which image has which class, and whether an epoch has seen each image once.

Lists are small and read in full by every process, before the first image. They arrive as files: File, FastFile, EFS or
FSx. A channel may hold several lists (one per shard, one per person who labels); a path belongs into one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from entrypoints.errors import ChannelError
from entrypoints.job.environment import Environment
from entrypoints.readers import mounted, reader_of
from entrypoints.samples.channel import find_channel
from entrypoints.samples.lst import Line, is_sampled, read_lst

ENDING = ".lst"


@dataclass(frozen=True)
class Labels:
    """The lists of one channel, put together."""

    channel: str
    lines: Mapping[str, Line]  # by path
    numbers: Mapping[str, int]  # path -> the line's place among all, from 0
    size: int  # bytes of all lists

    @property
    def classes(self) -> int:
        """One more than the highest class that stands in a line."""
        return 1 + max((class_of(line) for line in self.lines.values()), default=-1)


def read_labels(environment: Environment, name: str) -> Labels:
    """The lines of every `.lst` file of a channel, each with one class.

    Raises ChannelError where the channel has no list or cannot be read as files; naming file and path, where a line's
    label is no class or a path stands twice.
    """
    channel = find_channel(environment, name)
    if reader_of(channel) is not mounted:
        raise ChannelError(
            f"channel {name!r} arrives by {channel.mode}, but lists are read as files; use input_mode: File, EFS or FSx"
        )
    files = [path for path in mounted.objects(channel) if path.endswith(ENDING)]
    if not files:
        raise ChannelError(f"channel {name!r}: no {ENDING} file in {channel.path}; name the folder that holds the list")
    lines: dict[str, Line] = {}
    for path in files:
        file = channel.path / path
        for line in read_lst(file).values():
            if line.path in lines:
                raise ChannelError(f"{file}: {line.path!r} stands in another list of channel {name!r}; remove one line")
            if len(line.labels) != 1 or line.labels[0] < 0 or not line.labels[0].is_integer():
                shown = ", ".join(f"{label:g}" for label in line.labels)
                raise ChannelError(
                    f"{file}: the label of {line.path!r} is {shown}; a class is one whole number from 0 on"
                )
            lines[line.path] = line
    if not lines:
        raise ChannelError(
            f"channel {name!r}: no line in {', '.join(files)}; write index, class and path of each image"
        )
    size = sum((channel.path / path).stat().st_size for path in files)
    return Labels(name, lines, {path: number for number, path in enumerate(lines)}, size)


def class_of(line: Line) -> int:
    """The class that a line gives its image."""
    return int(line.labels[0])


def check_seen(channel: str, labels: Labels, seen: Iterable[int], *, whole: bool = True) -> None:
    """Compares the numbers of the lines whose images all the job's processes saw in an epoch with the list.

    `whole` is false where the channel holds a part of the list's images only. Raises ChannelError, with one example, where
    a line's image was not seen, or was seen twice.
    """
    times = Counter(seen)
    whole = whole and not is_sampled()
    lost = [path for path, number in labels.numbers.items() if whole and not times[number]]
    again = [path for path, number in labels.numbers.items() if times[number] > 1]
    found = []
    if lost:
        found.append(f"{len(lost)} line(s) have no image, the first of them {min(lost)!r}")
    if again:
        found.append(f"{len(again)} image(s) came more than once, the first of them {min(again)!r}")
    if found:
        raise ChannelError(
            f"channel {channel!r} and its list {labels.channel!r} differ: {'; '.join(found)}; mend the list or the images"
        )
