"""`launch init`: a spec for a folder, from what is in it, a look at the account, and at most three questions."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

import launcher
from launcher import bundled
from launcher.account.needs import ARN
from launcher.commands import options
from launcher.commands.local import yes_option
from launcher.console import print_line, say, show_problems, shown_path
from launcher.errors import InputError, RefusedError, SpecError, SpecPath, did_you_mean_path, dotted, has_folder
from launcher.parsing.layers import Assignment
from launcher.parsing.team_files import values_below
from launcher.rules.team_rules import REQUIRED
from launcher.s3.uri import parse_s3_uri
from launcher.spec.model import value_at
from launcher.spec.team import OUTPUT, Team

if TYPE_CHECKING:
    from launcher.aws.session import Account
    from launcher.survey.draft import Places

_REGION, _NO_ACCOUNT = "us-east-1", "123456789012"
_EXAMPLE = ":role/SageMakerTraining"
_MOST_ROLES = 10  # that are shown


def _machine(value: str) -> str:
    """Return an instance type. Raises click.BadParameter."""
    if not re.fullmatch(r"ml\.[a-z0-9-]+\.[a-z0-9-]+", value):
        raise click.BadParameter(f"expected an instance type such as ml.g5.xlarge, got {value!r}")
    return value


def _role(value: str) -> str:
    if not ARN.fullmatch(value):
        raise click.BadParameter(f"expected the ARN of a role, got {value!r}; `aws iam list-roles` shows them")
    return value


def _prefix(value: str) -> str:
    """Return `s3://bucket/prefix/`."""
    try:
        return f"{str(parse_s3_uri(value)).rstrip('/')}/"
    except RefusedError as error:
        raise click.BadParameter(str(error)) from None


# Each answer's option, question and check, and the keys of which one has it already if the layers below the spec give it.
_ANSWERS: dict[str, tuple[str, str, Callable[[str], str], list[SpecPath]]] = {
    "instance_type": (
        "--instance-type",
        "Instance type",
        _machine,
        [("resource_config", key) for key in ("instance_type", "instance_groups", "instance_preferences")],
    ),
    "role": ("--role", "Role of the job (ARN)", _role, [("role_arn",)]),
    "bucket": ("--bucket", "Bucket or prefix of data and outputs", _prefix, [OUTPUT]),
}
_OPTIONS = {("region",): "--region", **{paths[0]: option for option, _, _, paths in _ANSWERS.values()}}


@options.command("init", "init --role arn:aws:iam::123456789012:role/training --bucket s3://mine/pets --yes --dry-run")
@click.argument("folder", type=click.Path(path_type=Path), default=".", metavar="[FOLDER]")
@click.option(
    "--data",
    type=_prefix,
    metavar="URI",
    help="The prefix of the data, if they are in S3 already, such as s3://bucket/images/.",
)
@options.group(
    "answers",
    click.option("--instance-type", type=_machine, metavar="TYPE", help="The instance type, such as ml.g5.xlarge."),
    click.option("--role", type=_role, metavar="ARN", help="The role that the job runs as."),
    click.option("--bucket", type=_prefix, metavar="URI", help="The bucket, or a prefix, of data and outputs."),
    kind=dict,
)
@options.many(
    "--set", "sets", metavar="PATH=VALUE", help="Another key of the spec, such as tags.team=vision. Repeatable."
)
@click.option(
    "-o",
    "--output",
    type=options.LocalPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The spec to write, by default job.yaml in FOLDER; a file that exists is not replaced.",
)
@options.flag("--dry-run", help="Print the spec, and write nothing.")
@yes_option
@options.json_option
@options.account_options
def init(
    folder: Path,
    data: str | None,
    answers: dict[str, str | None],
    sets: tuple[str, ...],
    output: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    where: options.AccountOptions,
) -> None:
    """Write a spec for the training script and the data of a folder.

    It looks for a training script, requirements.txt, and data in FOLDER, or below --data in S3: files, class folders and shards, in
    one channel, or in train, validation and test. On a terminal it asks for instance type, role and bucket, with defaults from
    what it has found; the roles are those of your account that SageMaker may assume. What your team's file gives is neither asked
    nor written, and what it requires is asked, too. Without a terminal, pass the options and --set, or --yes for the defaults. The
    spec passes `launch --dry-run` at once.
    """
    from launcher.survey.draft import draft, draft_text, notes_on
    from launcher.survey.folder import look_at_folder

    if str(folder).startswith("s3:"):
        raise click.UsageError("FOLDER is the script's, on this machine; pass the prefix of the data by --data")
    found = look_at_folder(folder)
    target = output or folder / "job.yaml"
    _check_target(target, dry_run=dry_run)
    below, team = values_below(str(target), os.environ)
    profile = where.profile or below.get("profile")
    region = _region(where.region or below.get("region"), profile)
    account = options.open_account(region, profile)
    missing = [
        name
        for name, (_, _, _, paths) in _ANSWERS.items()
        if not answers[name] and all(value_at(below, path) is None for path in paths)
    ]
    may_ask = sys.stdin.isatty() and not yes
    if missing and not yes and not may_ask:
        wanted = ", ".join(_ANSWERS[name][0] for name in missing)
        raise RefusedError(f"there is no terminal to ask on; pass {wanted}, or --yes for the defaults")
    if team.files:
        say(f"layers    {', '.join(team.files)}")
    local = {} if data else {name: folder / path for name, path in found.channels.items()}
    places, others = _places(local, data, account)
    number, roles = _look_at_account(account, team, ask=bool({"role", "bucket"} & {*missing}))
    if roles[1:] and "role" in missing and may_ask:
        say(f"roles that SageMaker may assume: {', '.join(roles[:_MOST_ROLES])}")
    own = "my-bucket" if number == _NO_ACCOUNT else f"sagemaker-{region}-{number}"
    defaults = {
        "instance_type": "ml.g5.xlarge" if found.uses_gpu else "ml.m5.xlarge",
        "role": roles[0] if roles else f"arn:aws:iam::{number}{_EXAMPLE}",
        "bucket": f"s3://{parse_s3_uri(data).bucket if data else own}/",
    }
    for name in missing:
        _, question, check, _ = _ANSWERS[name]
        default = defaults[name]
        answers[name] = click.prompt(question, default=default, value_proc=check, err=True) if may_ask else default
    asked = {"region": None if region == below.get("region") else region, **answers}
    values, comments = draft(found, folder, target, asked, places, below)
    placed = [
        Assignment(dotted(path), value, option)
        for path, option in _OPTIONS.items()
        if (value := value_at(values, path)) is not None
    ]
    chosen = list[str | Assignment](sets)
    text, plan = _planned(target, lambda: draft_text(values, comments, chosen), chosen, placed, may_ask=may_ask)
    if not dry_run:
        _write(target, text)
    elif not as_json:
        print_line(text.rstrip("\n"))
    show_problems(plan.warnings)
    notes = notes_on(folder, found, places, others)
    if str(asked["role"]).endswith(_EXAMPLE) and asked["role"] not in roles:
        notes.append("no role was found: replace role_arn by yours")
    steps = _next_steps(target, local)
    if as_json:
        options.print_json({"spec": str(target), "text": text, "notes": notes, "next": steps})
        return
    done = "not written with --dry-run" if dry_run else f"written, with {bundled.SCHEMA_FILE} for editors"
    for line in (*notes, f"{shown_path(target)}: {done}; next:", *(f"  {step}" for step in steps)):
        say(line)


def _check_target(target: Path, *, dry_run: bool) -> None:
    """Raise InputError if the spec cannot be written there."""
    if not dry_run and os.path.lexists(target):
        raise InputError(f"{target}: exists already, and is not replaced; write to another file by -o, or delete it")
    if not has_folder(target.parent):
        near = did_you_mean_path(target.parent, Path.is_dir) or "; create it, or name another file"
        raise InputError(f"-o {target}: there is no folder {target.parent}{near}")


def _places(local: dict[str, Path], data: str | None, account: Account) -> tuple[Places, list[str]]:
    """Return URI and inventory of each channel, the URI None if the data are to be copied there; and other folders of `data`."""
    from launcher.survey.folder import inventory_of, prefixes_in

    if data is None:
        return {name: (None, inventory_of(path, account)) for name, path in local.items()}, []
    try:
        found, others = prefixes_in(data, account)
        return {name: (uri, inventory_of(uri, account)) for name, uri in found.items()}, others
    except InputError:
        raise
    except RefusedError as error:
        say(f"warning: the data could not be looked at: {error}", "yellow")
        return {"train": (data, None)}, []


def _look_at_account(account: Account, team: Team, *, ask: bool) -> tuple[str, list[str]]:
    """Return the account's number and the roles that SageMaker may assume, as far as AWS shows them."""
    from launcher.account.role import roles_for_sagemaker

    number = next((row.names[0] for row in team.accounts if row.names), _NO_ACCOUNT)
    if ask:
        try:
            account.require_credentials()
            return account.caller["Account"], roles_for_sagemaker(account)
        except RefusedError as error:
            say(f"no role or bucket is proposed from the account: {error}")
    return number, []


