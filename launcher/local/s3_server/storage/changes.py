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
class Stored:
    """An object: the identity of its file, and the attributes with which a client put it."""

    stamp: Stamp
    etag: str  # without quotes
    headers: Mapping[str, str]  # Content-Type, x-amz-meta-...

    @property
    def size(self) -> int:
        """The object's bytes."""
        return self.stamp[1]

    @property
    def modified(self) -> float:
        """The time of the last change, in seconds since 1970."""
        return self.stamp[2] / 1e9


@dataclass
class Changes:
    """The changes to one bucket."""

    puts: dict[str, tuple[Stored, ...]] = field(default_factory=dict)  # the newest, and the one it replaced
    odd: set[str] = field(default_factory=set)  # keys whose object is stored beside the tree, not in it
    deleted: set[str] = field(default_factory=set)  # keys whose object in the data folder is hidden

    def put_of(self, key: str, identity: Stamp) -> Stored | None:
        """Return exactly this file's object, if a client put it."""
        return next((put for put in self.puts.get(key, ()) if put.stamp == identity), None)


_NONE = Changes()


class Journal:
    """The changes to all buckets. Only one thread at a time may write; any may read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buckets: dict[str, Changes] = {}
        for line in path.read_text(encoding="utf-8").split("\n") if path.exists() else ():
            try:
                change = json.loads(line)
            except (
                json.JSONDecodeError
            ):  # the first line, which is empty, or a truncated one: its change was not confirmed
                continue
            if "put" in change:
                place, etag, headers = change["put"]
                self.announce(change["bucket"], change["key"], Stored(tuple(place), etag, headers))
            self._apply(change)

    def of(self, bucket: str) -> Changes:
        """Return the bucket's changes, for reading."""
        return self._buckets.get(bucket, _NONE)

    def announce(self, bucket: str, key: str, put: Stored) -> None:
        """Record a put before the new file replaces the old, so that a reader finds the ETag of whichever it has opened."""
        changes = self._buckets.setdefault(bucket, Changes())
        changes.puts[key] = (put, *changes.puts.get(key, ())[:1])

    def settle(self, bucket: str, key: str, put: Stored, *, odd: bool) -> None:
        """Record that the new file is in place."""
        self._record({"bucket": bucket, "key": key, "put": [put.stamp, put.etag, dict(put.headers)], "odd": odd})

    def delete(self, bucket: str, key: str, *, hide: bool) -> None:
        """Record that the object will be deleted; with `hide`, the object in the data folder as well, permanently."""
        self._record({"bucket": bucket, "key": key, "odd": False, "hide": hide})

    def _record(self, change: Mapping[str, Any]) -> None:
        self._apply(change)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as journal:
            journal.write("\n" + json.dumps(change))  # the line feed first: a line truncated by a kill damages no other

    def _apply(self, change: Mapping[str, Any]) -> None:
        changes, key = self._buckets.setdefault(change["bucket"], Changes()), change["key"]
        (changes.odd.add if change["odd"] else changes.odd.discard)(key)
        if "put" not in change:
            changes.puts.pop(key, None)
            if change["hide"]:
                changes.deleted.add(key)
