"""Memory for batches that is used again: clearing the pages of new memory takes the kernel longer than copying a batch there."""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_KEPT_BYTES = 31 << 20  # the largest block that glibc keeps
_kept: deque[Any] = deque(maxlen=2)  # arrays of freed batches; a loop frees about one batch for each new one


def keep_memory() -> None:
    """Let glibc keep up to 64 MB that one batch frees for the next one, instead of returning it to the kernel.

    glibc derives this limit from the largest block that was ever freed (mallopt(3), M_MMAP_THRESHOLD). The block freed here is
    never written to, so it uses no memory. Other C libraries ignore it.
    """
    bytes(_KEPT_BYTES)


def room(size: int) -> npt.NDArray[np.uint8]:
    """Return an array of so many bytes, in the memory of an earlier one if that is free and too large for glibc to keep."""
    import numpy as np

    if size <= _KEPT_BYTES:
        return np.empty(size, np.uint8)
    memory = None
    with suppress(IndexError):  # Another thread may take the last one.
        while memory is None or len(memory) != size:
            memory = _kept.popleft()
    if memory is None or len(memory) != size:
        memory = np.empty(size, np.uint8)
    array = memory[:]
    weakref.finalize(array, _kept.append, memory).atexit = False  # Views of it, and tensors, keep it alive.
    return array