def _region(chosen: str | None, profile: str | None) -> str:
    with suppress(RefusedError):  # none is configured
        return options.open_account(chosen, profile).region
    return chosen or _REGION


def _planned(
    target: Path, make: Callable[[], str], sets: list[str | Assignment], places: list[Assignment], *, may_ask: bool
) -> tuple[str, launcher.Plan]:
    """Return the spec's text and plan; keys that the team requires are asked for. Raises SpecError and RefusedError."""
    while True:
        text = make()
        try:
            spec = launcher.parse_spec(text, str(target), sets=[*places, *sets], environ=os.environ)
            return text, launcher.plan(spec)
        except SpecError as error:
            wanted = {
                dotted(each.path): each.message.partition(";")[0]
                for each in error.problems
                if each.code == REQUIRED and (may_ask or not str(each.location).startswith("--"))
            }
            if not wanted:
                raise
            if not may_ask:
                lines = [f"{name} {text}; pass {shlex.quote(f'--set={name}=VALUE')}" for name, text in wanted.items()]
                raise RefusedError("\n".join(lines)) from None
            sets += [f"{name}={click.prompt(f'{name} {text}', err=True)}" for name, text in wanted.items()]


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
        target.with_name(bundled.SCHEMA_FILE).write_bytes(bundled.SCHEMA.read_bytes())
    except OSError as error:
        raise RefusedError(f"{target}: cannot be written: {error.strerror}; write to another file by -o") from None


def _next_steps(target: Path, local: dict[str, Path]) -> list[str]:
    """Return the commands that a user runs next, in this order."""
    job = shlex.quote(shown_path(target))
    here = "".join(f" --channel {name}={shlex.quote(shown_path(path))}" for name, path in local.items())
    return [f"launch {job}{more}" for more in (" --dry-run", f" --local{here or ' --sample 100'}", " --check", "")]
