"""Everything found out about one channel, and the advice that follows from it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from launcher.account.check import Subject
from launcher.advice.facts import Advice, Inventory, Observed, Shards, Use
from launcher.advice.prediction import predict
from launcher.advice.recommendation import recommend
from launcher.advice.text import advice_as_data, advice_as_text, inventory_as_text
from launcher.aws.session import Account
from launcher.console import Console, counted
from launcher.spec.channels import KINDS
from launcher.survey.channels import Channel, named_keys, objects_of
from launcher.survey.inventory import MAX_KEYS, take_inventory
from launcher.survey.use import use_of, with_answers


@dataclass(frozen=True)
class Question:
    """What the command line asks, for all channels."""

    account: Account
    subject: Subject | None  # the job of the spec
    data: Path | None  # the folder in place of AWS, which is then not asked
    use: Sequence[str]  # answers of the user, NAME=VALUE
    full: bool
    measured: Observed


@dataclass(frozen=True)
class Findings:
    """What was found out about a channel; without inventory and advice if its data cannot be listed from here."""

    channel: Channel
    use: Use
    observed: Observed
    notes: tuple[str, ...]
    inventory: Inventory | None = None
    advice: Advice | None = None

    def as_text(self) -> Iterator[str]:
        by = f" by {self.channel.present}" if self.channel.storage == "S3" and self.channel.present else ""
        yield f"{self.channel.name}: {self.channel.shown}{by}"
        if self.inventory is not None:
            yield from inventory_as_text(self.inventory)
        yield f"read: {counted(self.use.epochs or 1, 'epoch')} a job"
        if self.observed.source:
            yield f"observed: {self.observed.source}"
        yield from self.notes
        if self.advice is not None:
            yield from advice_as_text(self.advice, self._first())

    def _first(self) -> str | None:
        """Return what to do first: the command that makes the shards, or the keys to write; None if nothing is to change."""
        assert self.advice is not None
        best, present = self.advice.best, self.channel.present
        if best.shards:
            return reshard_command(self.channel, best.shards)
        source, kind = next((name, kind) for name, kind in KINDS.items() if best.way in kind.WAYS)
        style = ["style: map"] * ("style" in kind.model_fields and bool(self.use.random_access))
        if present is None or (best.way == present and not (style and self.channel.style != "map")):
            return None
        keys = [f"source: {source}"] * (present not in kind.WAYS) + style
        keys += [f"input_mode: {best.way}"] * (best.way in kind.PROVIDERS)
        see = (
            f", and the other keys of `launch --example {kind.EXAMPLE}`"
            if "file_system_id" in kind.model_fields
            else ""
        )
        return f"write {', '.join(keys)} below channels.{self.channel.name}{see}"

    def as_data(self) -> dict[str, Any]:
        return {
            "data": self.channel.shown,
            "inventory": self.inventory and asdict(self.inventory),
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


def look_at(channel: Channel, question: Question, console: Console) -> Findings:
    """Find out about a channel. Raises RefusedError if the data cannot be listed, or there are none."""
    account, is_here = question.account, question.data is not None or channel.folder is not None
    use = with_answers(use_of(channel, question.subject, ask=not is_here), question.use)
    found = Findings(channel, use, question.measured, ())
    if use.random_access and channel.style == "iterable":
        use = replace(use, present=None)  # the model knows one S3Connector, which is the one with style map
        note = "style: iterable, which does not read samples by index; S3Connector does with style: map"
        found = replace(found, use=use, notes=(note,))
    if channel.storage != "S3" and not is_here:
        folder = f"DIR/{KINDS[channel.storage].data_folder()}/{channel.place.bucket}"
        note = f"unknown: its files; mount it on a machine as {folder} and run this there with --data DIR"
        return replace(found, notes=(*found.notes, note))
    with (
        objects_of(channel, account, question.data) as (objects, place),
        console.progress(f"listing {channel.shown}", counted=False),
    ):
        prefix, named = named_keys(channel, objects) or (place, None)
        most = None if question.full else MAX_KEYS
        inventory = take_inventory(objects, prefix, channel.storage, named=named, most=most)
    advice = recommend(predict(inventory, use, found.observed), inventory, use)
    return replace(found, inventory=inventory, advice=advice)
