"""What is left of an epoch after any number of deals. Pure functions of JSON's values.

An epoch's items are the numbers of its objects, in a Pipe those of its samples. They are dealt to readers like cards: reader r of n
has every n-th item from the r-th on. A job that continues with another number of readers deals again what they have left. So the
history of an epoch is a list of deals, and a deal is a list of one position per reader: None if nothing is left, else a dict

    at      the place of the next sample; with blocks, where the present one begins
    block   the number of the present block
    given   how many of its samples were yielded, and then also
    size    how many it has, and
    end     the place where it ends
    part    how many of the samples were yielded that a transform makes of the next one

A place is [item, inner]: the number of the reader's item, and how far it was read: 0 if it was not begun, else [position, pin] in
an object (formats/cursor.py, Reader.pin_of), or the position of an earlier reader whose rest the item is.

What a reader has begun and not ended is its rest. Nothing of it is computed: the rest of reader r of deal d is what that reader
would have read next, up to the end of what it had begun. Rests are the first items of the next deal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, cycle
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
Place: TypeAlias = list[Any]
Position: TypeAlias = "dict[str, Any] | None"
Deal: TypeAlias = Sequence[Position]
FRESH: dict[str, Any] = {"at": [0, 0]}


class Rest(NamedTuple):
    """What a reader of a deal had begun and not ended."""

    deal: int
    reader: int


def reach(position: Position) -> int | None:
    """Return how many of its items a reader has begun; None if all."""
    if position is None:
        return None
    item, inner = position.get("end") or position["at"]
    return int(item) + bool(inner)


def is_begun(position: Position) -> bool:
    return position is not None and bool(position["at"][1] or "end" in position)


def place_of(position: Position) -> str:
    """Return, in words, where the next sample begins."""
    if position is None:
        return "the end of the data"
    if "sources" in position:
        return f"sample {position['drawn']} of the mixture"
    if "block" in position or "given" in position:
        given, block = position.get("given", 0), position.get("block", 0)
        return f"sample {given} of block {block} of the shuffled samples; without a seed, this names its position"
    item, inner = position["at"]
    return f"position {inner[0] if isinstance(inner, list) else 0} of object {item}"


def without(left: Iterable[T], reaches: Sequence[int | None], more: Iterable[int] = ()) -> Iterator[T]:
    """Yield what is left after a deal in which each reader has taken so many first items, or all of them, and `more` were taken."""
    count, more = len(reaches), list(more)
    if reaches.count(None) == count:
        return iter(())
    top = max([0, *(each for each in reaches if each is not None), *(number // count + 1 for number in more)])
    mask = bytearray(b"\1") * (top * count)
    for reader, taken in enumerate(reaches):
        taken = top if taken is None else taken
        mask[reader : taken * count : count] = bytes(taken)
    for number in more:
        mask[number] = 0
    return compress(left, chain(mask, cycle([each is not None for each in reaches])))


def items(numbers: Iterable[int], history: Sequence[Deal]) -> Iterator[int | Rest]:
    """Yield what is left of the numbers of an epoch: the rests first."""
    left: Iterable[Any] = numbers
    for number, deal in enumerate(history):
        rests = [Rest(number, reader) for reader, position in enumerate(deal) if is_begun(position)]
        left = chain(rests, without(left, [*map(reach, deal)]))
    return iter(left)
