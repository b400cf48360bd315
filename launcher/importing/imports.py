"""What `launch import` takes, a file, a job or a script, and its spec as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from launcher.aws.session import Account
from launcher.errors import InputError
from launcher.importing.from_request import spec_of
from launcher.importing.recorder import record
from launcher.importing.sdk_code import Uploads, packed_code, uploaded_data, with_own_code, without_packed_code
from launcher.importing.shell_text import commands_in
from launcher.importing.source_text import read_text, text_of
from launcher.importing.unknown import Unknowns
from launcher.jobs.lookup import describe, tags_of
from launcher.masking import is_secret, settings_to_hide
from launcher.request import serialization
from launcher.request.forms import TUNING_JOB, find_request
from launcher.spec.aws_model import REQUEST, shapes

_ONLY_IN_SPECS = {"base_name", "image", "channels", "code", "extends"}


class Imported(NamedTuple):
    """A spec as plain data, notes on what was changed or is to be done, and its variables with what the source has instead."""

    spec: dict[str, Any]
    notes: list[str]
    variables: dict[str, str]

    def as_yaml(self) -> str:
        """Return the spec's text, below the notes and above the variables."""
        listed = [f"${{{name}}}: {meaning}" for name, meaning in self.variables.items()]
        if listed:
            listed.insert(0, "Unknown here; set these variables, or write the values in their place:")
        above, below = ("".join(f"# {line}\n" for line in lines) for lines in (self.notes, listed))
        return above + serialization.as_yaml(self.spec) + below


def import_file(path: str | Path, pick: str | None = None) -> Imported:
    """Return the spec for the request in a file, or in standard input for `-`.

    Raises InputError if the file cannot be read, or does not have exactly one request, or the one to pick, and SpecError if it is
    wrong YAML.
    """
    path = "<stdin>" if str(path) == "-" else path
    text = text_of(path)
    try:
        unknowns = Unknowns()
        if Path(path).suffix == ".tf":
            raise InputError("is in Terraform's language; import what `terraform show -json` prints")
        if Path(path).suffix == ".sh":
            request: Any = commands_in(text, Path(path).parent, unknowns)
        else:
            request = read_text(text, str(path))
        if not isinstance(request, dict):
            raise InputError("is not a request; write an object with members such as TrainingJobName")
        if _ONLY_IN_SPECS & request.keys() and {"role_arn", "output_data_config"} & request.keys():
            raise InputError(f"is a spec already; run launch {'-' if path == '<stdin>' else path} --dry-run")
        if request.get("compute_environment") == "AMAZON_SAGEMAKER":
            raise InputError(
                "is accelerate's configuration, without the script; `launch init` writes a spec, which has for num_machines"
                " resource_config.instance_count, and with `command: torchrun train.py` a process for each GPU"
            )
        return _imported(unknowns.known(request), unknowns, pick)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply for a request; correct it") from None
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise InputError(f"{path}: holds {half}, half of a surrogate pair; write the whole character") from None


def import_job(account: Account, name: str, pick: str | None, warn: Callable[[str], None]) -> Imported:
    """Return the spec for a training job of the account, by name or ARN; settings named like secrets become variables.

    Raises InputError for a tuning job's ARN, and RefusedError if there is no such job, or you may not describe it.
    """
    kind, _, name = name.rpartition("/")
    if kind.endswith("hyper-parameter-tuning-job"):
        raise InputError(f"{name} {TUNING_JOB}")
    unknowns, job = Unknowns(), describe(account, name)
    job |= {"Tags": tags_of(account, job, warn) or [], "region": account.region}
    for (member, setting), value in settings_to_hide(job).items():
        if is_secret(setting, value):
            job[member] = {**job[member], setting: unknowns.number(f"{member}.{setting} of the job", setting)}
    return _imported(job, unknowns, pick)


def import_script(script: Path, arguments: Sequence[str], python: str, account: Account, pick: str | None) -> Imported:
    """Run a script that creates training jobs, without AWS, and return the spec for the request that it sends.

    Raises InputError if the script creates no job, or several and `pick` is not one of them.
    """
    with record(script, arguments, python, account) as (found, uploads):
        try:
            return _imported(found.requests, Unknowns(), pick, uploads, found.hidden)
        except InputError as error:
            raise InputError(f"{script}: {error}") from None


def _imported(
    data: Any,
    unknowns: Unknowns,
    pick: str | None,
    uploads: Uploads | None = None,
    hidden: Mapping[str, str] | None = None,
) -> Imported:
    """Return the spec of the request in `data`; of a script: its uploads, and texts that stand for variables."""
    lost: list[str] = []
    found = find_request(data, pick)
    code, note = packed_code(found.request, uploads)
    request = unknowns.replaced(without_packed_code(found.request) if code else found.request, hidden or {})
    spec = spec_of(replace(found, request=unknowns.fitted(request, REQUEST, shapes(), lost)), unknowns)
    spec, own = with_own_code({**spec, "code": code} if code else spec)
    upload = uploaded_data(found.request, uploads) if uploads else ""
    notes = [*found.notes, *filter(None, (note, upload, own))]
    if lost:
        notes.append(f"Left out, since it is unknown as a whole: {', '.join(lost)}")
    return Imported(spec, [str(unknowns.written(each)) for each in notes], unknowns.used(serialization.as_yaml(spec)))
