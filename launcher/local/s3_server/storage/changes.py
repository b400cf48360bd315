"""What was written to and deleted from the embedded S3, so far as files cannot show it.

Kept in memory, and as one JSON line per change in a journal, so that the next server on the same overlay knows it too.
An object's headers and ETag belong to one file, told by its stamp: a file that somebody has changed by hand since is an
object without them, never one with a wrong ETag.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Stamp = tuple[int, int, int]  # inode, size in bytes, modification time in ns


def stamp(state: os.stat_result) -> Stamp:
    """Tells a file from any other, and from itself once it is changed."""
    return state.st_ino, state.st_size, state.st_mtime_ns


@dataclass(frozen=True)
class Put:
    """What a client said of an object when it put it, and the file it is in."""

    stamp: Stamp
    etag: str  # without quotes
    headers: Mapping[str, str]  # Content-Type, x-amz-meta-...


@dataclass
class Changes:
    """One bucket's."""

    puts: dict[str, tuple[Put, ...]] = field(default_factory=dict)  # the newest, and the one that it replaced
    odd: set[str] = field(default_factory=set)  # keys whose object lies beside the tree, not in it
    deleted: set[str] = field(default_factory=set)  # keys whose object in the data folder is not to be seen

    def put_of(self, key: str, state: os.stat_result) -> Put | None:
        """What was said when exactly this file was put."""
        return next((put for put in self.puts.get(key, ()) if put.stamp == stamp(state)), None)


_NONE = Changes()


class Journal:
    """Every bucket's changes. The caller sees to it that only one thread writes; any may read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buckets: dict[str, Changes] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").split("\n"):
                self._replay(line)

    def of(self, bucket: str) -> Changes:
        """The bucket's changes, to read."""
        return self._buckets.get(bucket, _NONE)

    def announce(self, bucket: str, key: str, put: Put) -> None:
        """Before the new file takes its place: whichever of the two a reader has opened, it finds that one's ETag."""
        changes = self._buckets.setdefault(bucket, Changes())
        changes.puts[key] = (put, *changes.puts.get(key, ())[:1])

    def settle(self, bucket: str, key: str, put: Put, *, odd: bool) -> None:
        """The new file is in its place."""
        changes = self._buckets.setdefault(bucket, Changes())
        (changes.odd.add if odd else changes.odd.discard)(key)
        self._write({"bucket": bucket, "key": key, "put": [put.stamp, put.etag, dict(put.headers)], "odd": odd})

    def delete(self, bucket: str, key: str, *, hide: bool) -> None:
        """The object is about to go; with `hide`, so is the data folder's, for good."""
        self._apply_delete(bucket, key, hide)
        self._write({"bucket": bucket, "key": key, "hide": hide})

    def _apply_delete(self, bucket: str, key: str, hide: bool) -> None:
        changes = self._buckets.setdefault(bucket, Changes())
        if hide:
            changes.deleted.add(key)
        changes.puts.pop(key, None)
        changes.odd.discard(key)

    def _write(self, change: Mapping[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as journal:
            journal.write("\n" + json.dumps(change))  # the break first: a line cut off by a kill spoils no other

    def _replay(self, line: str) -> None:
        try:
            change = json.loads(line)
        except (
            json.JSONDecodeError
        ):  # the first line, empty, or one that was cut off: that change was never answered for
            return
        bucket, key = change["bucket"], change["key"]
        if "hide" in change:
            self._apply_delete(bucket, key, change["hide"])
            return
        place, etag, headers = change["put"]
        self.announce(bucket, key, Put(tuple(place), etag, headers))
        odd = self._buckets[bucket].odd
        (odd.add if change["odd"] else odd.discard)(key)
