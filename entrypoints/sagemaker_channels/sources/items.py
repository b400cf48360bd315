"""The objects of a channel as sequences that are read as they are needed."""

from __future__ import annotations

import os
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload
from zlib import crc32

T = TypeVar("T")

_AT_ONCE = 1 << 16  # keys of a digest


def evenly_spaced(items: Sequence[T], count: int | None) -> Sequence[T]:
    """Return `count` of the items, evenly spaced from the first on; all if there are not more, or `count` is None."""
    if count is None or count >= len(items):
        return items
    return [items[number * len(items) // count] for number in range(count)]


class Items(Sequence[T]):
    """The objects of a channel, with slices and negative indices; a subclass has the length and the items from 0 on."""

    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[T]: ...
    def __getitem__(self, index: int | slice, /) -> T | list[T]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._item(index + len(self) if index < 0 else index)

    @abstractmethod
    def _item(self, index: int) -> T:
        """Return an item. Raises IndexError."""

    @abstractmethod
    def digest(self, count: int) -> int:
        """Return the CRC-32 of the first `count` keys, each with a NUL after it. Raises IndexError if there are fewer.

        The keys are as in the channel's folder, so that they are the same in every input mode.
        """


class KeyedItems(Items[T]):
    """Items whose keys are in one block of memory, each with a NUL after it: a tenth of a list's memory, not copied by a fork."""

    _text: bytearray | memoryview
    _ends: Sequence[int]  # of the keys, with a 0 in front
    _above = b""  # with which the keys begin that are in the channel's folder

    def __init__(self) -> None:
        self._digested = (0, 0)  # the last `digest`: the count and the sum

    def _key(self, index: int) -> str:
        return os.fsdecode(bytes(self._text[self._ends[index] : self._ends[index + 1] - 1]))

    def digest(self, count: int) -> int:
        if count:
            self[count - 1]
        before, known = self._digested if self._digested[0] <= count else (0, 0)
        for start in range(before, count, _AT_ONCE):
            text: Any = self._text[self._ends[start] : self._ends[min(start + _AT_ONCE, count)]]
            if self._above:
                text = b"".join((b"\0", text)).replace(b"\0" + self._above, b"\0")[1:]
            known = crc32(text, known)
        self._digested = (count, known)
        return known


class Keys(KeyedItems[str]):
    """Strings that are read as they are needed, and kept."""

    _text: bytearray
    _ends: array[int]

    def __init__(self, keys: Iterable[str], check: Callable[..., None] | None = None) -> None:
        """Create them; `check` is an Agreement's, to compare them with those of other hosts."""
        super().__init__()
        self._source: Iterator[str] | None = iter(keys)
        # Raised again each time: a generator ends with its error, so that a part would look like the whole.
        self._error: BaseException | None = None
        self._check = check
        self._text, self._ends = bytearray(), array("Q", [0])

    def __getstate__(self) -> dict[str, Any]:
        len(self)  # Its end is reached, so that it no longer has the source.
        return self.__dict__

    def __len__(self) -> int:
        while self._grow():
            pass
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        number = 0
        while number < len(self._ends) - 1 or self._grow():
            yield self._item(number)
            number += 1

    def _item(self, index: int) -> str:
        while index >= len(self._ends) - 1 and self._grow():
            pass
        if not 0 <= index < len(self._ends) - 1:
            raise IndexError(index)
        return self._key(index)

    def _grow(self) -> bool:
        if self._error is not None:
            raise self._error
        try:
            key = None if self._source is None else next(self._source, None)
        except BaseException as error:
            self._error = error
            raise
        if key is None:
            self._source = None
        else:
            self._text += os.fsencode(key) + b"\0"
            self._ends.append(len(self._text))
        if self._check is not None:
            self._check(self, len(self._ends) - 1, is_complete=key is None)
        return key is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]
