"""`tf.train.Example`, decoded and encoded without TensorFlow, and the format of TFRecord files that hold them.

An Example is a map of names to features, each a list of bytes, of float32 or of int64. Here one is a dict:

    floats, ints      an array of one dimension, float32 or int64
    bytes             bytes if there is one value, else a list of bytes
    no kind           None

Lists of numbers are read packed or not; an empty Example is an empty dict. The format `tfrecord-example` yields Examples as
samples; `decode` is also for the transform of a channel whose samples hold an Example in a field.

Source: TensorFlow's `core/example/example.proto` and `feature.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sagemaker_channels.formats import tfrecord
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.protobuf import (
    FIRST,
    FIXED32,
    SECOND,
    VARINT,
    content,
    encode,
    encode_varints,
    entry,
    fields,
    joined,
    numbers,
)
from sagemaker_channels.formats.writing import with_arrays, write_each
from sagemaker_channels.sample import KEY

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Feature = bytes | list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64] | None

_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 0x0A, 0x12, 0x1A  # tags
_PACKED = {_FLOAT_LIST: "<f4", _INT64_LIST: "<i8"}


def decode(payload: bytes) -> dict[str, Feature]:
    """Return the features of an Example; see the module. Raises ValueError if it is not an Example."""
    found = _decode_plain(payload)
    if found is not None:
        return found
    found = {}
    for tag, start, stop in fields(payload, 0, len(payload)):
        if tag == FIRST:  # features
            for inner, place, end in fields(payload, start, stop):
                if inner == FIRST:
                    name, kind, regions = entry(payload, place, end)
                    found[name] = _feature(payload, kind, regions)
        elif tag == SECOND:
            raise ValueError(
                "it is a SequenceExample, whose lists of features would be left out; format tfrecord yields its bytes"
            )
    return found


def _decode_plain(data: bytes) -> dict[str, Feature] | None:
    """Do the same in a third of the time for an Example as nearly all writers write it; None for any other.

    That is: key before value, one list in a feature, its numbers packed or its bytes a single value.
    """
    found: dict[str, Feature] = {}
    try:
        place, end = content(data, 0, FIRST)
        while place < end:
            key, stop = content(data, place, FIRST)
            start, place = content(data, key, FIRST)
            name = data[start:place].decode()
            feature, feature_end = content(data, place, SECOND)
            kind = data[feature]
            values, values_end = content(data, feature, kind)
            start, place = content(data, values, FIRST)
            if not place == values_end == feature_end == stop:
                return None
            if kind == _BYTES_LIST:
                found[name] = data[start:stop]
            else:
                found[name] = numbers(data[start:stop], _PACKED[kind])
    except (IndexError, KeyError, ValueError):
        return None  # the caller's slower way finds what is wrong, if anything is
    return found if place == end == len(data) else None


def _feature(data: bytes, kind: int, regions: list[tuple[int, int, int]]) -> Feature:
    if kind == _FLOAT_LIST:
        return numbers(joined(data, regions, FIXED32), "<f4")
    if kind == _INT64_LIST:
        return numbers(joined(data, regions, VARINT), "<i8")
    if kind == 0:
        return None
    if kind != _BYTES_LIST or any(tag != FIRST for tag, _, _ in regions):
        raise ValueError("a feature is not a list of bytes, floats or integers")
    values = [data[start:stop] for _, start, stop in regions]
    return values[0] if len(values) == 1 else values


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Encode bytes or str, numbers, arrays of one dimension, or lists of these; None is a feature without a kind.

    Floats of every width become float32, integers and booleans int64, an empty list one of bytes. A `__key__` is left out. Raises
    ValueError, which names the feature, for a value that an Example cannot hold.
    """
    entries = []
    for name, value in features.items():
        if name != KEY:
            try:
                entries.append(encode(1, encode(1, name.encode()) + encode(2, _encode_feature(value))))
            except ValueError as error:
                raise ValueError(f"feature {name!r}: {error}") from error
    return encode(1, b"".join(entries))


def _encode_feature(value: Any) -> bytes:
    import numpy as np

    if value is None:
        return b""
    values = [value] if isinstance(value, (bytes, str)) else value
    if isinstance(values, (list, tuple)) and all(isinstance(item, (bytes, str)) for item in values):
        texts = (item.encode() if isinstance(item, str) else item for item in values)
        return encode(1, b"".join(encode(1, item) for item in texts))
    array = np.asarray(values)
    if array.ndim > 1:
        raise ValueError(f"an Example holds lists, got shape {array.shape}; flatten it, and add its shape as a feature")
    array = array.reshape(-1)
    if array.dtype.kind == "f":
        return encode(2, encode(1, array.astype("<f4").tobytes()))
    if array.dtype.kind in "biu" and not (array.dtype == np.uint64 and (array >> np.uint64(63)).any()):
        return encode(3, encode(1, encode_varints(array)))
    raise ValueError(f"an Example holds bytes, float32 and int64, got {array.dtype}")


FORMAT = Format(
    name="tfrecord-example",
    sample="the features of a `tf.train.Example` in TFRecord: bytes, or arrays of float32 and int64",
    write=partial(write_each, lambda sample: tfrecord.encode(encode_example(sample))),
    ending=".tfrecord",
    holds="fields",
    fit=partial(with_arrays, "<f4", alone=True),
    framing=tfrecord.FORMAT,
    decode=decode,
    after_damage="the next record; after a damaged length, the next object",
    example=lambda _, data: {"x": data},
)
