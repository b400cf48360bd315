"""Channels read straight from S3, by the client of Amazon's S3 Connector for PyTorch (s3torchconnector), many requests at a time.

The connector's own datasets open one object after the other, and its readers keep a whole object in memory: 44 objects a second at
20 ms latency, where its client reads thousands. So only its client is used here. Threads prefetch objects (prefetch.py), small
ones whole and big ones in ranges; the prefix is listed once per host (listing.py). A channel's `style` makes no difference here.

Works with AWS and with compatible stores such as MinIO: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
AWS_DEFAULT_REGION, and credentials by the usual chain.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from functools import cache, partial
from hashlib import md5

from sagemaker_channels import contract
from sagemaker_channels.errors import ChannelError, in_channel
from sagemaker_channels.job.environment import Channel
from sagemaker_channels.sample import ByteStream
from sagemaker_channels.sources import connector_client, s3_client, s3_pages
from sagemaker_channels.sources.connector_client import Place, place
from sagemaker_channels.sources.items import evenly_spaced
from sagemaker_channels.sources.listing import FAR, Listed, Listing, Page, page_of, shared_listing, version_of
from sagemaker_channels.sources.prefetch import read_ahead
from sagemaker_channels.sources.s3_owners import check_owner
from sagemaker_channels.sources.s3_pages import UnsuitableError
from sagemaker_channels.sources.stream import Limits

# Requests are within one part of the client's, 8 MiB, so that each arrives in one piece, without a copy. A byte in flight takes
# some four bytes of memory, in the client and in malloc's arenas: so ranges are small and many, but an object of a usual image's
# size stays one request.
RANGE_BYTES = 2 << 20
WHOLE_BYTES = 4 << 20
# The prefetched bytes for each process and channel: twelve ranges. They take 100 to 150 MB of memory in all. If the
# store is 12 ms away or more, it holds up to twice as many: 1.3 times the speed at 20 ms, and 40 MB more.
HELD_BYTES, FAR_BYTES = 24 << 20, 48 << 20
_LIMITS = Limits(held_bytes=HELD_BYTES, far_bytes=FAR_BYTES, piece_bytes=RANGE_BYTES, whole_bytes=WHOLE_BYTES)

# A process compares so many whole objects of a bucket with their listing, and then one in so many, and all of RANGE_BYTES and more.
_COMPARED = 16
_counting = threading.Lock()  # guards the counts of fetched bytes
numbers = defaultdict[str, Iterator[int]](itertools.count)  # of the whole objects that this process reads, by bucket


class S3Object:
    """One object of a listing (Fetchable)."""

    __slots__ = ("_bucket", "_fetched", "_listed", "_where", "key", "size")
    ranges = True

    def __init__(self, bucket: str, where: Place, key: str, listed: Listed) -> None:
        self.key = key  # of its samples
        self.size: int = listed.size
        self._bucket, self._where, self._listed = bucket, where, listed
        self._fetched = 0  # bytes since it was last compared with the listing

    def fetch(self, start: int, count: int) -> bytes:
        """Return bytes. Raises ChannelError if S3 does not send the object that was listed."""
        if count == 0:
            return b""  # The client asks twice for an empty object, and crashes if there is no connection then.
        key = self._listed.key
        whole = start == 0 and count == self.size
        first, last = (None, None) if whole else (start, start + count)
        data = s3_client.fetch(self._bucket, key, first, last, self._where)
        if len(data) != count:
            raise self._changed(f"{len(data)} bytes from {start}, not {count}")
        if self._is_compared(data):
            size, etag = s3_client.head(self._bucket, key, self._where)
            if size != self.size:
                raise self._changed(f"{size} bytes, not {self.size}")
            if self._listed.version not in (0, version_of(etag)):
                raise self._changed(f"its ETag is {etag} now")
        return data

    def length(self) -> int:
        return self.size

    def _is_compared(self, data: bytes) -> bool:
        """Return whether to see by its ETag that an object is the listed one, once a whole object's worth of bytes was fetched.

        A request for each object would double the cost of small ones, and a rewritten data set has more than one changed object.
        If all are to be compared, the ETag is requested only of those whose content it is no MD5 of.
        """
        with _counting:
            self._fetched += len(data)
            if self._fetched < self.size:
                return False
            self._fetched = 0
            number = next(numbers[self._bucket])
        if os.environ.get(contract.COMPARE_VARIABLE) == "all":
            is_whole = len(data) == self.size
            return not is_whole or self._listed.version != version_of(md5(data, usedforsecurity=False).hexdigest())
        return number < _COMPARED or number % _COMPARED == 0 or self.size >= RANGE_BYTES

    def _changed(self, how: str) -> ChannelError:
        return ChannelError(
            f"s3://{self._bucket}/{self._listed.key} changed after it was listed: {how}",
            remedy="do not change a job's objects while it runs",
        )


def open_objects(channel: Channel, chosen: Iterable[Listed]) -> Generator[tuple[str | None, ByteStream], None, None]:
    """Yield the streams of these objects of the channel's listing, in this order, with prefetching."""
    bucket, _ = _bucket_and_prefix(channel)
    where = _place(channel)
    sources = (S3Object(bucket, where, key_of(channel, item), item) for item in chosen)
    with closing(read_ahead(sources, _LIMITS, f"channel {channel.name!r}: {channel.s3_uri}")) as streams:
        for stream in streams:
            yield stream.key, stream


