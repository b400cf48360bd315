"""One Pipe for all ranks and workers of a host: each reader gets its shard, in every epoch and format."""

from __future__ import annotations

import json
import os
import textwrap
import threading
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE, in_threads
from pipe_feeder import LINES, Feed, lines_of, loaded, numbers, side_by_side
from sagemaker_channels import contract
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.epoch.placement import Shard
from sagemaker_channels.errors import ChannelError, CorruptError
from sagemaker_channels.formats import SHORT_NAMES, image_recordio, recordio, tar
from sagemaker_channels.formats.cursor import Cursor
from sagemaker_channels.job.environment import Environment
from sagemaker_channels.sample import KEY
from torch_ranks import torch_ranks

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(("workers", "start"), [(5, "fork"), (2, "spawn")])
def test_workers_together_read_every_sample_once(
    environment: Environment, feed: Feed, workers: int, start: str
) -> None:
    feed("lines", lines_of)
    batches = list(loaded(environment, workers, multiprocessing_context=start))
    assert sorted(numbers(sample for batch in batches for sample in batch)) == list(range(5000))
    # Worker w has every workers-th sample: the assignment does not depend on who is fast.
    assert all(len({number % workers for number in numbers(batch)}) == 1 for batch in batches)


@pytest.mark.parametrize("persistent", [False, True])
def test_consecutive_epochs_are_read_by_the_same_workers_or_new_ones(
    environment: Environment, feed: Feed, persistent: bool
) -> None:
    feed("lines", lines_of)
    loader = loaded(environment, 2, persistent_workers=persistent)
    dataset: Any = loader.dataset
    for epoch in range(3):
        dataset.set_epoch(epoch)
        found = numbers((sample for batch in loader for sample in batch), epoch)
        assert sorted(found) == list(range(5000))


def test_changed_number_of_workers_reads_the_next_epoch_whole(environment: Environment, feed: Feed) -> None:
    feed("lines", lines_of)
    for epoch, workers in enumerate((2, 3, 0, 1, 2)):
        loader = loaded(environment, workers)
        dataset: Any = loader.dataset
        dataset.set_epoch(epoch)
        assert sorted(numbers((sample for batch in loader for sample in batch), epoch)) == list(range(5000))


@pytest.mark.parametrize("persistent", [False, True])
def test_early_break_leaves_the_next_epoch_readable(environment: Environment, feed: Feed, persistent: bool) -> None:
    feed(
        "lines",
        lambda epoch: lines_of(epoch) * 40,
    )
    loader = loaded(environment, 2, persistent_workers=persistent)
    dataset: Any = loader.dataset
    for epoch in range(3):
        dataset.set_epoch(epoch)
        for batch in loader:
            assert len(numbers(batch, epoch)) == 50
            break


