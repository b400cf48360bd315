"""Listings that are not in the order of keys, long listings of many pages at a time, and listings that hosts compare."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagemaker_channels.errors import ChannelError
from sagemaker_channels.fetching import agreement, shared_listing
from sagemaker_channels.fetching.key_ranges import pages_after
from sagemaker_channels.fetching.listing import FAR, Listing, Store
from sagemaker_channels.fetching.pages import Listed, Page, UnsuitableError, page_of, versions_of

NAMES = [f"p/{number:05d}" for number in range(3 * FAR)]


def pages_of(
    keys: Sequence[str], asked: list[str | None], per_page: int, token: str | None
) -> tuple[list[Listed], str | None]:
    """A store that lists these keys in this order."""
    asked.append(token)
    start = int(token or 0)
    end = start + per_page
    return [Listed(key, len(key), start) for key in keys[start:end]], str(end) if end < len(keys) else None


def unordered(keys: Iterable[str], seed: int) -> list[str]:
    shuffled = list(keys)
    random.Random(seed).shuffle(shuffled)
    return shuffled


@pytest.mark.parametrize("is_known", [False, True])
def test_unordered_listings_of_two_hosts_are_equal(tmp_path: Path, is_known: bool) -> None:
    found = []
    for host in range(2):
        next_page = partial(pages_of, unordered(NAMES, host), [], 1000)
        listing = Listing(tmp_path / str(host), Store("s3://bucket/", next_page, is_sorted=not is_known))
        found.append([item.key for item in listing])
        assert listing[7].size == len(NAMES[7])
        assert listing.digest(100) == Listing(tmp_path / str(host), Store("", next_page)).digest(100)
    assert found == [NAMES, NAMES]


def test_ordered_listing_is_read_from_its_first_page(tmp_path: Path) -> None:
    asked: list[str | None] = []
    listing = Listing(tmp_path / "listing", Store("s3://bucket/", partial(pages_of, NAMES, asked, 100)))
    assert (next(iter(listing)).key, asked) == (NAMES[0], [None])


def test_disorder_after_the_first_objects_were_read_is_an_error(tmp_path: Path) -> None:
    keys = [*NAMES[100:200], *NAMES[:100], *NAMES[200:]]
    store = Store("s3://bucket/", partial(pages_of, keys, [], 100))
    listing = Listing(tmp_path / "listing", store)
    found = iter(listing)
    assert [next(found).key for _ in range(100)] == keys[:100]
    with pytest.raises(
        ChannelError, match=r"s3://bucket/: the first 100 objects, which were read already, are others now"
    ):
        next(found)
    assert [item.key for item in Listing(tmp_path / "other", store)[:]] == NAMES


class Space:
    """A store with an order, which lists from any key on."""

    def __init__(self, keys: Iterable[str], per_page: int) -> None:
        self.keys = sorted(key.encode() for key in keys)
        self.per_page = per_page
        self.requests = 0
        self.lock = threading.Lock()

    def __call__(self, after: bytes, token: str | None) -> tuple[Page, str | None]:
        with self.lock:
            self.requests += 1
        start = bisect_right(self.keys, after) if token is None else int(token)
        end = start + self.per_page
        found = [Listed(key.decode(), 1) for key in self.keys[start:end]]
        return page_of(found), str(end) if end < len(self.keys) else None


def listed(space: Space, after: bytes = b"") -> list[bytes]:
    return sorted(key for page in pages_after(b"", after, space) for key in page.keys)


@settings(deadline=None)
@given(st.sets(st.text("ab/é0\U0001f600", min_size=1, max_size=8), min_size=1), st.integers(1, 4))
def test_ranges_of_keys_contain_each_key_once(keys: set[str], per_page: int) -> None:
    space = Space(keys, per_page)
    assert listed(space) == space.keys
    assert listed(space, space.keys[0]) == space.keys[1:]


SHAPES = {
    "numbers": [f"train/{number:07d}.bin" for number in range(200_000)],
    "hashes": [f"{random.Random(number).getrandbits(64):016x}" for number in range(100_000)],
    "folders": [f"n{folder * 7919 % 10**8:08d}/n_{file}.JPEG" for folder in range(500) for file in range(200)],
    "one big folder": [*(f"a/{number}" for number in range(50)), *(f"b/c/d/{number:06d}" for number in range(99_950))],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ranges_cost_few_more_requests_than_pages(shape: str) -> None:
    space = Space(SHAPES[shape], 1000)
    assert listed(space) == space.keys
    assert space.requests <= 1.5 * len(space.keys) / 1000 + 64


def rest_of(space: Space, after: bytes) -> Iterator[Page]:
    return pages_after(b"p/", after, space)


def test_all_objects_of_a_long_listing_are_requested_in_ranges(tmp_path: Path) -> None:
    asked: list[str | None] = []
    space = Space(NAMES, 1000)
    store = Store("s3://bucket/", partial(pages_of, NAMES, asked, 1000), partial(rest_of, space))
    listing = Listing(tmp_path / "listing", store)
    assert len(listing) == len(NAMES)
    assert [item.key for item in listing] == NAMES
    assert len(asked) == FAR // 1000
    far = Listing(tmp_path / "far", store)
    assert far[2 * FAR].key == NAMES[2 * FAR]
    assert far.digest(len(NAMES)) == listing.digest(len(NAMES))


def test_short_listing_costs_no_more_requests(tmp_path: Path) -> None:
    asked: list[str | None] = []
    space = Space(NAMES[:FAR], 1000)
    store = Store("s3://bucket/", partial(pages_of, NAMES[:FAR], asked, 1000), partial(rest_of, space))
    assert len(Listing(tmp_path / "listing", store)) == FAR
    assert (len(asked), space.requests) == (FAR // 1000, 0)


def unsuitable(after: bytes) -> Iterator[Page]:
    yield page_of([Listed(NAMES[-1], 1)])
    raise UnsuitableError("status 501")


def ignoring(space: Space, after: bytes) -> Iterator[Page]:
    """A store that does not know `start-after`."""
    return pages_after(b"p/", after, lambda after, token: space(b"", token))


@pytest.mark.parametrize("rest", [unsuitable, partial(ignoring, Space(NAMES, 1000))])
def test_store_that_cannot_list_from_a_key_is_listed_page_by_page(tmp_path: Path, rest: object) -> None:
    store = Store("s3://bucket/", partial(pages_of, NAMES, [], 1000), rest)  # type: ignore[arg-type]
    listing = Listing(tmp_path / "listing", store)
    assert len(listing) == len(NAMES)
    assert [item.key for item in listing] == NAMES


def test_versions_of_etags_differ() -> None:
    md5s = ['"d41d8cd98f00b204e9800998ecf8427e"', "0cc175b9c0f1b6a831c399e269772661"]
    others = ['"d41d8cd98f00b204e9800998ecf8427e-2"', "", "not hexadecimal, though 32 letters"[:32]]
    found = versions_of([*md5s, *others])
    assert list(found[:2]) == list(versions_of(md5s))
    assert len(set(found)) == 5
    assert found[3] == 0


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the hosts of a job have stored."""
    stored: dict[str, str] = {}
    agreement.compare_by(stored.setdefault)
    yield stored
    agreement.compare_by(lambda name, text: None)


