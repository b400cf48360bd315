"""`launch init`: a spec for a folder, from what is in it, a look at the account, and at most three questions."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import launcher
from launcher import bundled
from launcher.account.needs import ARN
from launcher.commands import options
from launcher.commands.local import yes_option
from launcher.console import counted, human_bytes, plain, print_line, say, show_problems, shown_path
from launcher.errors import InputError, RefusedError
from launcher.request.image_support import versions_of_framework
from launcher.request.instance_types import instance_type
from launcher.rules.channels.content_types import MIME_TYPES
from launcher.s3.uri import parse_s3_uri

if TYPE_CHECKING:
    from launcher.advice.facts import Inventory
    from launcher.aws.account import Account
    from launcher.survey.folder import Folder

_REGION, _NO_ACCOUNT = "us-east-1", "123456789012"
_READS_ALL = "entrypoints/read_channels.py"  # the bundled script that reports what it has read
_EXAMPLE = ":role/SageMakerTraining"
_MOST_ROLES = 10  # that are shown
# Formats of an inventory -> the channel's content type; an object of another format is one sample.
_TYPES = {name: MIME_TYPES[name] for name in ("tar", "recordio", "recordio-protobuf", "tfrecord", "parquet", "csv")}
_TYPES |= {"jsonlines": MIME_TYPES["jsonl"]}


def _machine(value: str) -> str:
    """Return an instance type. Raises click.BadParameter."""
    if instance_type(value).storage is None and not re.fullmatch(r"ml\.[a-z0-9-]+\.[a-z0-9-]+", value):
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


def _bucket(value: str) -> str:
    """Return `s3://bucket/prefix` of a bucket's name, or of a URI."""
    return _prefix(value if "://" in value else f"s3://{value}").rstrip("/")


class _Known(NamedTuple):
    """What a look at the account has shown."""

    number: str
    region: str
    roles: list[str]


@options.command("init", "init --role arn:aws:iam::123456789012:role/training --bucket s3://mine/pets --yes --dry-run")
@click.argument("folder", type=click.Path(path_type=Path), default=".", metavar="[FOLDER]")
@click.option(
    "--data",
    type=_prefix,
    metavar="URI",
    help="The prefix of the data, if they are in S3 already: s3://bucket/images/.",
)
@options.group(
    "answers",
    click.option("--instance-type", "machine", type=_machine, metavar="TYPE", help="The instance type: ml.g5.xlarge."),
    click.option("--role", type=_role, metavar="ARN", help="The role that the job runs as."),
    click.option("--bucket", type=_bucket, metavar="URI", help="The bucket, or a prefix, of data and outputs."),
    kind=dict,
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
    output: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    where: options.AccountOptions,
) -> None:
    """Write a spec for the training script and the data of a folder.

    It looks for a training script, requirements.txt, and data in FOLDER, or below --data in S3: files, class folders and shards, in
    one channel, or in train, validation and test. On a terminal it asks for instance type, role and bucket, with defaults from
    what it has found; the roles are those of your account that SageMaker may assume. Without one, pass the options, or --yes for
    the defaults. The spec passes `launch --dry-run` at once.
    """
    from launcher.survey.folder import look_at_folder

    target = output or folder / "job.yaml"
    if not dry_run and os.path.lexists(target):
        raise InputError(f"{target}: exists already, and is not replaced; write to another file by -o, or delete it")
    found, account = look_at_folder(folder), where.open()
    missing = [
        f"--{name.replace('machine', 'instance-type')}" for name, value in reversed(answers.items()) if not value
    ]
    if missing and not yes and not sys.stdin.isatty():
        raise RefusedError(f"there is no terminal to ask on; pass {', '.join(missing)}, or --yes for the defaults")
    places, local = _places(folder, found, data, account)
    known = _look_at_account(account, where, ask=not (answers["role"] and answers["bucket"]))
    asked = _asked(answers, folder, found, known, data, yes=yes)
    text, notes = _spec(folder, found, target, asked, known.region, places)
    spec = launcher.parse_spec(text, str(target), environ=os.environ)
    plan = launcher.plan(spec)
    if dry_run:
        if not as_json:
            print_line(text.rstrip("\n"))
    else:
        _write(target, text)
    show_problems(plan.warnings)
    if asked[1].endswith(_EXAMPLE) and asked[1] not in known.roles:
        notes.append("no role was found: replace role_arn by yours")
    steps = _next_steps(target, spec, local)
    if as_json:
        options.print_json({"spec": str(target), "text": text, "notes": notes, "next": steps})
        return
    for note in notes:
        say(note)
    done = "not written with --dry-run" if dry_run else f"written, with {bundled.SCHEMA_FILE} for editors"
    say(f"{shown_path(target)}: {done}; next:")
    for step in steps:
        say(f"  {step}")


