"""Channels read straight from S3 through Amazon's S3 Connector for PyTorch (s3torchconnector).

The connector's own datasets list the prefix and open the objects, the iterable or the map-style one as the channel's
`style` says; sharding is ours, so that it is the same as everywhere. Its readers keep all of an object in memory; here an
object is streamed, so that a tar shard of any size takes a few parts' worth.

Works against AWS and against MinIO and its like: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
AWS_DEFAULT_REGION, and credentials by the usual chain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from entrypoints.environment import Channel
from entrypoints.errors import ChannelError
from entrypoints.sample import ByteStream
from entrypoints.sharding import Share

JOINED = False

RANGE_BYTES = 32 << 20  # two of them are the most that an object takes of memory; several of the client's 8 MiB parts


class S3Object:
    """One object, fetched from its first read on; what is behind the place of reading is let go.

    The connector's client fetches as fast as it can, into memory, however slowly it is read. So a big object is asked for
    in ranges, and the next range only when the one before it begins to be read.
    """

    def __init__(
        self, bucket: str, key: str, get_object_info: Callable[[], Any], get_stream: Callable[..., Any]
    ) -> None:
        self.bucket = bucket
        self.key = key
        self._get_object_info = get_object_info
        self._get_stream = get_stream
        self._chunks: Iterator[bytes] = self._fetch()
        self._rest = memoryview(b"")  # of the chunk that is being read

    def read(self, size: int = -1, /) -> bytes:
        """As ByteStream's."""
        if size < 0:
            first = bytes(self._rest)
            self._rest = memoryview(b"")
            return b"".join([first, *self._chunks])
        self._advance()
        piece = bytes(self._rest[:size])
        self._rest = self._rest[size:]
        return piece

    def readinto(self, buffer: memoryview, /) -> int:
        """As ByteStream's."""
        self._advance()
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        """Ends the requests that are under way."""
        self._chunks = iter(())
        self._rest = memoryview(b"")

    def _advance(self) -> None:
        if not self._rest:
            # The connector hands over no empty chunks.
            self._rest = memoryview(next(self._chunks, b""))

    def _fetch(self) -> Iterator[bytes]:
        failure = s3_exception()
        try:
            size: int = self._get_object_info().size  # from the listing, where there was one
            if size <= RANGE_BYTES:
                yield from self._get_stream()
                return
            fetched = 0
            ahead = self._get_stream(0, RANGE_BYTES)
            for start in range(RANGE_BYTES, size + RANGE_BYTES, RANGE_BYTES):
                current = ahead
                if start < size:
                    ahead = self._get_stream(start, min(start + RANGE_BYTES, size))
                for chunk in current:
                    fetched += len(chunk)
                    yield chunk
        except failure as error:
            raise ChannelError(f"s3://{self.bucket}/{self.key} cannot be read: {error}") from error
        if fetched != size:
            raise ChannelError(f"s3://{self.bucket}/{self.key} changed while it was read: {fetched} bytes, not {size}")


def open_streams(channel: Channel, epoch: int, share: Share) -> Iterator[tuple[str | None, ByteStream]]:
    """The objects under the channel's prefix, in S3's order of keys; every epoch the same."""
    for item in share.of(objects(channel)):
        yield relative_key(channel, item.key), item


def objects(channel: Channel) -> Iterator[S3Object]:
    """The objects under the channel's prefix, nothing fetched yet; at most `max_objects`; no folder markers.

    Raises ChannelError where there is none or the listing fails.
    """
    dataset = _dataset(channel)
    failure = s3_exception()
    try:
        opened = (dataset[number] for number in range(len(dataset))) if channel.style == "map" else dataset
        found: Iterator[S3Object] = (item for item in opened if not item.key.endswith("/"))
        first = next(found, None)
        if first is None:
            raise ChannelError(f"channel {channel.name!r}: no object under {channel.s3_uri}; correct s3_uri")
        yield from islice(chain([first], found), channel.max_objects)
    except failure as error:
        raise ChannelError(f"channel {channel.name!r}: {channel.s3_uri} cannot be listed: {error}") from error


def map_dataset(uris: Sequence[str]) -> Any:
    """The connector's S3MapDataset of S3Objects, of objects that are known already."""
    require()
    from s3torchconnector import S3MapDataset

    style: Any = S3MapDataset
    return style.from_objects(uris, reader_constructor=S3Object, **connection(os.environ))


def relative_key(channel: Channel, key: str) -> str:
    """A key as File mode would name the file: without the prefix, or from its last slash where that is no folder's."""
    prefix = str(channel.s3_uri).removeprefix("s3://").partition("/")[2]
    rest = key.removeprefix(prefix)
    if not prefix or prefix.endswith("/"):
        return rest
    return rest[1:] if rest.startswith("/") else key[prefix.rfind("/") + 1 :]


def connection(environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments by which the connector's classes reach the store that the environment names.

    Raises ChannelError where nothing names a region: the connector, unlike boto3, looks into no file for it.
    """
    from s3torchconnector import S3ClientConfig

    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None)
    if region is None:
        raise ChannelError("the region of S3 is not known: set AWS_REGION")
    # `bucket.host` resolves at AWS only; elsewhere the bucket is a part of the path.
    config = S3ClientConfig(force_path_style=endpoint is not None)
    return {"region": region, "endpoint": endpoint, "s3client_config": config}


def require() -> None:
    """Raises ImportError, saying what to install, where the connector is missing."""
    try:
        import s3torchconnector  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed, and S3Connector channels and checkpoints in S3 need it: "
            "pip install 'sagemaker-launch[s3]'",
            name=error.name,
        ) from error


def _dataset(channel: Channel) -> Any:
    require()
    from s3torchconnector import S3IterableDataset, S3MapDataset

    style: Any = S3MapDataset if channel.style == "map" else S3IterableDataset
    return style.from_prefix(channel.s3_uri, reader_constructor=S3Object, **connection(os.environ))


def s3_exception() -> type[Exception]:
    """The one exception that the connector raises for whatever goes wrong at S3."""
    from s3torchconnectorclient import S3Exception

    exception: type[Exception] = S3Exception
    return exception
