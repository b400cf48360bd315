"""What `launch import` takes, a file, a job or a script, and its spec as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from launcher.aws.account import Account
from launcher.errors import InputError, did_you_mean_path
from launcher.importing.from_request import spec_of
from launcher.importing.recorder import record
from launcher.importing.shell_text import commands_in
from launcher.importing.source_text import bytes_of, read_text
from launcher.importing.unknown import Unknowns
from launcher.jobs.lookup import describe, tags_of
from launcher.masking import is_secret, settings_to_hide
from launcher.request import serialization
from launcher.request.forms import find_request
from launcher.spec.aws_model import REQUEST, shapes
from launcher.spec.team import value_at

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

    Raises:
        InputError: The file cannot be read, or does not have exactly one request, or the one to pick.
        SpecError: It is wrong YAML.
    """
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else bytes_of(Path(path))
        path, text = "<stdin>" if str(path) == "-" else path, data.decode("utf-8-sig")
    except OSError as error:
        near = did_you_mean_path(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"{path}: cannot be read: {error.strerror}{near or '; check the path'}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8; save the file as UTF-8") from None
    try:
        unknowns = Unknowns()
        if Path(path).suffix == ".sh":
            request: Any = commands_in(text, Path(path).parent, unknowns)
        else:
            request = read_text(text, str(path))
        if not isinstance(request, dict):
            raise InputError("is not a request; write an object with members such as TrainingJobName")
        if _ONLY_IN_SPECS & request.keys() and {"role_arn", "output_data_config"} & request.keys():
            raise InputError(f"is a spec already; run launch {'-' if path == '<stdin>' else path} --dry-run")
        return _imported(unknowns.known(request), unknowns, pick)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply for a request; correct it") from None
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise InputError(f"{path}: holds {half}, half of a surrogate pair; write the whole character") from None


def import_job(account: Account, name: str, warn: Callable[[str], None]) -> Imported:
    """Return the spec for a training job of the account; its settings named like secrets become variables.

    Raises:
        InputError: `name` is not a valid name.
        RefusedError: There is no such job, or you may not describe it.
    """
    job = describe(account, name)
    unknowns = Unknowns()
    for (member, setting), value in settings_to_hide(job).items():
        if is_secret(setting, value):
            job[member] = {**job[member], setting: unknowns.number(f"{member}.{setting} of the job", setting)}
    return _imported({**job, "Tags": tags_of(account, job, warn) or [], "region": account.region}, unknowns, None)


def import_script(script: Path, arguments: Sequence[str], python: str, account: Account, pick: str | None) -> Imported:
    """Run a script that creates training jobs, without AWS, and return the spec for the request that it sends.

    Raises:
        InputError: The script creates no job, or several and `pick` is not one of them.
    """
    unknowns = Unknowns()
    found = record(script, arguments, python, account)
    data = {each["TrainingJobName"]: each for each in found.requests}
    try:
        return _imported(unknowns.replaced(data, found.hidden), unknowns, pick, is_sent=False)
    except InputError as error:
        raise InputError(f"{script}: {error}") from None


def _imported(data: Mapping[str, Any], unknowns: Unknowns, pick: str | None, *, is_sent: bool = True) -> Imported:
    lost: list[str] = []
    found = find_request(data, pick)
    found = replace(found, request=unknowns.fitted(found.request, REQUEST, shapes(), lost))
    spec = spec_of(found, unknowns)
    notes = [*found.notes, *_code_notes(found.request, unknowns, is_sent=is_sent)]
    if lost:
        notes.append(f"Left out, since it is unknown as a whole: {', '.join(lost)}")
    return Imported(spec, notes, unknowns.used(serialization.as_yaml(spec)))


def _code_notes(request: Mapping[str, Any], unknowns: Unknowns, *, is_sent: bool) -> Iterator[str]:
    """Yield how the code that an SDK has packed becomes `code:`."""
    parameters = request.get("HyperParameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    submitted = parameters.get("sagemaker_submit_directory")
    entries = request.get("InputDataConfig")
    channels = {
        str(each.get("ChannelName")): value_at(each, ("DataSource", "S3DataSource", "S3Uri"))
        for each in (entries if isinstance(entries, list) else ())
        if isinstance(each, dict)
    }
    if isinstance(submitted, str):
        script = _unquoted(parameters.get("sagemaker_program"))
        place, drop = _unquoted(submitted), "the hyperparameters sagemaker_submit_directory and sagemaker_program"
        copy = f"aws s3 cp {place} - | tar xz -C src"
    elif {"code", "sm_drivers"} <= channels.keys():
        script, place = "", str(channels["code"])
        drop = "the channels code and sm_drivers, container_entrypoint and container_arguments"
        copy = f"aws s3 cp --recursive {place} src"
    else:
        return
    code = f"code: {{directory: src, entry_point: {script or 'train.py'}}} in place of {drop}"
    if is_sent:
        yield str(unknowns.written(f"The code is {place}; to change it: mkdir -p src && {copy}, and write {code}"))
    else:
        yield f"The script's upload of its code was recorded, not sent; if its folder is src, write {code}"


def _unquoted(value: Any) -> str:
    """Return a hyperparameter's text; SDK v2 writes each as JSON."""
    try:
        return str(json.loads(value))
    except (TypeError, ValueError):
        return str(value or "")