def open_object(bucket: str, key: str) -> Generator[ByteStream, None, None]:
    """Yield the seekable stream of an object of the job; closing the generator ends its reading. Raises ChannelError."""
    check_owner(bucket, is_own=True)
    size, etag = s3_client.head_in_thread(bucket, key)
    source = S3Object(bucket, place(os.environ), key, Listed(key, size, version_of(etag)))
    with closing(read_ahead(iter([source]), _LIMITS, f"s3://{bucket}/{key}")) as streams:
        yield from streams


def objects(channel: Channel, epoch: int = 0) -> Listing:
    """Return the objects under the channel's prefix, without folder markers; with `max_objects` that many, evenly spaced.

    Raises ChannelError, also if there is no object.
    """
    connector_client.require()
    identity = [*_place(channel), channel.s3_uri, str(channel.max_objects), str(channel.named)]
    above = [os.fsencode(each) for each in _folders(str(channel.s3_uri))]
    name = f"channel {channel.name!r}: {channel.s3_uri}"
    return shared_listing(identity, name, partial(_pages, channel), above, channel.named)


def _pages(channel: Channel) -> Iterator[Page]:
    """Yield pages with all objects, or with `max_objects` of them. Raises ChannelError."""
    found = _all_pages(channel)
    if channel.max_objects is not None:
        every = sorted(each for page in found for each in zip(*page, strict=True))
        found = iter([page_of(evenly_spaced(every, channel.max_objects))])
    is_empty = True
    for page in found:
        is_empty = is_empty and not page.keys
        yield page
    if is_empty:
        raise ChannelError(f"no object under {channel.s3_uri}", channel=channel.name, remedy="correct the S3 URI")


def _all_pages(channel: Channel) -> Iterator[Page]:
    """Yield pages one after the other; of a long listing all that follow many at a time, if the store can do that."""
    bucket, prefix = _bucket_and_prefix(channel)
    count, is_suitable = 0, True
    try:
        for infos, token in s3_client.pages(bucket, prefix, _place(channel)):
            objects = [(os.fsencode(info.key), info.size, version_of(info.etag)) for info in infos]
            yield page_of([each for each in objects if not each[0].endswith(b"/")])
            count += len(objects)
            if objects and count >= FAR and token is not None and is_suitable:
                try:
                    yield from s3_pages.rest(bucket, prefix, _place(channel), objects[-1][0])
                except UnsuitableError:
                    is_suitable = False
                else:
                    return
    except ChannelError as error:
        raise in_channel(error, channel.name) from error


def _place(channel: Channel) -> Place:
    return place(os.environ, channel.endpoint, channel.region)


def _bucket_and_prefix(channel: Channel) -> tuple[str, str]:
    scheme, _, rest = str(channel.s3_uri).partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        what = f"{channel.s3_uri!r} is not an S3 URI"
        raise ChannelError(what, channel=channel.name, remedy="write s3://bucket/prefix/")
    return bucket, prefix


def pin_of(channel: Channel, listed: Listed) -> tuple[int, int]:
    """Return size and a number of the object's ETag."""
    return listed.size, listed.version


def key_of(channel: Channel, listed: Listed) -> str:
    """Return the key as File mode names the file: without the prefix, or without its folders if the prefix is not a folder."""
    above = next((each for each in _folders(str(channel.s3_uri)) if listed.key.startswith(each)), "")
    return listed.key[len(above) :]


@cache
def _folders(uri: str) -> tuple[str, ...]:
    """Return what may precede an object's path in the folder of a channel; the first with which its key begins does."""
    prefix = uri.removeprefix("s3://").partition("/")[2]
    is_folder = not prefix or prefix.endswith("/")
    return (prefix,) if is_folder else (f"{prefix}/", prefix[: prefix.rfind("/") + 1])
