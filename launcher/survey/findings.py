"""Everything found out about one channel, and the advice that follows from it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from launcher.account.check import Subject, why_not
from launcher.advice.facts import Advice, Inventory, Observed, Shards, Use
from launcher.advice.model import predict
from launcher.advice.recommendation import recommend
from launcher.advice.report import advice_as_data, advice_as_text, inventory_as_text
from launcher.aws.account import Account, AwsError
from launcher.console import Console, counted, duration, human_bytes
from launcher.errors import RefusedError
from launcher.spec.channels import KINDS
from launcher.survey.channels import Channel, named_keys, objects_of
from launcher.survey.inventory import MAX_KEYS, take_inventory
from launcher.survey.observed import Probe
from launcher.survey.use import DAYS, PastJob, observed_in, past_jobs, use_of, with_answers


@dataclass(frozen=True)
class Question:
    """What the command line asks, for all channels."""

    account: Account
    subject: Subject | None  # the job of the spec
    data: Path | None  # the folder in place of AWS, which is then not asked
    use: Sequence[str]  # answers of the user, NAME=VALUE
    probe: float | None  # seconds
    full: bool
    measured: Observed


@dataclass(frozen=True)
class Findings:
    """What was found out about a channel; without inventory and advice if its data cannot be listed from here."""

    channel: Channel
    past: list[PastJob] | None
    use: Use
    observed: Observed
    notes: tuple[str, ...]
    inventory: Inventory | None = None
    advice: Advice | None = None
    is_interrupted: bool = False  # whether Ctrl-C ended the probe

    def as_text(self) -> Iterator[str]:
        """Yield the lines of the channel's section."""
        by = f" by {self.channel.present}" if self.channel.storage == "S3" and self.channel.present else ""
        yield f"{self.channel.name}: {self.channel.shown}{by}"
        if self.inventory is not None:
            yield from inventory_as_text(self.inventory, self.use)
        epochs = f"{counted(self.use.epochs, 'epoch')} a job"
        yield f"read: {epochs}" + ("" if self.past is None else f"; {_in_words(self.past)}")
        if self.observed.source:
            yield f"observed: {self.observed.source}"
        yield from self.notes
        if self.advice is not None:
            shards = self.advice.best.shards
            yield from advice_as_text(self.advice, reshard_command(self.channel, shards) if shards else None)

    def as_data(self) -> dict[str, Any]:
        """Return the findings for `--json`."""
        return {
            "data": self.channel.shown,
            "inventory": self.inventory and {**asdict(self.inventory), "sizes": self.inventory.sizes._asdict()},
            "jobs": None if self.past is None else [asdict(each) for each in self.past],
            "use": asdict(self.use),
            "observed": asdict(self.observed),
            "notes": self.notes,
            "advice": self.advice and advice_as_data(self.advice),
        }


def reshard_command(channel: Channel, shards: Shards) -> str:
    """Return the command that makes the advised shards beside the data."""
    source = shlex.quote(str(channel.folder or channel.place))
    output = shlex.quote(f"{str(channel.folder or channel.place).rstrip('/')}-shards/")
    return f"launch reshard {source} {output} --format {shards.format} --shard-size {max(shards.bytes / 1e6, 1):.0f}MB"


def _in_words(past: Sequence[PastJob]) -> str:
    ways = ", ".join(f"{count} by {way}" for way, count in Counter(each.way for each in past).most_common())
    times = {
        "copied": [each.download_s for each in past if each.way == "File" and each.download_s],
        "trained": [each.training_s for each in past if each.training_s],
    }
    medians = ", ".join(f"{what} {duration(median(seconds))}" for what, seconds in times.items() if seconds)
    count = f"{counted(len(past), 'job') if past else 'no jobs'} in the last {DAYS} days"
    return f"{count} ({ways}{'; median: ' * bool(medians)}{medians}), the latest {past[0].name}" if past else count


def look_at(
    channel: Channel, question: Question, jobs: Sequence[Mapping[str, Any]] | None, console: Console
) -> Findings:
    """Find out about a channel. Raises RefusedError if the data cannot be listed, or there are none.

    `jobs` are the descriptions of the account's latest jobs; None if they are unknown.
    """
    account, is_here = question.account, question.data is not None or channel.folder is not None
    past = None if jobs is None else past_jobs(channel, jobs)
    use = with_answers(use_of(channel, question.subject, past, ask=not is_here), question.use)
    found = Findings(channel, past, use, question.measured, ())
    if use.random_access and channel.style == "iterable":
        use = replace(use, present=None)  # the model knows one S3Connector, which is the one with style map
        note = "style: iterable, which does not read samples by index; S3Connector does with style: map"
        found = replace(found, use=use, notes=(note,))
    if channel.storage != "S3" and not is_here:
        return replace(found, notes=tuple(known_of(account, channel)))
    with objects_of(channel, account, question.data) as (objects, place):
        with console.progress(f"listing {channel.shown}", counted=False):
            prefix, named = named_keys(channel, objects) or (place, None)
            most = None if question.full else MAX_KEYS
            inventory, sample = take_inventory(objects, prefix, channel.storage, named=named, most=most)
        if question.probe and sample:
            with console.progress(f"reading from {channel.shown}", counted=False):
                probe = Probe(objects, sample, question.probe)
                try:
                    found = replace(found, observed=probe.run(found.observed), is_interrupted=probe.interrupted)
                except RefusedError as error:
                    found = replace(found, notes=(*found.notes, f"unknown: how fast the data can be read: {error}"))
    inventory = replace(inventory, region=None if is_here else _region(account, place.bucket))
    observed = observed_in(past or (), inventory, use, found.observed)
    advice = recommend(predict(inventory, use, observed), inventory, use)
    return replace(found, inventory=inventory, observed=observed, advice=advice)


def _region(account: Account, bucket: str) -> str | None:
    try:
        region: str | None = account.call("s3", "head_bucket", Bucket=bucket).get("BucketRegion")
    except AwsError:  # what can be listed can be advised on
        return None
    return region


def known_of(account: Account, channel: Channel) -> Iterator[str]:
    """Yield what is known of a channel's file system, whose files cannot be listed from here, and how to find out more.

    Raises:
        AwsError: AWS does not accept the credentials.
    """
    name = channel.place.bucket
    try:
        if channel.storage == "EFS":
            (found,) = account.call("efs", "describe_file_systems", FileSystemId=name)["FileSystems"]
            used = human_bytes(found["SizeInBytes"]["Value"])
            yield f"there: {used} on the whole file system, {found['PerformanceMode']}, {found.get('ThroughputMode')}"
        else:
            (found,) = account.call("fsx", "describe_file_systems", FileSystemIds=[name])["FileSystems"]
            lustre, size = found.get("LustreConfiguration", {}), human_bytes(found.get("StorageCapacity", 0) * 2**30)
            speed = lustre.get("PerUnitStorageThroughput")
            yield f"there: space for {size}, {lustre.get('DeploymentType')}" + f", {speed} MB/s per TiB" * bool(speed)
    except AwsError as error:
        if error.is_unauthenticated:
            raise
        yield f"unknown: {why_not(error)}"
    folder = f"DIR/{KINDS[channel.storage].data_folder()}/{name}"
    yield f"unknown: its files; mount it on a machine as {folder} and run this there with --local --data DIR"
