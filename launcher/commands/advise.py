"""`launch advise SPEC`: which way each channel's data should arrive, with numbers and reasons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.advice.facts import ANSWERS, Observed, Use
from launcher.commands.card import Command
from launcher.commands.options import (
    AccountOptions,
    SpecOptions,
    SpecOrUri,
    argument,
    flag,
    is_folder,
    open_account,
    option,
    plot_file,
    repeatable,
)
from launcher.console import Console, print_line, say, shown_path
from launcher.errors import InputError, RefusedError
from launcher.lists.files import is_s3
from launcher.s3.uri import S3Location, parse_s3_uri

if TYPE_CHECKING:
    from launcher.account.check import Subject
    from launcher.aws.account import Account
    from launcher.survey.channels import Channel
    from launcher.survey.findings import Findings

_INTERRUPTED = 130


class Advise(SpecOptions, AccountOptions, Command):
    """Advise which way each channel's data should arrive: File, FastFile, Pipe, EFS, FSx or the S3 Connector.

    Look at the data of each CHANNEL of SPEC (all by default), of s3://bucket/prefix or of a folder of this machine, and at the
    jobs of the last 90 days that read them; estimate what each way would take (start, first batch, epoch, whole job, disk, memory,
    requests, price), also after resharding; and recommend one, with reasons. Times and prices are estimates. Nothing is changed,
    except SPEC by --apply.
    """

    example = "advise job.yaml --use epochs=10"

    spec: str = argument(type=SpecOrUri(), metavar="SPEC")
    chosen: tuple[str, ...] = argument(nargs=-1, metavar="[CHANNEL]...")
    use: tuple[str, ...] = repeatable(
        metavar="NAME=VALUE",
        help=(
            "How the data are used, such as epochs=10, samples=1e6, edited_in_place=yes, start_within_s=5m or disk_bytes=100GB;"
            f" NAME is one of {', '.join(ANSWERS)}."
            " The jobs are those of 90 days. It holds for every channel, so name one CHANNEL if they differ. Repeatable."
        ),
    )
    probe: float | None = option(
        type=click.FloatRange(1, 3600), metavar="SECONDS", help="Read a sample of the data for this time, from here."
    )
    measured: Path | None = option(
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="A measure.json of `launch measure` of these data.",
    )
    full: bool = flag(help="List every prefix to its end, however long that takes.")
    local: bool = flag(help="Look at folders of this machine, and ask AWS nothing.")
    data: Path | None = option(
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="With --local: the folder, with DIR/s3/<bucket>/..., DIR/efs/<fs-id>/ and DIR/fsx/<fs-id>/.",
    )
    channels: tuple[str, ...] = repeatable(
        "--channel",
        metavar="NAME=PATH",
        help="With --local: the folder that a channel reads; without --data, only these are looked at. Repeatable.",
    )
    apply: bool = flag(help="Write the advice into SPEC; its comments and formatting stay.")
    plot: Path | None = plot_file("Draw the ways")

    def run(self) -> int:
        """Print a section for each channel; then apply the advice if asked to."""
        self._check_options()
        from launcher.advice.report import draw

        found, errors = self._look(Console(as_json=self.as_json))
        if self.as_json:
            data = {each.channel.name: each.as_data() for each in found}
            data |= {name: {"error": str(error)} for name, error in errors.items()}
            self.print_json(data)
        for error in errors.values():
            say(f"error: {error}", "red")
        advice = {each.channel.name: each.advice for each in found if each.advice}
        if self.plot and advice:
            draw(advice, self.plot)
            say(f"plot {shown_path(self.plot)}")
        if found and found[-1].is_interrupted:
            say("interrupted; the advice is based on what was read until then")
            return _INTERRUPTED
        if errors:
            return RefusedError.exit_code
        if self.apply:
            from launcher.survey.applying import apply

            changes = apply(Path(self.spec), {each.channel.name: each for each in found})
            say(f"{self.spec}: {', '.join(changes) or 'has the advised ways already'}")
        return 0

    def _look(self, console: Console) -> tuple[list[Findings], dict[str, RefusedError]]:
        """Return what was found out about each channel, after printing its section, and the errors of the others."""
        from launcher.survey.findings import Question, look_at
        from launcher.survey.observed import read_measured
        from launcher.survey.use import recent_jobs

        measured = read_measured(self.measured) if self.measured else Observed()
        account, subject, channels = self._channels()
        question = Question(account, subject, self.data, self.use, self.probe, self.full, measured)
        jobs = None
        if self.data is None and not all(each.folder for each in channels):
            with console.progress("asking which jobs read the data", counted=False):
                jobs, note = recent_jobs(account)
            if note:
                say(note)
        found: list[Findings] = []
        errors: dict[str, RefusedError] = {}
        for channel in channels:
            try:
                each = look_at(channel, question, jobs, console)
            except RefusedError as error:
                where = f"{subject.draft.spec.locate(('channels', channel.name))}: " if subject else ""
                errors[channel.name] = RefusedError(f"{where}{error}")
                continue
            found.append(each)
            if not self.as_json:
                first, *lines = each.as_text()
                print_line("\n  ".join([first, *lines]) + "\n")
            if each.is_interrupted:
                break
        return found, errors

    def _channels(self) -> tuple[Account, Subject | None, list[Channel]]:
        """Return the account, the job of the spec if there is one, and the channels to look at."""
        from launcher.account.runner import subject_of
        from launcher.jobs.submission import mask
        from launcher.survey.channels import Channel, channels_of

        if is_s3(self.spec) or is_folder(self.spec):
            folder = Path(self.spec) if is_folder(self.spec) else None
            place = S3Location("folder", "") if folder else parse_s3_uri(self.spec)
            return open_account(self.region, self.profile), None, [Channel("data", place, folder=folder)]
        plan = self.plan(self.spec)
        account = open_account(self.region or plan.spec.region, self.profile or plan.spec.profile)
        mask(plan, account)
        subject = subject_of(plan, account)
        paths = dict(map(_name_and_folder, self.channels))
        only = self.chosen or (() if self.data else tuple(paths))
        channels, left_out = channels_of(subject, tuple(dict.fromkeys((*only, *paths))))
        for why in left_out:
            say(why)
        return account, subject, [replace(each, folder=paths.get(each.name)) for each in channels]

    def _check_options(self) -> None:
        from launcher.survey.use import with_answers

        if self.local != (self.data is not None or bool(self.channels)):
            raise click.UsageError("--local needs --data DIR or --channel NAME=PATH, and these need --local")
        if self.data is not None and not self.data.is_dir():
            raise InputError(f"--data {self.data}: there is no directory {self.data}; create it, or correct the path")
        if is_folder(self.spec) and self.local:
            raise click.UsageError(f"{self.spec} is a folder of this machine; leave out --local, --data and --channel")
        if (is_s3(self.spec) or is_folder(self.spec)) and (self.sets or self.chosen or self.channels or self.apply):
            raise click.UsageError("--set, CHANNEL, --channel and --apply need a spec; pass job.yaml instead")
        if self.apply and (self.sets or self.spec == "-"):
            raise click.UsageError("--apply changes SPEC, so it works neither with --set nor with -; edit SPEC first")
        with_answers(Use(), self.use)


def _name_and_folder(text: str) -> tuple[str, Path]:
    """Return the channel and the folder of `NAME=PATH`. Raises InputError."""
    name, _, path = text.partition("=")
    if not path:
        raise InputError(
            f"--channel {text}: write NAME=PATH, such as train=./images; to advise on one channel, write its name after SPEC"
        )
    if not Path(path).is_dir():
        raise InputError(f"--channel {text}: there is no folder {path}; correct the path")
    return name, Path(path)
