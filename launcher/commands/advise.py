"""`launch advise SPEC`: which way each channel's data should arrive, with numbers and reasons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from launcher.advice.facts import ANSWERS, Observed, Use
from launcher.commands import options
from launcher.commands.local import data_option
from launcher.console import Console, print_line, say, show_error
from launcher.errors import InputError, RefusedError, has_folder
from launcher.lists.list_files import is_s3
from launcher.s3.uri import S3Location, parse_s3_uri

if TYPE_CHECKING:
    from launcher.account.check import Subject
    from launcher.aws.session import Account
    from launcher.survey.channels import Channel

folders_option = options.many(
    "--channel", "channels", metavar="NAME=PATH", help="The folder that a channel reads. Repeatable."
)


@options.command("advise", "advise job.yaml --use epochs=10")
@options.group(
    "asked",
    click.argument("spec", type=options.SpecOrUri(), metavar="SPEC_OR_DATA"),
    click.argument("chosen", nargs=-1, metavar="[CHANNEL]..."),
    options.many(
        "--use",
        metavar="NAME=VALUE",
        help=(
            "How the data are used, such as epochs=10, samples=1e6, edited_in_place=yes, start_within_s=5m or disk_bytes=100GB;"
            f" NAME is one of {', '.join(ANSWERS)}."
            " The jobs are those of 90 days that read the data. It holds for every channel, so name one CHANNEL if they differ."
            " Repeatable."
        ),
    ),
    click.option(
        "--measured",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A measure.json of `launch measure` of these data.",
    ),
    options.flag("--full", help="List every prefix to its end, however long that takes."),
    data_option,
    folders_option,
    options.json_option,
)
@options.spec_options
@options.account_options
def advise(asked: SimpleNamespace, reading: options.SpecOptions, where: options.AccountOptions) -> int | None:
    """Recommend how each channel's data should arrive.

    The ways are File, FastFile, Pipe, EFS, FSx and the S3 Connector. This looks at the data of each CHANNEL of a spec (all by
    default), of s3://bucket/prefix or of a folder of this machine; estimates what each way would take (start, first batch, epoch,
    whole job, disk, requests, price), also after resharding; and recommends one, with reasons. Times and prices are estimates,
    and nothing is changed.
    """
    from launcher.survey.findings import Question, look_at
    from launcher.survey.observed import read_measured
    from launcher.survey.use import with_answers

    with_answers(Use(), asked.use)  # refuses unknown ones before anything is asked
    console, found = Console(as_json=asked.as_json), dict[str, Any]()
    measured = read_measured(asked.measured) if asked.measured else Observed()
    account, subject, channels = channels_asked(asked, reading, where)
    if asked.data is None and not all(each.folder for each in channels):
        account.require_credentials()
    question = Question(account, subject, asked.data, asked.use, asked.full, measured)
    errors: dict[str, str] = {}
    for channel in channels:
        try:
            findings = look_at(channel, question, console)
        except RefusedError as error:
            place = f"{subject.draft.spec.locate(('channels', channel.name))}: " if subject else ""
            errors[channel.name] = f"{place}{error}"
            continue
        found[channel.name] = findings.as_data()
        if not asked.as_json:
            first, *lines = findings.as_text()
            print_line("\n  ".join([first, *lines]) + "\n")
    if asked.as_json:
        options.print_json(found | {name: {"error": error} for name, error in errors.items()})
    for text in errors.values():
        show_error(text)
    return RefusedError.exit_code if errors else None


def channels_asked(
    asked: SimpleNamespace, reading: options.SpecOptions, where: options.AccountOptions, *, augmented: bool = False
) -> tuple[Account, Subject | None, list[Channel]]:
    """Return the account, the job of the spec if there is one, and the channels to look at, `augmented` manifests if wanted.

    `asked` has a `spec`, the `chosen` channels, `data` and `channels`. Raises InputError.
    """
    from launcher.account.results import subject_of
    from launcher.jobs.submission import mask_settings
    from launcher.survey.channels import Channel, channels_of

    if asked.data is not None and not has_folder(asked.data):
        what = f"there is no directory {asked.data}; create it, or correct the path"
        raise InputError(f"--data {asked.data}: {what}")
    if is_s3(asked.spec) or options.is_folder(asked.spec):
        if reading.sets or asked.chosen or asked.channels:
            raise click.UsageError("--set, CHANNEL and --channel need a spec; pass job.yaml instead")
        folder = Path(asked.spec) if options.is_folder(asked.spec) else None
        if folder and asked.data is not None:
            raise click.UsageError(f"{folder} is a folder of this machine; leave out --data")
        place = S3Location("folder", "") if folder else parse_s3_uri(asked.spec)
        return where.open(), None, [Channel("data", place, folder=folder)]
    plan = reading.plan(asked.spec)
    account = where.open(plan)
    mask_settings(plan, account.mask)
    subject = subject_of(plan, account)
    paths = dict(map(_name_and_folder, asked.channels))
    only = asked.chosen or (() if asked.data else tuple(paths))
    channels, left_out = channels_of(subject, tuple(dict.fromkeys((*only, *paths))), augmented=augmented)
    for why in left_out:
        say(why)
    return account, subject, [replace(each, folder=paths.get(each.name)) for each in channels]


def _name_and_folder(text: str) -> tuple[str, Path]:
    """Return the channel and the folder of `NAME=PATH`. Raises InputError."""
    name, _, path = text.partition("=")
    if not path:
        raise InputError(
            f"--channel {text}: write NAME=PATH, such as train=./images; to advise on one channel, write its name after SPEC"
        )
    if not has_folder(path):
        raise InputError(f"--channel {text}: there is no folder {path}; correct the path")
    return name, Path(path)
