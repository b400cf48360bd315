"""One listing for all processes of a host: each page is requested once."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patience import PATIENCE
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources.items import Keys
from sagemaker_channels.sources.listing import Listed, Listing, Page, page_of

PAGES, PER_PAGE = 40, 25
EVERY = [Listed(f"p/{number:04d}-ü\udcff", number << 30, 2**64 - 1 - number) for number in range(PAGES * PER_PAGE)]


def rows(objects: Iterable[Listed]) -> list[tuple[bytes, int, int]]:
    return [(os.fsencode(item.key), item.size, item.version) for item in objects]


def pages(log: Path) -> Iterator[Page]:
    """Pages of EVERY; each is a line of the log."""
    for number in range(PAGES):
        with log.open("a") as stream:
            stream.write(f"{number}\n")
        yield page_of(rows(EVERY[number * PER_PAGE : (number + 1) * PER_PAGE]))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def listing(tmp_path: Path, log: Path) -> Listing:
    return Listing(tmp_path / "listing", "s3://bucket/", partial(pages, log))


def asked(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


def test_listing_is_a_sequence(listing: Listing, log: Path) -> None:
    assert asked(log) == list(range(PAGES))
    assert list(listing) == EVERY
    assert len(listing) == len(EVERY)
    assert (listing[-1], listing[3], listing[5:900:100]) == (EVERY[-1], EVERY[3], EVERY[5:900:100])
    for index in (len(EVERY), -len(EVERY) - 1):
        with pytest.raises(IndexError):
            listing[index]


def read_in_child(log: Path, answers: Any) -> None:
    answers.put(list(Listing(log.with_name("listing"), "s3://bucket/", partial(pages, log))) == EVERY)


def test_processes_share_a_listing(log: Path) -> None:
    context = multiprocessing.get_context("fork")
    answers: Any = context.SimpleQueue()
    children = [context.Process(target=read_in_child, args=(log, answers)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE)
    assert [answers.get() for _ in children] == [True] * 4
    assert asked(log) == list(range(PAGES))


def test_listing_outlives_its_file(listing: Listing, log: Path, tmp_path: Path) -> None:
    pickled = pickle.dumps(listing)
    assert list(pickle.loads(pickled)) == EVERY
    assert asked(log) == list(range(PAGES))
    (tmp_path / "listing").unlink()
    assert list(listing) == EVERY
    assert list(pickle.loads(pickled)) == EVERY  # listed again


def test_error_of_a_page_leaves_no_part_of_the_listing(tmp_path: Path, log: Path) -> None:
    failures = [OSError("once")]

    def sometimes() -> Iterator[Page]:
        for number, page in enumerate(pages(log)):
            if number == 2 and failures:
                raise failures.pop()
            yield page

    with pytest.raises(OSError, match="once"):
        Listing(tmp_path / "listing", "s3://bucket/", sometimes)
    assert list(Listing(tmp_path / "listing", "s3://bucket/", sometimes)) == EVERY


def test_all_that_wait_for_a_listing_fail_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is down takes long to fail, and would do so again for each rank of the host."""
    lock, entered, attempts = fcntl.flock, [threading.Event() for _ in range(4)], list[int]()
    unused = iter(entered)

    def locked(file: Any, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            next(unused).set()
        lock(file, operation)

    def failing() -> list[Page]:
        attempts.append(len(attempts))
        assert all(event.wait(PATIENCE) for event in entered)
        raise ChannelError("s3://bucket/ refuses connections")

    monkeypatch.setattr(fcntl, "flock", locked)
    with ThreadPoolExecutor(4) as threads:
        made = [threads.submit(Listing, tmp_path / "listing", "s3://bucket/", failing) for _ in entered]
    assert {str(each.exception()) for each in made} == {"s3://bucket/ refuses connections"}
    monkeypatch.undo()
    assert len(attempts) == 1
    assert list(Listing(tmp_path / "listing", "s3://bucket/", lambda: [page_of(rows(EVERY))])) == EVERY


def test_listing_that_was_not_written_to_its_end_is_listed_again(listing: Listing, log: Path, tmp_path: Path) -> None:
    """As by a process that was killed, or a machine that lost its power."""
    content = (tmp_path / "listing").read_bytes()
    for end in (0, 5, len(content) // 2, len(content) - 1):
        part = tmp_path / str(end)
        part.write_bytes(content[:end])
        assert list(Listing(part, "s3://bucket/", partial(pages, log))) == EVERY


def test_digest_depends_on_the_keys_before_the_count_only(listing: Listing, tmp_path: Path) -> None:
    names = Keys(item.key for item in EVERY)
    one_page = Listing(tmp_path / "other", "s3://bucket/", lambda: [page_of(rows(EVERY))])
    for count in (len(EVERY), PER_PAGE + 1, 1, 0, 3 * PER_PAGE):
        assert listing.digest(count) == one_page.digest(count) == names.digest(count)
    assert len({names.digest(count) for count in range(len(EVERY) + 1)}) == len(EVERY) + 1
    assert Keys(["ab", "c"]).digest(2) != Keys(["a", "bc"]).digest(2)
    for short in (listing, names):
        with pytest.raises(IndexError):
            short.digest(len(EVERY) + 1)


def test_keys_are_read_as_they_are_needed() -> None:
    source = iter(["a", "b", "c"])
    found = Keys(source)
    assert (found[0], next(source)) == ("a", "b")
    assert list(found) == ["a", "c"]


def test_listing_takes_little_memory(listing: Listing) -> None:
    assert len(listing) == len(EVERY)
    assert len(pickle.dumps(listing)) < 1000


JOB = """
import os, signal, sys
from sagemaker_channels.sources.listing import page_of, shared_listing
assert len(shared_listing(["store"], "", lambda: [page_of([(b"a", 1, 0)])])) == 1
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_files_of_a_killed_job_are_removed_by_the_next(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"} | {"TMPDIR": str(tmp_path)}
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", JOB, "killed"], env=environ, check=False, cwd=root)
    assert len(list(tmp_path.iterdir())) == 1
    subprocess.run([sys.executable, "-c", JOB, "ends"], env=environ, check=True, cwd=root)
    assert list(tmp_path.iterdir()) == []


def test_file_that_another_user_put_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "listing").symlink_to(tmp_path / "file of ours")
    with pytest.raises(ChannelError, match=r"listing cannot be opened: .*; set TMPDIR to a folder of your own"):
        Listing(tmp_path / "listing", "s3://bucket/", list)
    assert not (tmp_path / "file of ours").exists()


@settings(deadline=None)  # a busy machine is slow, and that is no error
@given(st.lists(st.text().map(lambda text: text.encode("utf-8", "replace").decode())))
def test_keys_are_a_list_of_strings(keys: list[str]) -> None:
    found = Keys(keys)
    assert found == keys
    assert list(found) == keys
    assert found[1:3] == keys[1:3]
    assert pickle.loads(pickle.dumps(found)) == found
    assert (found == [*keys, "more"]) is False
    if keys:
        assert found[-1] == keys[-1]


def test_keys_that_are_not_unicode_are_kept() -> None:
    name = os.fsdecode(b"\xff.bin")
    assert Keys([name])[0] == name


FULL = """
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources.listing import page_of, shared_listing
def pages():
    yield page_of([(b"%01000d" % number, 1, 0) for number in range(2000)])
def attempt(work):
    try:
        work()
    except ChannelError as error:
        print(error)
attempt(lambda: shared_listing(["a"], "", pages))
"""


def test_full_temporary_folder_is_named(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=1m none "$TMPDIR" && exec "$0" -c "$1"'
    inside = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("needs namespaces")
    command = [*inside, "sh", "-c", script, sys.executable, FULL]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.startswith(f"no room for the listing of a channel in {tmp_path}")
    assert done.stdout.endswith("); make room there, or set TMPDIR to another folder\n")