@pytest.mark.parametrize("workers", [1, 2])
def test_loop_that_is_left_with_its_workers_alive_does_not_hold_the_fifo(
    environment: Environment, feed: Feed, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setenv(contract.FIFO_WAIT_VARIABLE, "20")
    feed("lines", lambda epoch: lines_of(epoch).replace(b" ", b" " * 100) * 20)  # more than the ring holds
    loader = loaded(environment, workers)
    left = iter(loader)
    assert len(numbers(next(left))) == 50
    dataset: Any = loader.dataset
    dataset.set_epoch(1)
    assert len(numbers((sample for batch in loader for sample in batch), 1)) == 20 * len(LINES)
    del left


@pytest.mark.parametrize(("stride", "how"), [(1 << 17, {}), (1 << 17, {"seed": 1, "block": 2}), (100_000, {})])
def test_iterator_left_open_yields_no_sample_of_overwritten_bytes(
    environment: Environment, feed: Feed, stride: int, how: dict[str, Any]
) -> None:
    """If the ring has room for a whole number of records, wrong samples begin where right ones did."""
    records = BytesIO()
    recordio.write(records, [(b"%d " % number).ljust(stride - 8) for number in range(200)])
    feed("images", lambda epoch: records.getvalue())

    def samples(rank: int, epoch: int) -> Any:
        shard = Shard(rank, 2, readers=2)
        return open_channel("images", epoch, environment=environment, format="recordio", shard=shard, **how)

    def read(rank: int) -> int:
        old = samples(rank, 0)
        assert next(old)
        if rank:
            assert sum(1 for _ in old) == 99
            overwritten.set()
        count = sum(1 for _ in samples(rank, 1))  # The other one reads the first epoch to its end meanwhile.
        assert overwritten.wait(PATIENCE)
        if not rank:
            with pytest.raises(ChannelError, match="epoch 0: this reader asked for epoch 1, and gets no more of it"):
                assert all(int(sample["data"].split()[0]) < 4 for sample in old)  # which were read before
        return count

    overwritten = threading.Event()
    assert in_threads(read, 2) == [100, 100]


def test_shards_of_every_format_equal_a_single_readers_samples(environment: Environment, feed: Feed) -> None:
    stream = BytesIO()
    tar.write(stream, ({"__key__": f"{n:03d}", "bin": os.urandom(n * 900), "cls": b"%d" % n} for n in range(60)))
    records = BytesIO()
    recordio.write(records, [image_recordio.encode(os.urandom(30_000 * (n % 2) + 5), float(n)) for n in range(41)])
    for name, data, form in (("tar", stream, None), ("images", records, "image-recordio"), ("wrapped", records, None)):
        feed(name, lambda epoch, data=data: data.getvalue())
        parts = side_by_side(environment, name, 3, format=form)
        whole = list(open_channel(name, 1, format=form, environment=environment, shard=Shard()))
        assert [whole[index::3] for index in range(3)] == parts
        assert len(whole) in (60, 41)


def test_shards_of_other_hosts_are_dropped(environment: Environment, feed: Feed) -> None:
    feed("lines", lines_of)
    shards = [Shard(index, 6, readers=2) for index in (1, 4)]  # numbered as some launchers number ranks

    def read(number: int) -> list[int]:
        return numbers(open_channel("lines", environment=environment, shard=shards[number]))

    assert sorted(chain(*in_threads(read, 2))) == sorted([*range(1, 5000, 6), *range(4, 5000, 6)])


def test_channels_are_read_at_the_same_time(environment: Environment, feed: Feed) -> None:
    feed("lines", lines_of)
    records = BytesIO()
    recordio.write(records, LINES)
    feed("images", lambda epoch: records.getvalue())
    pairs = zip(
        *(open_channel(name, environment=environment, shard=Shard(0, 2)) for name in ("lines", "images")), strict=True
    )
    assert sum(1 for _ in pairs) == 2500  # one reader each
    found = in_threads(lambda number: side_by_side(environment, ("lines", "images")[number], 2, epoch=1), 2)
    assert [[len(part) for part in parts] for parts in found] == [[2500, 2500]] * 2


def test_ranks_with_workers_read_whole_epochs(root: Path, feed: Feed, tmp_path: Path) -> None:
    feed("lines", lines_of)
    script = textwrap.dedent(
        """
        import json, os, sys
        from pathlib import Path
        from torch.utils.data import DataLoader
        from sagemaker_channels.torch_data.dataset import ChannelDataset

        dataset = ChannelDataset("lines")
        found = []
        for epoch in range(2):
            dataset.set_epoch(epoch)
            batches = DataLoader(dataset, 50, num_workers=2, collate_fn=list)
            found.append([sample["data"].decode() for batch in batches for sample in batch])
        Path(f"found-{os.environ['RANK']}.json").write_text(json.dumps(found))
        """
    )
    (tmp_path / "script.py").write_text(script)
    environ = {"PYTHONPATH": str(REPOSITORY / "entrypoints"), "SAGEMAKER_BASE_DIR": str(root)}
    done = torch_ranks(2, "script.py", cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(2)]
    for epoch in range(2):
        for rank in range(2):
            wanted = [f"{epoch} {line.decode()}" for line in LINES[rank::2]]
            assert sorted(ranks[rank][epoch]) == wanted


def test_formats_with_options_and_arrays_have_shards(environment: Environment, feed: Feed) -> None:
    feed("lines", lambda epoch: b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(10)))
    parts = side_by_side(environment, "lines", 2, format="csv; header=present")
    assert [[sample["a"] for sample in part] for part in parts] == [list("02468"), list("13579")]
    records = BytesIO()
    recordio.write(records, [image_recordio.encode(b"image", [float(n)] * 9000) for n in range(4)])
    feed("wrapped", lambda epoch: records.getvalue())
    parts = side_by_side(environment, "wrapped", 2)
    assert [len(sample["data"]) for part in parts for sample in part] == [24 + 36_000 + 5] * 4


def test_damaged_stream_raises_in_every_reader_after_its_good_samples(environment: Environment, feed: Feed) -> None:
    stream = BytesIO()
    tar.write(stream, ({"__key__": f"{n:03d}", "bin": bytes(100)} for n in range(10)))
    feed("tar", lambda epoch: stream.getvalue()[: 6 * 1024 + 700])
    for error in side_by_side(environment, "tar", 3):
        assert isinstance(error, CorruptError)
        assert str(error).startswith("channel 'tar': byte 6144: the stream ends at byte 6844")
    records = BytesIO()
    recordio.write(records, [image_recordio.encode(b"image"), b"short"])
    feed("images", lambda epoch: records.getvalue())
    first, error = side_by_side(environment, "images", 2, format="image-recordio")
    assert len(first) == 1  # It does not decode the other reader's samples.
    assert isinstance(error, CorruptError) and str(error).startswith("channel 'images': byte ")


@pytest.mark.parametrize("name", ["tar", "recordio", "image-recordio", "tfrecord", "tfrecord-example", "lines"])
def test_readers_do_not_copy_the_samples_of_others(name: str) -> None:
    """A format may leave out what is not needed, whatever its size: smaller than a window, larger, or empty."""
    form = SHORT_NAMES[name]
    assert form.write is not None
    data = BytesIO()
    payloads = [b"%d " % number * (number * number % 70_001) for number in range(40)]
    form.write(data, (form.example(number, payload) for number, payload in enumerate(payloads)))
    every = list(form.split(BytesIO(data.getvalue())))
    for count in (2, 3, 8):
        for index in range(count):
            found = list(form.split(BytesIO(data.getvalue()), None, Cursor(turns=(index, count))))
            assert found[index::count] == every[index::count]
            assert len(found) == len(every)
            others = [sample for number, sample in enumerate(found) if number % count != index]
            assert name == "lines" or not any(value for sample in others for key, value in sample.items() if key != KEY)
