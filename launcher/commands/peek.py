"""`launch peek`: the first samples of a channel, as its training reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from launcher.commands import options
from launcher.commands.advise import channels_asked, folders_option
from launcher.commands.local import data_option
from launcher.console import Console, counted, human_bytes, print_line, say, show_error
from launcher.errors import InputError, RefusedError
from launcher.rules.channels.content_types import MIME_TYPES
from sagemaker_channels.mask import Mask

_TEXT = 60  # characters of a text on a line


@options.command("peek", "peek job.yaml train --count 2")
@options.group(
    "asked",
    click.argument("spec", type=options.SpecOrUri(), metavar="SPEC_OR_DATA"),
    click.argument("chosen", nargs=-1, metavar="[CHANNEL]..."),
    click.option("--count", type=click.IntRange(1, 1000), default=8, metavar="N", help="How many samples to read."),
    click.option(
        "--format",
        "form",
        metavar="FORMAT",
        shell_complete=lambda *_: [*MIME_TYPES],
        help="What an object holds, such as tar, in place of the channel's content_type.",
    ),
    click.option(
        "--sheet",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Draw the images into a .png file.",
    ),
    data_option,
    folders_option,
    options.json_option,
)
@options.spec_options
@options.account_options
def peek(asked: SimpleNamespace, reading: options.SpecOptions, where: options.AccountOptions) -> int | None:
    """Show the first samples of a channel.

    These are the first samples of each CHANNEL of a spec (all by default), of s3://bucket/prefix or of a folder, by the formats
    that read them in the job: their keys, and the type, size and beginning of each field. Of a prefix no more is listed and read
    than that needs, at most 256 MB. Damaged samples are named, and the exit code is 3 then.
    """
    from launcher.survey.channels import objects_of
    from launcher.survey.inventory import format_of_name
    from launcher.survey.samples import check_sheet, contact_sheet, first_samples

    if asked.sheet:
        check_sheet(asked.sheet)
    account, _, channels = channels_asked(asked, reading, where, augmented=True)
    console, found, samples = Console(as_json=asked.as_json), {}, []
    for each in channels:
        channel = replace(each, content_type=asked.form or each.content_type)
        if channel.storage != "S3" and asked.data is None and channel.folder is None:
            remedy = f"mount it here, and pass --channel {channel.name}=PATH"
            raise InputError(f"channels.{channel.name}: {channel.shown} cannot be read from here; {remedy}")
        if channel.attributes and channel.folder is not None:
            remedy = "leave out --channel, or pass --data DIR"
            raise InputError(f"channels.{channel.name}: its augmented manifest names objects in S3; {remedy}")
        reading_it = console.progress(f"reading {channel.shown}", counted=False)
        with objects_of(channel, account, asked.data) as (objects, place), reading_it:
            read = first_samples(channel, objects, place, asked.count)
        samples += read.samples
        data = _as_data(read, account.mask)
        found[channel.name] = {"data": channel.shown, "way": channel.present, **data}
        kinds = [each["type"] for sample in data["samples"] for each in sample["fields"]][:1]
        kinds += [format_of_name(sample["key"] or "") for sample in data["samples"][:1]]
        kind = next((each for each in kinds if each in MIME_TYPES), None)
        if read.format == "objects" and kind:
            say(
                f"{channel.name}: the objects are {kind}; --format {kind}, or content_type in the spec, reads their samples"
            )
        if not asked.as_json:
            _show(channel.name, found[channel.name])
    if asked.as_json:
        options.print_json(found)
    if asked.sheet:
        say(f"{asked.sheet}: {counted(contact_sheet(samples, asked.sheet), 'image')}")
    damaged = sum(len(each["damaged"]) for each in found.values())
    if damaged:
        show_error(f"{counted(damaged, 'sample')} cannot be read; replace what is damaged, or pass --format")
    return RefusedError.exit_code if damaged else None


def _as_data(read: Any, mask: Mask) -> dict[str, Any]:
    from launcher.survey.samples import described
    from sagemaker_channels.sample import KEY

    damaged, endings, samples = list(read.damaged), Counter[str](), []
    for number, sample in enumerate(read.samples):
        fields = [described(name, value, mask) for name, value in sample.items() if name != KEY]
        key = sample.get(KEY)
        damaged += [
            f"{key or f'sample {number}'}: {each['field']}: {each['damaged']}" for each in fields if "damaged" in each
        ]
        endings.update(each["field"] for each in fields)
        samples.append({"key": key, "fields": fields})
    keys = Counter(Path(str(each["key"])).suffix or "no ending" for each in samples if each["key"])
    about = {"format": read.format, "objects": read.objects, "bytes": read.bytes}
    return {**about, "fields": endings, "keys": keys, "damaged": damaged, "samples": samples}


def _show(name: str, found: dict[str, Any]) -> None:
    by = f" by {found['way']}" if found["way"] else ""
    print_line(f"{name}: {found['data']}{by}, as {found['format']}")
    for number, sample in enumerate(found["samples"]):
        print_line(
            f"  {sample['key'] or f'sample {number}, without a key'}  {'; '.join(map(_in_words, sample['fields']))}"
        )
    for text in found["damaged"]:
        print_line(f"  damaged: {text}", "red")
    counts = (", ".join(f"{name} {count}" for name, count in found[kind].items()) or "-" for kind in ("fields", "keys"))
    of = f"{counted(len(found['samples']), 'sample')} of {counted(found['objects'], 'object')}"
    print_line(f"  {of}, {human_bytes(found['bytes'])} read; fields: {next(counts)}; endings of keys: {next(counts)}")


def _in_words(field: dict[str, Any]) -> str:
    """Return `data jpeg 64x48 RGB, 3.1 kB`, or `cls text, 1 byte "3"`."""
    size = f" {field['size'][0]}x{field['size'][1]} {field['mode']}" if "size" in field else ""
    length = f", {human_bytes(field['bytes'])}" if "bytes" in field else ""
    text = " ".join(field.get("text", "").split())
    shown = f' "{text[:_TEXT]}{"..." * (len(text) > _TEXT)}"' if "text" in field else ""
    return f"{field['field']} {field['type']}{size}{length}{shown}"
