"""A channel's samples as shards in S3 or in a folder, written by each host for itself.

    <output>shards/<host>-<number>.<ending>   the shards
    <output>progress/<host>.json              after each shard: the shards so far, and the position of the next sample
    <output>index.json, manifest.json         last: name, count, bytes and digest of each shard; the manifest for SageMaker

A shard is complete when S3 has it, it was read back with the digest of its samples, and the progress has it. A host that starts
again continues there, and the shards are those of a run without a break; objects that follow later become further shards. The last
host to finish writes index and manifest.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from itertools import chain, count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sagemaker_channels.checkpointing.place import Bucket, Folder
from sagemaker_channels.epoch.samples import Samples
from sagemaker_channels.errors import ChannelError, no_room
from sagemaker_channels.formats import format_of
from sagemaker_channels.formats.format import Format
from sagemaker_channels.formats.shards import write_shard, writer_of
from sagemaker_channels.formats.signatures import shard_in
from sagemaker_channels.formats.writing import SampleError, refusal
from sagemaker_channels.sample import DATA, KEY, Sample
from sagemaker_channels.samples.digest import MODULUS, Tally
from sagemaker_channels.samples.lst import Line, line_of
from sagemaker_channels.sources.background import in_background
from sagemaker_channels.sources.listing import Listed

_REPORT_SECONDS = 30.0  # between lines about an incomplete shard


@dataclass(frozen=True)
class Target:
    uri: str  # s3://bucket/folder/, or a folder's path
    format: str
    shard_bytes: int
    # The options that decide which samples a shard has; a run with others must not continue it.
    settings: Mapping[str, Any]
    host: int = 0
    hosts: int = 1
    named: bool = True  # each sample of the channel has a `__key__` of its own
    objects: Callable[[], Sequence[Listed]] | None = None  # lists the channel's objects, those of other hosts too

    @property
    def store(self) -> Bucket | Folder:
        return Bucket(self.uri) if self.uri.startswith("s3://") else Folder(self.uri)

    def read(self, host: int) -> Any:
        """Return the progress of a host; None if there is none."""
        data = self.store.content(_progress_of(host))
        return None if data is None else json.loads(data)

    def write(self, name: str, value: Any) -> None:
        data = (json.dumps(value, indent=1) + "\n").encode()
        self.store.write(name, lambda stream: stream.write(data))

    def save(self, progress: Progress) -> None:
        self.write(_progress_of(self.host), asdict(progress))

    def shards(self) -> dict[str, int]:
        """Return the sizes of the shards by name, without those that an interrupted run has left unfinished."""
        found = ((*path.partition("shards/"), size) for path, size in self.store.sizes().items())
        return {name: size for folder, below, name, size in found if below and not folder and name[0] != "."}


@dataclass
class Progress:
    settings: Mapping[str, Any]
    shards: list[dict[str, Any]] = field(default_factory=list)  # name, count, bytes, digest
    state: dict[str, Any] | None = None  # of the samples behind the last shard
    complete: bool = False
    objects: dict[str, str] | None = None  # the last key, and the digest of all keys, sizes and ETags


def say(text: str) -> None:
    print(text, flush=True)


def write_host(samples: Samples, target: Target, lines: Mapping[str, Line] | None) -> None:
    """Write the shards of this host, from where an earlier run ended. `lines` has the labels of the samples; None without labels.

    Raises ChannelError if a sample does not fit the format or has no label, S3 refuses, the disk is full, or the prefix has other
    shards.
    """
    progress = _begin(samples, target)
    with TemporaryDirectory(prefix="reshard-") as folder, closing(samples):
        storing = None
        before = sum(shard["count"] for shard in progress.shards)
        for number in count(len(progress.shards)):
            file, tally = Path(folder, str(number % 2)), Tally()  # the other one is being stored
            first = list(islice(samples, 1))
            if first:
                if not before and (found := shard_in(first[0].get(DATA))):
                    say(f"warning: an object is {found.what}, packed as one sample; {found.remedy} (--content-type)")
                name = f"{target.host:04d}-{number:06d}"
                prepared = _prepared(chain(first, samples), target, lines, before, (name, tally))
                try:
                    before += write_shard(prepared, file, target.format, target.shard_bytes)
                except SampleError as error:
                    sample, *what = error.args
                    raise ChannelError(f"{target.format}: {SampleError(before + sample, *what)}") from error
                except OSError as error:
                    raise no_room(f"two shards of {target.shard_bytes / 1e6:,} MB", folder, error.strerror) from error
            state = samples.state_dict(at_end=True)  # A later run may find more objects.
            if storing is not None:
                storing.result()
            if not first:
                progress.complete, progress.state = True, state
                target.save(progress)
                return
            storing = in_background(partial(_store, file, name, tally, state, target, progress), "shard")


def _begin(samples: Samples, target: Target) -> Progress:
    """Return the progress of an earlier run, at which the samples then continue, or that of a new run."""
    found = target.read(target.host)
    remedy = "write to an empty prefix, or remove everything below this one"
    # A list that the earlier run did not have may have the labels of further objects.
    for name, value in found["settings"].items() if found else ():
        if value != target.settings.get(name):
            differs = f"{name} {value}, not {target.settings.get(name)}"
            raise ChannelError(
                f"{target.uri} has shards of a run with {differs}", remedy=f"continue with the same options, {remedy}"
            )
    ending = str(writer_of(target.format).ending)
    own = tuple(f"{host:04d}-" for host in range(target.hosts))
    if foreign := [name for name in target.shards() if not (name.startswith(own) and name.endswith(ending))]:
        raise ChannelError(f"{target.uri} has shards/{foreign[0]}, which is not a shard of this run", remedy=remedy)
    progress = Progress(**{**(found or {}), "settings": target.settings})
    if target.objects is not None:
        known = progress.objects or {"last": "", "digest": _digest(())}
        objects = target.objects()
        if _digest(each for each in objects if each.key <= known["last"]) != known["digest"]:
            changed = f"of the objects up to {known['last']}, some have been changed, added or removed since"
            raise ChannelError(f"{target.uri} has shards of an earlier run, and {changed}", remedy=remedy)
        progress.objects = {"last": max(each.key for each in objects), "digest": _digest(objects)}
    if progress.state is not None:
        samples.load_state_dict(progress.state)
        say(f"{target.uri}: continues after {_counted(len(progress.shards), 'shard')} of an earlier run")
    else:
        target.save(progress)  # S3 refuses now what it would refuse later
    return progress


def _digest(objects: Iterable[Listed]) -> str:
    texts = (f"{each.key}\0{each.size}\0{each.version}".encode("utf-8", "surrogateescape") for each in objects)
    return f"{sum(int.from_bytes(sha256(text).digest(), 'big') for text in texts) % MODULUS:064x}"


def _progress_of(host: int) -> str:
    return f"progress/{host:04d}.json"


def _store(file: Path, shard: str, tally: Tally, state: dict[str, Any], target: Target, progress: Progress) -> None:
    """Upload a shard, read it back, and add it to the progress. Raises ChannelError if S3 does not return its samples."""
    name = f"{shard}{writer_of(target.format).ending}"

    def write(stream: Any) -> None:
        with file.open("rb") as content:
            shutil.copyfileobj(content, stream, 1 << 20)

    target.store.write(f"shards/{name}", write)
    stored = Tally()
    with target.store.open(f"shards/{name}") as stream:
        for sample in writer_of(target.format).split(stream, f"shards/{name}"):
            stored.add(sample)
    if stored != tally:
        raise ChannelError(
            f"{target.uri}shards/{name} has {stored.count:,} samples with digest {stored.hex}, but {tally.count:,} with"
            f" {tally.hex} were written",
            remedy="start the job again",
        )
    size = file.stat().st_size
    progress.shards.append({"name": name, "count": tally.count, "bytes": size, "digest": tally.hex})
    progress.state = state
    target.save(progress)
    say(f"shards/{name}: {_amount(tally.count, size)}, digest {tally.hex[:16]}")


def finish(target: Target) -> dict[str, Any] | None:
    """Write index and manifest if all hosts are complete, and return the index; None if another host will do it.

    Raises ChannelError if the objects below `shards/` are not those that the hosts wrote.
    """
    found = [target.read(host) for host in range(target.hosts)]
    if not all(each and each["complete"] for each in found):
        say(f"{target.uri}: this host is complete; the last one writes the index")
        return None
    shards = [shard for each in found for shard in each["shards"]]
    there, expected = target.shards(), {shard["name"]: shard["bytes"] for shard in shards}
    if there != expected:
        name = min(name for name in {**there, **expected} if there.get(name) != expected.get(name))
        raise ChannelError(
            f"{target.uri}shards/{name} has {there.get(name)} bytes, expected {expected.get(name)}",
            remedy="do not change the prefix while the job runs; remove everything below it and start again",
        )
    index = {
        "format": target.format,
        "count": sum(shard["count"] for shard in shards),
        "bytes": sum(shard["bytes"] for shard in shards),
        "digest": f"{sum(int(shard['digest'], 16) for shard in shards) % MODULUS:064x}",
        "shards": shards,
    }
    target.write("index.json", index)
    if target.uri.startswith("s3://"):  # SageMaker's manifests name a prefix in S3
        target.write("manifest.json", [{"prefix": f"{target.uri}shards/"}, *expected])
    say(
        f"{target.uri}: {_counted(len(shards), 'shard')} with {_amount(index['count'], index['bytes'])}, "
        f"digest {index['digest'][:16]}, verified"
    )
    types = format_of(target.format).content_types  # none for a format that a script chooses
    how = f"content_type: {types[0]}" if types else f"format={target.format!r} in the script"
    say(f"train on {target.uri}shards/ with {how}")
    return index


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _amount(samples: int, size: int) -> str:
    return f"{_counted(samples, 'sample')}, {f'{size / 1e6:,.1f} MB' if size >= 50_000 else f'{size:,} bytes'}"


def _prepared(
    samples: Iterable[Sample],
    target: Target,
    lines: Mapping[str, Line] | None,
    before: int,
    shard: tuple[str, Tally],
) -> Iterator[Sample]:
    """Yield the samples as the format holds them, add each to the shard's tally, and now and then print how far it is.

    Raises SampleError.
    """
    (name, tally), reported, form = shard, time.monotonic(), format_of(target.format)
    for number, sample in enumerate(samples, before):
        line = None if lines is None else line_of(sample, lines)
        key = (target.named and sample.get(KEY)) or f"{target.host:04d}-{number:010d}"
        try:
            fitting = _fitted(sample, form, line, key)
        except TypeError as error:
            raise refusal(number - before, sample, error) from error
        tally.add(fitting)
        if time.monotonic() > reported + _REPORT_SECONDS:
            reported = time.monotonic()
            say(f"shards/{name}: {_amount(tally.count, tally.bytes)} so far")
        yield fitting


def _fitted(sample: Sample, form: Format, line: Line | None, key: str) -> Sample:
    """Return a sample as the format holds it, with the labels of its line; `key` names it in a format that needs names."""
    fields = {name: value for name, value in sample.items() if name != KEY}
    if form.holds == "data" and len(fields) == 1:  # a record without names of fields
        fields = {DATA: next(iter(fields.values()))}
    if line is not None:
        labels: list[float] | float = list(line.labels) if len(line.labels) > 1 else line.labels[0]
        fields["label"] = " ".join(f"{label:g}" for label in line.labels) if form.named else labels
        fields |= {"id": line.index} if form.holds == "data" else {}
    own = {KEY: key} if form.named else {KEY: sample[KEY]} if KEY in sample else {}
    return form.fit(own | fields)
