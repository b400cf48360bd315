"""The changes to the embedded S3 that files cannot show: headers, ETags and deletions.

They are in memory and, one JSON line per change, in a journal for the next server on the same overlay. An object's headers and
ETag belong to one file, identified by its stamp: a file that was changed by hand later has none, never a wrong ETag.
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
    """Return the identity of a file's content: it differs between files, and after a change."""
    return state.st_ino, state.st_size, state.st_mtime_ns


@dataclass(frozen=True)
class Put:
    """The attributes with which a client put an object, and the file it is in."""

    stamp: Stamp
    etag: str  # without quotes
    headers: Mapping[str, str]  # Content-Type, x-amz-meta-...


@dataclass
class Changes:
    """The changes to one bucket."""

    puts: dict[str, tuple[Put, ...]] = field(default_factory=dict)  # the newest, and the one it replaced
    odd: set[str] = field(default_factory=set)  # keys whose object is stored beside the tree, not in it
    deleted: set[str] = field(default_factory=set)  # keys whose object in the data folder is hidden

    def put_of(self, key: str, state: os.stat_result) -> Put | None:
        """Return the attributes with which exactly this file was put."""
        return next((put for put in self.puts.get(key, ()) if put.stamp == stamp(state)), None)


_NONE = Changes()


class Journal:
    """The changes to all buckets. Only one thread at a time may write; any may read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buckets: dict[str, Changes] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").split("\n"):
                self._replay(line)

    def of(self, bucket: str) -> Changes:
        """Return the bucket's changes, for reading."""
        return self._buckets.get(bucket, _NONE)

    def announce(self, bucket: str, key: str, put: Put) -> None:
        """Record a put before the new file replaces the old, so that a reader finds the ETag of whichever it has opened."""
        changes = self._buckets.setdefault(bucket, Changes())
        changes.puts[key] = (put, *changes.puts.get(key, ())[:1])

    def settle(self, bucket: str, key: str, put: Put, *, odd: bool) -> None:
        """Record that the new file is in place."""
        self._apply_odd(bucket, key, odd)
        self._write({"bucket": bucket, "key": key, "put": [put.stamp, put.etag, dict(put.headers)], "odd": odd})

    def delete(self, bucket: str, key: str, *, hide: bool) -> None:
        """Record that the object will be deleted; with `hide`, the object in the data folder as well, permanently."""
        self._apply_delete(bucket, key, hide)
        self._write({"bucket": bucket, "key": key, "hide": hide})

    def _apply_delete(self, bucket: str, key: str, hide: bool) -> None:
        changes = self._buckets.setdefault(bucket, Changes())
        if hide:
            changes.deleted.add(key)
        changes.puts.pop(key, None)
        changes.odd.discard(key)

    def _apply_odd(self, bucket: str, key: str, odd: bool) -> None:
        keys = self._buckets[bucket].odd
        (keys.add if odd else keys.discard)(key)

    def _write(self, change: Mapping[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as journal:
            journal.write("\n" + json.dumps(change))  # the line feed first: a line truncated by a kill damages no other

    def _replay(self, line: str) -> None:
        try:
            change = json.loads(line)
        except (
            json.JSONDecodeError
        ):  # the first line, which is empty, or a truncated one, whose change was not confirmed
            return
        bucket, key = change["bucket"], change["key"]
        if "hide" in change:
            self._apply_delete(bucket, key, change["hide"])
            return
        place, etag, headers = change["put"]
        self.announce(bucket, key, Put(tuple(place), etag, headers))
        self._apply_odd(bucket, key, change["odd"])