def compared(folder: Path, host: str, keys: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("SM_CURRENT_HOST", host)
    return len(Listing(folder / host, Store("s3://bucket/", partial(pages_of, keys, [], 1000))))


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


def test_equal_listings_of_hosts_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: dict[str, str]
) -> None:
    for count in (1, 999, 1000, 1001, 2000, 5000):
        published.clear()
        for host in ("algo-1", "algo-2", "algo-3"):
            assert compared(tmp_path, f"{host}-{count}", NAMES[:count], monkeypatch) == count
        assert published


def test_listing_that_cannot_be_kept_leaves_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "checkpoints/listing"
    kept.mkdir(parents=True)
    store = Store("s3://bucket/", partial(pages_of, NAMES, [], 1000), kept=kept)
    assert len(Listing(tmp_path / "new", store)) == len(NAMES)
    assert "s3://bucket/: its listing is not kept for restarts: " in capfd.readouterr().err
    assert list(kept.parent.iterdir()) == [kept]


def test_complete_listing_is_kept_for_restarts_of_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, asked = tmp_path / "checkpoints", []  # type: tuple[Path, list[str | None]]
    kept.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "first"))
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    store = Store("s3://bucket/", partial(pages_of, NAMES, asked, 1000))
    try:
        shared_listing.keep_in(kept, "job")
        assert len(shared_listing.shared_listing(["place"], store)) == len(NAMES)
        requests = len(asked)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "second"))
        assert shared_listing.shared_listing(["place"], store)[:] == Listing(tmp_path / "new", store)[:]
        assert len(asked) == 2 * requests
        [file] = kept.iterdir()
        os.truncate(file, file.stat().st_size - 1)  # by a machine that lost its power
        assert len(shared_listing.shared_listing(["place"], store)) == len(NAMES)
        assert len(asked) == 3 * requests
        shared_listing.keep_in(kept, "another job")
        assert list(kept.iterdir()) == []
    finally:
        shared_listing.keep_in(kept, None)
