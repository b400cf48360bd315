"""Listings that are not in the order of keys, long listings of many pages at a time, and listings that hosts compare."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources import agreement, listing
from sagemaker_channels.sources.listing import FAR, Listing, Page, page_of, shared_listing, version_of
from sagemaker_channels.sources.s3_pages import UnsuitableError, pages_after

NAMES = [f"p/{number:05d}" for number in range(3 * FAR)]


def pages_of(keys: Sequence[str], asked: list[int]) -> Iterator[Page]:
    """A store that lists these keys in this order."""
    for start in range(0, len(keys), 1000):
        asked.append(start)
        yield page_of([(key.encode(), len(key), start) for key in keys[start : start + 1000]])


def listing_of(path: Path, keys: Sequence[str], asked: list[int] | None = None) -> Listing:
    return Listing(path, "s3://bucket/", partial(pages_of, keys, [] if asked is None else asked))


def test_unordered_listings_of_two_hosts_are_equal(tmp_path: Path) -> None:
    found = []
    for host in range(2):
        keys = [*NAMES, *NAMES[:10]]  # An object may be listed twice.
        random.Random(host).shuffle(keys)
        unordered = listing_of(tmp_path / str(host), keys)
        found.append([item.key for item in unordered])
        assert unordered[7].size == len(NAMES[7])
        assert unordered.digest(100) == listing_of(tmp_path / f"ordered {host}", NAMES).digest(100)
    assert found == [NAMES, NAMES]


class Space:
    """A store with an order, which lists from any key on."""

    def __init__(self, keys: Iterable[str], per_page: int, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.keys = sorted(key.encode() for key in keys)
        self.per_page = per_page
        self.requests = self.running = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, after: bytes, token: str | None) -> tuple[Page, str | None]:
        with self.lock:
            self.requests += 1
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        with self.lock:
            self.running -= 1
        start = bisect_right(self.keys, after) if token is None else int(token)
        end = start + self.per_page
        return page_of([(key, 1, 0) for key in self.keys[start:end]]), str(end) if end < len(self.keys) else None


def listed(space: Space, after: bytes = b"") -> list[bytes]:
    return sorted(key for page in pages_after(b"", after, space) for key in page.keys)


@settings(deadline=None)
@given(st.sets(st.text("ab/é0\U0001f600", min_size=1, max_size=8), min_size=1), st.integers(1, 4))
def test_ranges_of_keys_contain_each_key_once(keys: set[str], per_page: int) -> None:
    space = Space(keys, per_page)
    assert listed(space) == space.keys
    assert listed(space, space.keys[0]) == space.keys[1:]


SHAPES = {
    "numbers": lambda: [f"train/{number:07d}.bin" for number in range(200_000)],
    "hashes": lambda: [f"{random.Random(number).getrandbits(64):016x}" for number in range(100_000)],
    "folders": lambda: [f"n{folder * 7919 % 10**8:08d}/n_{file}.JPEG" for folder in range(500) for file in range(200)],
    "one big folder": lambda: [
        *(f"a/{number}" for number in range(50)),
        *(f"b/c/d/{number:06d}" for number in range(99_950)),
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ranges_are_listed_side_by_side_with_few_more_requests_than_pages(shape: str) -> None:
    space = Space(SHAPES[shape](), 1000, 0.01)
    assert listed(space, space.keys[FAR - 1]) == space.keys[FAR:]
    assert space.most > 8
    assert space.requests <= 1.5 * len(space.keys) / 1000 + 64


def test_store_that_ignores_start_after_is_unsuitable() -> None:
    space = Space(NAMES, 1000)
    with pytest.raises(UnsuitableError, match="not in order"):
        list(pages_after(b"p/", b"p/00999", lambda after, token: space(b"", token)))


def test_versions_of_etags_differ() -> None:
    md5s = ['"d41d8cd98f00b204e9800998ecf8427e"', "0cc175b9c0f1b6a831c399e269772661"]
    others = ['"d41d8cd98f00b204e9800998ecf8427e-2"', "", "not hexadecimal, though 32 letters"[:32]]
    found = [version_of(etag) for etag in (*md5s, *others)]
    assert len(set(found)) == 5
    assert found[3] == 0
    assert found[1] == version_of(f'"{md5s[1]}"')


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the hosts of a job have stored."""
    stored: dict[str, str] = {}
    agreement.compare_by(stored.setdefault)
    yield stored
    agreement.compare_by(lambda name, text: None)


def compared(folder: Path, host: str, keys: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("SM_CURRENT_HOST", host)
    return len(listing_of(folder / host, keys))


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ([37], "at least 1,000 on algo-2, rank 0; the first that differs is number 38, 'p/00038' on algo-2"),
        (
            [4321],
            "at least 8,000 on algo-2, rank 0; the first that differs is number 4,321 to 4,360, 'p/04320' on algo-2",
        ),
        ([14_999], "14,999 on algo-2, rank 0; the first that differs is number 14,961 to 15,040, 'p/14960' on algo-2"),
        (range(10, 15_000), "10 on algo-2, rank 0; the first that differs is number 11, the end on algo-2"),
    ],
)
def test_listings_that_differ_between_hosts_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Sequence[int], said: str
) -> None:
    assert compared(tmp_path, "algo-1", NAMES, monkeypatch) == len(NAMES)
    with pytest.raises(ChannelError) as error:
        compared(tmp_path, "algo-2", [key for number, key in enumerate(NAMES) if number not in missing], monkeypatch)
    assert "s3://bucket/: the hosts do not list the same objects: " in str(error.value)
    assert " on algo-1, rank 0, and " + said in str(error.value)


@pytest.mark.usefixtures("published")
def test_prefix_that_is_named_again_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(tmp_path, "algo-1", NAMES, monkeypatch) == len(NAMES)
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-2")
    assert len(Listing(tmp_path / "again", "s3://bucket/", partial(pages_of, NAMES[1:], []), (), 1)) == len(NAMES) - 1


def test_equal_listings_of_hosts_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: dict[str, str]
) -> None:
    for count in (1, 999, 1000, 1001, 2000, 5000):
        published.clear()
        for host in ("algo-1", "algo-2", "algo-3"):
            assert compared(tmp_path, f"{host}-{count}", NAMES[:count], monkeypatch) == count
        assert published


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """A folder of checkpoints, where a job keeps its listings."""
    (folder := tmp_path / "checkpoints").mkdir()
    listing.keep_in(folder, "job")
    yield folder
    listing.keep_in(folder, None)


def on_machine(folder: Path, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> Listing:
    """The job's listing of a process on a machine of its own."""
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return shared_listing(["place"], "s3://bucket/", partial(pages_of, NAMES, asked))


def test_listing_that_cannot_be_kept_leaves_no_file(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "copyfile", lambda *_: Path("/dev/full").write_text("any"))
    assert len(on_machine(tmp_path / "first", [], monkeypatch)) == len(NAMES)
    assert "s3://bucket/: its listing is not kept for restarts: " in capfd.readouterr().err
    assert list(kept.iterdir()) == []


def test_complete_listing_is_kept_for_restarts_of_its_job(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    first = on_machine(tmp_path / "first", asked, monkeypatch)
    requests = len(asked)
    assert on_machine(tmp_path / "second", asked, monkeypatch)[:] == first[:]
    assert len(asked) == requests
    [file] = kept.iterdir()
    file.write_bytes(file.read_bytes()[:-1])  # by a machine that lost its power
    assert on_machine(tmp_path / "third", asked, monkeypatch)[:] == first[:]
    assert len(asked) == 2 * requests
    listing.keep_in(kept, "another job")
    assert list(kept.iterdir()) == []