def _places(folder: Path, found: Folder, data: str | None, account: Account) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return URI and inventory of each channel, the URI None if the data are to be copied there; and the local folders."""
    from launcher.survey.folder import inventory_of, prefixes_in

    if data is None:
        local = {name: folder / path for name, path in found.channels.items()}
        return {name: (None, inventory_of(path, account)) for name, path in local.items()}, local
    try:
        return {name: (uri, inventory_of(uri, account)) for name, uri in prefixes_in(data, account).items()}, {}
    except RefusedError as error:
        say(f"warning: the data could not be looked at: {error}", "yellow")
        return {"train": (data, None)}, {}


def _look_at_account(account: Account, where: options.AccountOptions, *, ask: bool) -> _Known:
    """Return account, region and the roles that SageMaker may assume, as far as AWS shows them."""
    from launcher.account.permissions import statements
    from launcher.account.role import may_assume

    region, number, roles = where.region or _REGION, _NO_ACCOUNT, list[str]()
    with suppress(RefusedError):  # none is configured
        region = account.region
    if not ask:
        return _Known(number, region, roles)
    try:
        account.require_credentials()
        number = account.call("sts", "get_caller_identity")["Account"]
        for page in account.pages("iam", "list_roles"):
            named = ((each["Arn"], statements(each.get("AssumeRolePolicyDocument"))) for each in page["Roles"])
            roles += [arn for arn, trust in named if may_assume(trust)]
    except RefusedError as error:
        say(f"no role or bucket is proposed from the account: {error}")
    return _Known(number, region, sorted(roles, key=lambda arn: ("sagemaker" not in arn.lower(), arn)))


def _asked(
    answers: dict[str, str | None], folder: Path, found: Folder, known: _Known, data: str | None, *, yes: bool
) -> tuple[str, str, str]:
    """Return instance type, role and bucket: as given, as answered, or the defaults."""
    uses_gpu = found.script is not None and "cuda" in (folder / found.script).read_text("utf-8", "replace")
    own = "my-bucket" if known.number == _NO_ACCOUNT else f"sagemaker-{known.region}-{known.number}"
    bucket = parse_s3_uri(data).bucket if data else own
    role = known.roles[0] if known.roles else f"arn:aws:iam::{known.number}{_EXAMPLE}"
    if known.roles[1:] and not (answers["role"] or yes):
        say(f"roles that SageMaker may assume: {', '.join(known.roles[:_MOST_ROLES])}")

    def ask(name: str, question: str, default: str, check: Callable[[str], str]) -> str:
        if given := answers[name]:
            return given
        return default if yes else str(click.prompt(question, default=default, value_proc=check, err=True))

    return (
        ask("machine", "Instance type", "ml.g5.xlarge" if uses_gpu else "ml.m5.xlarge", _machine),
        ask("role", "Role of the job (ARN)", role, _role),
        ask("bucket", "Bucket or prefix of data and outputs", f"s3://{bucket}", _bucket),
    )


def _spec(
    folder: Path, found: Folder, target: Path, asked: tuple[str, str, str], region: str, places: dict[str, Any]
) -> tuple[str, list[str]]:
    """Return the spec as YAML with a comment for each key, and notes for the user."""
    machine, role, bucket = asked
    base = re.sub(r"[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-")[:40].strip("-") or "job"
    notes = (
        [f"lists of images: {', '.join(map(str, found.lists))}; `launch lst check` checks them"] if found.lists else []
    )
    code: dict[str, Any] = {"entry_point": _READS_ALL}
    why = "a bundled script, which reports what the channels hold: name yours, with its `directory`"
    if found.script is None:
        notes.append(f"no training script was found in {folder}: the job runs {_READS_ALL}")
    else:
        code = {"directory": os.path.relpath(folder / found.code, target.parent)}
        code["entry_point"] = str(found.script.relative_to(found.code))
        why = "this folder is sent, and the script runs in it"
        code |= {"requirements": found.requirements.name} if found.requirements else {}
        left_out = dict.fromkeys((*found.channels.values(), *found.outside))  # data, and links that may not be followed
        inside = [path.relative_to(found.code) for path in left_out if path.is_relative_to(found.code)]
        code |= {"exclude": [f"/{path}" for path in inside if path.parts]} if inside else {}
    resources: dict[str, Any] = {"instance_type": machine, "instance_count": 1}
    if instance_type(machine).storage == "EBS":
        size = sum(inventory.bytes for _, inventory in places.values() if inventory)
        resources["volume_size_in_gb"] = max(30, ceil(1.5 * size / 1e9) + 10)
    version = versions_of_framework("pytorch")[-1].version
    rows = (
        ({"base_name": base}, "the job's name begins so"),
        ({"region": region}, "where the job and its bucket are"),
        ({"image": {"framework": "pytorch", "version": version}}, "AWS's image, for CPUs or GPUs by the instance type"),
        ({"role_arn": role}, "the role that the job runs as"),
        ({"code": code}, why),
        ({"resource_config": resources}, "the machine; `launch cost` estimates its price"),
        ({"stopping_condition": {"max_runtime_in_seconds": "1d"}}, "the job is stopped after this time"),
        ({"output_data_config": {"s3_output_path": f"{bucket}/{base}/out/"}}, "gets the model and the outputs"),
    )
    lines = [f"{bundled.SCHEMA_LINE}\n", *(_commented(*row) for row in rows), "channels:\n"]
    for name, (uri, inventory) in (places or {"train": (None, None)}).items():
        channel, why = _channel(uri or f"{bucket}/{base}/{name}/", inventory)
        lines.append(indent(_commented({name: channel}, f"{'' if uri else 'to be copied there: '}{why}"), "  "))
    return "".join(lines), notes


def _channel(uri: str, inventory: Inventory | None) -> tuple[dict[str, Any], str]:
    """Return a channel, and in words what it holds."""
    from launcher.survey.folder import mode_of

    if inventory is None:
        return {"s3_uri": uri, "input_mode": "FastFile"}, "the data"
    usual = next(iter(inventory.formats), "")
    channel = {"s3_uri": uri, "input_mode": mode_of(inventory)}
    channel |= {"content_type": _TYPES[usual]} if usual in _TYPES else {}
    least = "" if inventory.is_complete else "at least "
    return channel, f"{least}{counted(inventory.objects, 'object')}, {human_bytes(inventory.bytes)}, {usual or 'empty'}"


def _commented(row: dict[str, Any], comment: str) -> str:
    """Return YAML of one key, with a comment at the end of its first line."""
    from launcher.request.serialization import as_yaml

    first, *rest = as_yaml(row).replace("${", "$${").splitlines(keepends=True)
    return "".join([f"{first.rstrip()}  # {plain(comment)}\n", *rest])


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
        target.with_name(bundled.SCHEMA_FILE).write_bytes(bundled.SCHEMA.read_bytes())
    except OSError as error:
        raise RefusedError(f"{target}: cannot be written: {error.strerror}; write to another file by -o") from None


def _next_steps(target: Path, spec: launcher.JobSpec, local: dict[str, Path]) -> list[str]:
    """Return the commands that a user runs next, in this order."""
    job, channels = shlex.quote(shown_path(target)), spec.all_channels
    folders = {name: shlex.quote(shown_path(path)) for name, path in local.items()}
    here = "".join(f" --channel {name}={path}" for name, path in folders.items())
    copies = [f"aws s3 sync {path} {getattr(channels[name], 's3_uri', '')}" for name, path in folders.items()]
    return [
        f"launch {job} --dry-run",
        f"launch {job} --local{here or ' --sample 100'}",
        *copies,
        f"launch {job} --check",
        f"launch {job}",
    ]
