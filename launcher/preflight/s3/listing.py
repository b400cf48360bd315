"""What lies below a prefix: counted while it is listed, page by page, so that ten million keys need no memory.

A listing ends at 20,000 keys or 3 seconds after the first question, whichever comes first, and says that it did; with `--full`
it goes on to the end. All checks that look at a prefix share one listing of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from launcher.aws.threads import Turns
from launcher.console import human_bytes
from launcher.preflight.check import Subject
from launcher.preflight.uses import hosts_that_share
from launcher.s3.uri import Place

MAX_KEYS = 20_000
MAX_SECONDS = 3.0
LONGEST_NAME = 255  # bytes of one part of a path, on Linux
_PAGES_AT_ONCE = (
    8  # of all listings together, those first that have had the fewest: each of 20 channels gets its first page
)
_EXAMPLES = 3
ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")  # storage classes from which nothing is read at once; GLACIER_IR is not one
_TIERED = "INTELLIGENT_TIERING"  # which may have put an object into an archive, and does not list it as such


@dataclass
class Odd:
    """Keys that a directory cannot show, of one kind: how many, and the first few."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, key: str) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(key)


@dataclass
class Listing:
    """What is known of the keys that begin with a prefix, in the order of the listing; folder markers are no objects.

    Directory buckets list in no order, so of theirs the hosts' shares are any split, and keys that are also folders go
    unnoticed.
    """

    place: Place
    dealt_to: tuple[int, ...] = ()  # numbers of hosts for which shares are counted
    count: int = 0
    bytes: int = 0
    folders: int = 0  # empty objects whose key ends with '/', which the console makes
    some: list[str] = field(default_factory=list)  # the keys of the first few objects that hold bytes
    newest: datetime | None = None
    is_complete: bool = True
    markers: int = 0  # empty objects that Hadoop leaves: `_SUCCESS`, `x_$folder$`
    archived: Odd = field(default_factory=Odd)  # by their storage class; some may have been restored
    tiered: Odd = field(default_factory=Odd)  # some may be archived
    odd: dict[str, Odd] = field(default_factory=dict)  # what is odd -> keys
    _above: list[str] = field(default_factory=list)  # keys that begin the key looked at last, the longest one last

    def __post_init__(self) -> None:
        self._shares = {hosts: [0] * hosts for hosts in self.dealt_to}

    def host_bytes(self, hosts: int) -> list[int]:
        """What each of so many hosts gets where the objects are dealt out in order; SageMaker promises about 1/n of them."""
        return self._shares[hosts] if hosts > 1 else [self.bytes]

    def add(self, found: Mapping[str, Any]) -> None:
        """Count one entry of a listing."""
        key, size = found["Key"], int(found["Size"])
        rest = key[len(self.place.key) :]
        if key.endswith("/"):
            if size == 0:
                self.folders += 1
                return
            self._note("hold bytes, but end with '/' like a folder", key)
        for hosts, shares in self._shares.items():
            shares[self.count % hosts] += size
        self.count += 1
        self.bytes += size
        self.markers += size == 0 and (key.rpartition("/")[2] == "_SUCCESS" or key.endswith("_$folder$"))
        if found.get("StorageClass") in ARCHIVES:
            self.archived.add(key)
        elif found.get("StorageClass") == _TIERED:
            self.tiered.add(key)
        if size and len(self.some) < _EXAMPLES:
            self.some.append(key)
        when = found.get("LastModified")
        if when is not None and (self.newest is None or when > self.newest):
            self.newest = when
        self._look_at(key, rest)

    def _look_at(self, key: str, rest: str) -> None:
        parts = rest.split("/")
        inner = parts[:-1] if self.place.key.endswith("/") or not self.place.key else parts[1:-1]
        if "" in inner:
            self._note("have an empty folder name ('//')", key)
        if "." in parts or ".." in parts or "\0" in rest:
            self._note("have a part that is no name ('.', '..')", key)
        if len(rest) > LONGEST_NAME // 4 and any(len(part.encode()) > LONGEST_NAME for part in parts):
            self._note(f"have a part of more than {LONGEST_NAME} bytes", key)
        while self._above and not key.startswith(self._above[-1]):
            self._above.pop()
        for above in self._above:
            if key.startswith(f"{above}/"):
                self._note("are objects and folders at once", above)
                self._above.remove(above)
                break
        if rest and not key.endswith("/"):
            self._above.append(key)

    def _note(self, what: str, key: str) -> None:
        self.odd.setdefault(what, Odd()).add(key)

    def described(self) -> str:
        """`12,345 objects, 45.2 GB`, with `at least` where the listing was not ended."""
        least = "" if self.is_complete else "at least "
        objects = "object" if self.count == 1 else "objects"
        return f"{least}{self.count:,} {objects}, {human_bytes(self.bytes)}"


def listing(subject: Subject, place: Place) -> Listing:
    """What lies below a prefix; asked once. Raises AwsError."""
    known: Listing = subject.once(repr(("listing", place)), lambda: _list(subject, place))
    return known


def _list(subject: Subject, place: Place) -> Listing:
    dealt_to = {hosts_that_share(subject, entry) for entry in subject.draft.entries}
    turns: Turns = subject.once("turns to list", lambda: Turns(_PAGES_AT_ONCE))
    found = Listing(place, tuple(dealt_to - {1}))
    pages = subject.account.pages("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key)
    for number in itertools.count():
        with turns.take(number):
            if number and not subject.full and (found.count >= MAX_KEYS or subject.seconds > MAX_SECONDS):
                found.is_complete = False
                break
            page = next(pages, None)
        if page is None:
            break
        for each in page.get("Contents", ()):
            found.add(each)
        if not page.get("IsTruncated"):
            break
        subject.progress[place] = found.count, None
    subject.progress[place] = found.count, found.count
    return found


def beside(subject: Subject, place: Place) -> list[str]:
    """The names that begin with a prefix, folders with their '/', as far as one question tells. Raises AwsError."""
    page = subject.ask("s3", "list_objects_v2", Bucket=place.bucket, Prefix=place.key, Delimiter="/")
    names = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
    return names + [each["Key"] for each in page.get("Contents", ())]
