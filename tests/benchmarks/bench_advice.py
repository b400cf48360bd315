"""Follow the advice on generated data sets, against every way: `python tests/benchmarks/bench_advice.py FILE`.

Each data set (number, size and format of its objects, epochs, time of a step, jobs, latency of the store) is read from our S3
server by each way that exists here: the local run's File, FastFile (rclone) and Pipe, and the connector, also after resharding.
The loss is the time of the advised way over the least of all, less 1; preparing shards is divided by the number of jobs. The
advised way runs first, and any other is cut off once it has taken longer than the least so far; a loss of more than a
twentieth counts only if it is seen again. FILE gets a JSON line for each.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from far_store import connector_channel, far_store
from local_job import mounted_job

from launcher.advice.facts import Estimate, Inventory, Quantiles, Use
from launcher.advice.prediction import predict
from launcher.advice.recommendation import cost_s, recommend
from launcher.advice.ways import CONSTANTS, WAYS, Way
from launcher.aws.remote_objects import RemoteObjects
from launcher.aws.session import Account
from launcher.local.channels import copied, fifo, mounted
from launcher.local.channels.delivery import Delivery
from launcher.local.channels.stores import Store
from sagemaker_channels import open_channel
from sagemaker_channels.formats.shards import write_shards

BATCH, MEMORY = 16, 8 << 30
DOUBTFUL = 0.05  # a loss above which both ways are run three times more, in turns; their medians count
AGAIN = 20  # data sets between two calibrations
PROVIDERS: dict[str, Any] = {"File": copied.provide, "FastFile": mounted.provide, "Pipe": fifo.provide}
# What is set up here otherwise than on SageMaker: no instance, image or framework; 8 copies and one pipe stream at a time; shards
# in proportion to data that are read in seconds. How fast the ways are is measured by `calibrated`.
HERE = {**CONSTANTS, "instance_s": 0, "image_s": 0, "warm_up_s": 0, "list_per_s": 1e9, "get_usd": 0, "list_usd": 0}
HERE |= {"shard_bytes": 1e6, "small_bytes": 5e6}
STREAMS = {"File": 8, "Pipe": 1}


@dataclass(frozen=True)
class DataSet:
    """One generated data set and its use."""

    name: str
    objects: int
    bytes: int  # of one object
    samples: int  # in one object: more than one are members of a tar
    epochs: int
    step_s: float  # of a sample
    jobs: int

    @property
    def total(self) -> int:
        return self.objects * self.bytes

    def fill(self, folder: Path) -> None:
        """Write the objects."""
        noise = os.urandom(self.bytes // self.samples + self.objects * self.samples)
        count = iter(range(self.objects * self.samples))
        folder.mkdir(parents=True)
        if self.samples == 1:
            for number in count:
                (folder / f"{number:06d}.bin").write_bytes(noise[number : number + self.bytes])
            return
        made = ({"__key__": f"{each:06d}", "bin": noise[each : each + self.bytes // self.samples]} for each in count)
        write_shards(made, folder, "tar", shard_samples=self.samples, shard_bytes=1 << 40)


def generated(number: int, seed: str) -> DataSet:
    """Return a data set whose ways should take seconds, not minutes."""
    chance = random.Random(f"{seed}/{number}")
    while True:
        objects = round(20 * 250 ** chance.random())
        size = round(1000 * 50_000 ** chance.random())
        samples = chance.choice((1, 1, 16)) if size > 50_000 else 1
        epochs = chance.randint(1, 5)
        if objects * epochs < 1500 and objects * size * epochs < 100e6:
            step_s = chance.choice((0, 1, 2)) / (objects * samples * epochs)
            return DataSet(f"d{number}", objects, size, samples, epochs, step_s, chance.choice((1, 3, 10, 100)))


class Site:
    """The store with its latency, and the constants that were measured here."""

    def __init__(self, folder: Path, latency: float, url: str) -> None:
        import boto3
        from botocore.config import Config

        client = boto3.client("s3", endpoint_url=url, config=Config(max_pool_connections=64))
        environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        self.folder, self.latency, self.client = folder, latency, client
        self._store = Store(RemoteObjects(Account()), environ, remote=True)

    @contextmanager
    def delivered(self, way: str, prefix: str, content_type: str | None) -> Iterator[Any]:
        """Yield the job whose channel `train` is the prefix by the way."""
        uri = f"s3://bucket/{prefix}/"
        if way == "S3Connector":
            yield connector_channel(self.folder / "connector", uri, content_type)
            return
        wrapper = {} if content_type else {"RecordWrapperType": "RecordIO"}
        root = Path(tempfile.mkdtemp(dir=self.folder))
        source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
        entry = {"ChannelName": "train", "InputMode": way, "DataSource": {"S3DataSource": source}, **wrapper}
        environment = mounted_job(root, content_type, way)
        if way == "Pipe" and not content_type:
            channel = replace(environment.channels["train"], record_wrapper="RecordIO")
            environment = replace(environment, channels={"train": channel})
        data_dir = environment.channels["train"].path.parent
        (data_dir / "train").rmdir()
        delivery = Delivery(entry, "algo-1", ("algo-1",), data_dir, root / "scratch", self._store, {})
        (root / "scratch").mkdir()
        try:
            with PROVIDERS[way](delivery):
                yield environment
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def run(self, way: str, prefix: str, data: DataSet, content_type: str | None, limit: float) -> float:
        """Return the seconds of a job by one way, or the limit if it takes longer."""
        begin, count = time.perf_counter(), 0
        with self.delivered(way, prefix, content_type) as environment:
            for epoch in range(data.epochs):
                with closing(open_channel("train", epoch, environment=environment)) as samples:
                    while batch := list(islice(samples, BATCH)):
                        count += len(batch)
                        time.sleep(data.step_s * len(batch))
                        if time.perf_counter() - begin > limit:
                            return limit
            taken = time.perf_counter() - begin
        assert count == data.objects * data.samples * data.epochs, (way, prefix, count)
        return taken

    def reshard(self, data: DataSet, count: int, prefix: str) -> float:
        """Write tar shards of the data set; return the seconds."""
        begin = time.perf_counter()
        environment = connector_channel(self.folder / "connector", f"s3://bucket/{data.name}/", kind(data))
        with closing(open_channel("train", environment=environment)) as samples:
            named = (
                {"__key__": f"{number:06d}", "bin": each.get("bin", each.get("data"))}
                for number, each in enumerate(samples)
            )
            per = -(-data.objects * data.samples // count)
            write_shards(named, self.folder / "s3/bucket" / prefix, "tar", shard_samples=per, shard_bytes=1 << 40)
        return time.perf_counter() - begin


def kind(data: DataSet) -> str | None:
    """Return the content type."""
    return "application/x-tar" if data.samples > 1 else None


def inventory_of(data: DataSet) -> Inventory:
    """Return what is there."""
    return Inventory(data.objects, data.total, Quantiles(*[data.bytes] * 5))


def use_of(data: DataSet) -> Use:
    """Return the use."""
    return Use(
        epochs=data.epochs,
        jobs=data.jobs,
        streams=64,
        memory_bytes=MEMORY,
        samples=data.objects * data.samples,
        samples_per_s=1 / data.step_s if data.step_s else None,
        random_access=False,
        usd_per_hour=3600e6,  # time is all that counts here
    )


def estimates(data: DataSet, known: dict[str, Way]) -> tuple[Estimate, ...]:
    """Return the estimates of the ways that exist here."""
    return predict(inventory_of(data), use_of(data), None, HERE, known)


def measured(site: Site, data: DataSet, known: dict[str, Way]) -> dict[str, Any]:
    """Run every way of a data set, and return what was advised, predicted and taken."""
    store = site.folder / "s3/bucket"
    data.fill(store / data.name)
    try:
        advice = recommend(estimates(data, known), inventory_of(data), use_of(data))
        shards = next((each.shards for each in advice.estimates if each.shards), None)
        prepared = site.reshard(data, shards.number, f"{data.name}-tar") if shards else 0.0
        ways = sorted(advice.estimates, key=lambda each: (each.name != advice.best.name, cost_s(each, use_of(data))))

        def seconds(each: Estimate, limit: float = 30.0) -> float:
            prefix, content_type = (f"{data.name}-tar", "application/x-tar") if each.shards else (data.name, kind(data))
            extra = prepared / data.jobs if each.shards else 0.0
            return site.run(each.way, prefix, data, content_type, max(limit - extra, 0.1)) + extra

        taken: dict[str, float] = {}
        for each in ways:
            taken[each.name] = seconds(each, min(taken.values(), default=30.0))
        best = min(taken, key=taken.__getitem__)
        first_loss = taken[advice.best.name] / taken[best] - 1
        if first_loss > DOUBTFUL:
            both = [each for each in ways if each.name in (advice.best.name, best)]
            again = [[seconds(each) for each in both] for _ in range(3)]
            taken |= {
                each.name: statistics.median(row) for each, row in zip(both, zip(*again, strict=True), strict=True)
            }
            best = min((each.name for each in both), key=taken.__getitem__)
        return {
            **asdict(data),
            "latency": site.latency,
            "advised": advice.best.name,
            "best": best,
            "first_loss": first_loss,
            "loss": taken[advice.best.name] / taken[best] - 1,
            "taken": taken,
            "predicted": {each.name: cost_s(each, use_of(data)) for each in advice.estimates},
            "prepared": prepared,
            "predicted_prepare": next((each.prepare_s for each in advice.estimates if each.shards), 0.0),
            "load": os.getloadavg()[0],
        }
    finally:
        shutil.rmtree(store / data.name, ignore_errors=True)
        shutil.rmtree(store / f"{data.name}-tar", ignore_errors=True)


def main(file: Path, count: str = "200", seed: str = "1", latencies: str = "0.1,0.2") -> None:
    """Run so many data sets at each latency."""
    logging.disable(logging.WARNING)
    found = []
    with ExitStack() as stack, file.open("a") as lines:
        for latency in map(float, latencies.split(",")):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "s3/bucket").mkdir(parents=True)
            with far_store(folder, latency) as url:
                site = Site(folder, latency, url)
                for number in range(int(count)):
                    if number % AGAIN == 0:
                        known = calibrated(site)
                        print(*known.values(), sep="\n", flush=True)
                    row = measured(site, generated(number, f"{seed}/{latency}"), known)
                    found.append(row)
                    lines.write(json.dumps(row) + "\n")
                    lines.flush()
                    print(number, f"{row['loss']:.1%}", row["advised"], "best", row["best"], flush=True)
    losses = sorted(row["loss"] for row in found)
    print(f"{len(losses)} data sets: loss {statistics.median(losses):.1%} (median), {losses[-1]:.1%} (worst)")


def calibrated(site: Site) -> dict[str, Way]:
    """Return the ways on this machine and store, from four jobs by each: few objects, three epochs, many, and large."""
    few, many, large = (
        DataSet(*row, 1, 0, 1) for row in (("few", 8, 1000, 1), ("many", 400, 1000, 1), ("large", 10, 4_000_000, 1))
    )
    jobs = (few, replace(few, epochs=3), many, large)
    known = {}
    for each in (few, many, large):
        if not (folder := site.folder / "s3/bucket" / each.name).exists():
            each.fill(folder)
    for name in ("File", "FastFile", "Pipe", "S3Connector"):
        site.run(name, few.name, few, None, 60)  # the first of a process imports
        rounds = [[site.run(name, each.name, each, None, 60) for each in jobs] for _ in range(2)]
        taken = [statistics.mean(each) for each in zip(*rounds, strict=True)]
        way = replace(
            WAYS[name],
            latency_s=site.latency,
            streams=STREAMS.get(name, WAYS[name].streams),
            set_up_s=0,
            objects_per_s=1e12,
            bytes_per_s=1e12,
        )
        expected = [next(e for e in estimates(each, {name: way}) if e.name == name).job_s for each in jobs]
        if name != "File":  # whose epochs read the disk
            ratio = (taken[1] - taken[0]) / (expected[1] - expected[0])
            way = replace(way, latency_s=site.latency * max(ratio, 1))
        if name != "S3Connector":
            way = replace(way, set_up_s=max(taken[0] - expected[0], 0))
        once = taken[0] - site.latency * (name == "File")  # before objects and bytes count
        for job, amount, field in ((2, many.objects, "objects_per_s"), (3, large.total, "bytes_per_s")):
            is_slower = taken[job] - taken[0] > 1.1 * (expected[job] - expected[0])
            changed: dict[str, Any] = {field: amount / (taken[job] - once) if is_slower else 1e9}
            way = replace(way, **changed)
        known[name] = way
    return known


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
