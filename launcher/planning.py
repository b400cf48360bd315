"""JobSpec -> Plan: exactly the request that is shown, sent, or run locally.

Pure: the caller passes the job's name, the day and the code archive, so that no clock, randomness, file or environment is read
here. The code is added to a request only when nothing else is wrong with it; the limits that it would break are checked
separately before, so that all problems are reported together, each at its own place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

from launcher.code.archive import CodeArchive
from launcher.code.file_rules import CodeError
from launcher.code.requirement_lines import requirement_problems
from launcher.code.script import script_of, script_problems
from launcher.errors import Problem, SpecError, SpecPath, did_you_mean, first_names, in_file_order, limit_problems
from launcher.request.build import build_request
from launcher.request.masked_members import MaskedMembers, masked_members, with_members
from launcher.request.origin import Origin
from launcher.request.view import groups_of
from launcher.rules import find_problems
from launcher.rules.codes import without_ignored
from launcher.rules.job.code import goes_by_toolkit
from launcher.spec.aws_model import REQUEST, shapes, shown, violations
from launcher.spec.job import JobSpec
from launcher.spec.model import mapping_at
from launcher.spec.own_keys import Code
from sagemaker_channels import contract
from sagemaker_channels.job.hyperparameters import FORMS
from sagemaker_channels.start.command import command_files

_PUT = "; put it there, or correct the path"


@dataclass(frozen=True, repr=False)
class Plan:
    """What will be done."""

    request: dict[str, Any]
    """The CreateTrainingJob request, member for member."""
    origin: Origin
    """Where each of its members is written in the spec."""
    spec: JobSpec
    code: CodeArchive | None
    """The code to upload to `code_uri` before the request is sent; None if the job has none."""
    code_uri: str | None
    warnings: tuple[Problem, ...]

    def __repr__(self) -> str:
        """The job in a line, without its settings, which may be secret."""
        resources = mapping_at(self.request, ("ResourceConfig",))
        groups = resources.get("InstanceGroups") or [resources] * ("InstanceType" in resources)
        hosts = [f"{each.get('InstanceCount', 1)} x {each.get('InstanceType')}" for each in groups]
        channels = [f"channels {', '.join(self.spec.all_channels)}"] if self.spec.all_channels else []
        code = [f"code {described}"] if self.code is not None and (described := self.code.described()) else []
        warned = [f"{len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}"] if self.warnings else []
        about = "; ".join([*hosts, *channels, *code, *warned])
        return f"<Plan of {self.request['TrainingJobName']}: {about}>"

    def masked_request(self) -> dict[str, Any]:
        """Return the request with texts that name environment variables as written, `${NAME}`, so without secrets."""
        return dict(with_members(self.request, self.masked))

    @cached_property
    def masked(self) -> MaskedMembers:
        """The members that `masked_request` does not show as they are sent."""
        return masked_members(self.request, self.origin, self.spec.variables)


def make_plan(
    spec: JobSpec,
    *,
    job_name: str,
    code: CodeArchive | CodeError | None = None,
    ignore: tuple[str, ...] = (),
    problems: Sequence[Problem] = (),
    today: date | None = None,
) -> Plan:
    """Plan one job.

    Args:
        spec: The spec.
        job_name: What `names.job_name` returned for the spec, or another name in its place.
        code: The code archive, required if the spec has `code:`; a CodeError becomes one of the problems.
        ignore: Codes of warnings to leave out, besides the spec's own.
        problems: Problems that the caller found already.
        today: The day to judge images by; without it, none is too old.

    Raises:
        SpecError: The spec is wrong; `problems` has everything that was found.
    """
    built = build_request(spec, job_name)
    request, uri = built.request, None
    problems = [*problems, *find_problems(spec, job_name, built=built, today=today)]
    if spec.code is not None:
        warnings: list[Problem] = []
        if isinstance(code, CodeArchive):
            # Named by its digest, so that it is uploaded once.
            uri = f"{_place(spec.code, request).rstrip('/')}/{code.digest}/"
            errors = [*_missing_files(spec.code, code), *_broken_limits(spec.code, request, uri)]
            errors += _toolkit_limits(spec.code, code, request)
            warnings += _warnings(spec.code, code, request)
        else:
            error = code or CodeError("has not been read; give make_plan what read_code returns")
            errors = [Problem(("code", *error.path), str(error), error.code)]
        problems += [each._replace(severity="warning", location=spec.locate(each.path)) for each in warnings]
        wrong = {problem.path for problem in problems if problem.severity == "error"}
        for each in errors:
            if each.path not in wrong:  # the rest follows from a wrong file name
                problems.append(each._replace(location=spec.locate(each.path)))
            wrong |= {each.path} - {("code",)}
    problems = in_file_order(without_ignored(list(spec.variables.mask_problems(problems)), spec, ignore))
    if any(problem.severity == "error" for problem in problems):
        raise SpecError(limit_problems(problems))
    if spec.code is not None and uri is not None:
        _add_code(request, spec.code, uri)
    if isinstance(code, CodeArchive):
        _add_tags(request, code.tags, spec)
    return Plan(request, built.origin, spec, code if isinstance(code, CodeArchive) else None, uri, tuple(problems))


def _missing_files(code: Code, archive: CodeArchive) -> Iterator[Problem]:
    names = archive.names()
    ours = f"{contract.BUNDLE_DIR}/"
    for key in ("entry_point", "requirements"):
        name = getattr(code, key)
        if name is None or name in names or (key == "entry_point" and ours + name in names):
            continue
        near = did_you_mean(name, [each.removeprefix(ours) for each in names])
        is_near = near and name.startswith(contract.SCRIPTS_DIR)
        folder = near if is_near else "; write its folder, such as directory: . beside this file"
        message = f"{name!r} is not a bundled script{folder}"
        if archive.rules is not None and (why := archive.rules.why_left_out(name)):
            message = f"{name!r} {why}; add it to code.include"
        elif code.directory is not None:
            message = f"{name!r} is not in {code.directory}{near or _PUT}"
        yield Problem(("code", key), message, "code-file-missing")


def _toolkit_limits(code: Code, archive: CodeArchive, request: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for code that the toolkit cannot run, since it runs a folder with setup.py as a Python module."""
    if not goes_by_toolkit(code, request.get("InputDataConfig")) or "setup.py" not in archive.names():
        return
    remedy = "leave setup.py out with code.exclude, or free a channel for the code"
    if code.command is not None:
        message = f"the toolkit, which starts this code, cannot run a command beside a package (setup.py); {remedy}"
        yield Problem(("code", "command"), message, "code-package-toolkit")
    elif not str(code.entry_point).endswith((".py", ".sh")):
        message = f"the toolkit, which starts this code, would run it as a Python module because of setup.py; {remedy}"
        yield Problem(("code", "entry_point"), message, "code-package-toolkit")


def _warnings(code: Code, archive: CodeArchive, request: dict[str, Any]) -> Iterator[Problem]:
    # The toolkit installs it itself, and a shell script has to in any case.
    by_toolkit, is_shell = goes_by_toolkit(code, request.get("InputDataConfig")), str(code.entry_point).endswith(".sh")
    installs = by_toolkit or is_shell or code.requirements is not None
    if "requirements.txt" in archive.names() and not installs:
        message = "requirements.txt is sent with the code but not installed; write code.requirements: requirements.txt"
        yield Problem(("code",), message, "code-requirements-unnamed")
    for word in command_files(code.command or ()):
        if not any(f"/{name}".endswith(f"/{word.removeprefix('./')}") for name in archive.names()):
            near = did_you_mean(
                word, [name for name in archive.names() if not name.startswith(f"{contract.BUNDLE_DIR}/")]
            )
            message = f"{word!r} is not in {code.directory or 'the code'}{near or _PUT}"
            yield Problem(("code", "command"), message, "code-command-file")
    if (script := script_of(code)) in archive.texts:
        yield from script_problems(code, str(script), archive.texts[str(script)], request)
    if code.requirements is not None and code.requirements in archive.texts:
        yield from requirement_problems(code.requirements, archive, request.get("Environment") or ())
    if archive.skipped:
        remedy = "correct or delete those that are needed, and leave out the rest with code.exclude"
        yield Problem(
            ("code",), f"{first_names(archive.skipped)} cannot be sent with the code; {remedy}", "code-skipped"
        )
    if archive.secrets:
        message = (
            f"{first_names(archive.secrets)}: these lines seem to have secrets, which would be stored in S3 with the code;"
            " delete them (the job has its role's own AWS credentials), or leave the files out with code.exclude"
        )
        yield Problem(("code", "directory"), message, "code-secrets")


def _broken_limits(code: Code, request: dict[str, Any], uri: str) -> Iterator[Problem]:
    """Yield a problem for each limit of AWS's model that the code's place, arguments or settings break.

    Each is checked separately, since the request that they are added to may have any error.
    """
    place: SpecPath = ("code",) if code.s3_uri is None else ("code", "s3_uri")
    if _place(code, request):
        for each in violations(uri, "S3Uri"):
            message = f"its place in S3, {shown(uri)}, {each.message}; choose a shorter code.s3_uri"
            yield Problem(place, message, each.code)
    if not goes_by_toolkit(code, request.get("InputDataConfig")):
        for key in ("entry_point", "requirements"):
            for each in violations(getattr(code, key) or "", "TrainingContainerArgument"):
                yield Problem(("code", key), f"is an argument of the container and {each.message}", each.code)
        if len(boot_arguments(code)) > shapes()["TrainingContainerArguments"]["max"]:
            message = "is too long for the container's arguments; move it to a script in the code"
            yield Problem(("code", "command"), message, "aws-max")
        return
    for member, added in _toolkit_settings(code, request, uri).items():
        settings = shapes()[shapes()[REQUEST]["members"][member]["shape"]]
        for name, value in added.items():
            for each in violations(value, settings["value"]["shape"]):
                yield Problem(("code",), f"adds {member}.{name}, which {each.message}", each.code)
        given = mapping_at(request, (member,))
        if len({**given, **added}) > settings["max"] >= len(given):
            what = f"adds to {member}, which then has more than the {settings['max']} entries that AWS allows"
            yield Problem(("code",), f"{what}; delete some", "aws-max")


def _place(code: Code, request: dict[str, Any]) -> str:
    """Return the folder in S3 for all versions of the code; empty if the request has no valid one, which a rule reports."""
    if code.s3_uri is not None:
        return code.s3_uri
    output = mapping_at(request, ("OutputDataConfig",)).get("S3OutputPath")
    return f"{output.rstrip('/')}/code" if isinstance(output, str) and not any(violations(output, "S3Uri")) else ""


def _add_code(request: dict[str, Any], code: Code, uri: str) -> None:
    """Add the code to a request without errors: for the toolkit, or as a channel of its own.

    Our own boot.py starts the latter, which works in any image with Python.
    """
    if goes_by_toolkit(code, request.get("InputDataConfig")):
        for member, added in _toolkit_settings(code, request, uri).items():
            request[member] = {**request.get(member, {}), **added}
        return
    source: dict[str, Any] = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    entries = request.setdefault("InputDataConfig", [])
    if any(groups_of(entry) for entry in entries):
        # The service refuses a job in which only some channels name instance groups.
        groups = request["ResourceConfig"]["InstanceGroups"]
        source["InstanceGroupNames"] = [group["InstanceGroupName"] for group in groups]
    entries.append({"ChannelName": contract.CODE_CHANNEL, "DataSource": {"S3DataSource": source}, "InputMode": "File"})
    boot = f"{contract.BASE_DIR}/{contract.DATA_DIR}/{contract.CODE_CHANNEL}/{contract.BOOT_FILE}"
    algorithm = request.setdefault("AlgorithmSpecification", {})
    algorithm["ContainerEntrypoint"] = ["python3", boot]
    algorithm["ContainerArguments"] = boot_arguments(code)


def _add_tags(request: dict[str, Any], tags: Mapping[str, str], spec: JobSpec) -> None:
    """Add tags to those of a request, of which the spec's own win, if the limit of AWS leaves room for all."""
    given = request.get("Tags", [])
    added = [{"Key": key, "Value": value} for key, value in tags.items() if key not in {tag["Key"] for tag in given}]
    is_deleted = spec.request is not None and spec.request.get("Tags", given) is None
    if added and not is_deleted and len(given) + len(added) <= shapes()["TagList"]["max"]:
        request["Tags"] = [*given, *added]


def boot_arguments(code: Code) -> list[str]:
    """Return the arguments of boot.py: what to start, and how if that is not the default."""
    arguments = [code.entry_point] if code.entry_point is not None else []
    if code.requirements is not None:
        arguments += ["--requirements", code.requirements]
    if code.argument_style != "toolkit":
        arguments += ["--argument-style", code.argument_style]
    if code.arguments != FORMS[0]:
        arguments.append(f"--arguments={code.arguments}")
    if code.command is not None:
        # In JSON, a line has no line breaks, which an argument cannot have; a long one is cut into several arguments.
        text, most = json.dumps(code.command, ensure_ascii=False), shapes()["TrainingContainerArgument"]["max"]
        arguments += ["--command", *(text[start : start + most] for start in range(0, len(text), most))]
    return arguments


def _toolkit_settings(code: Code, request: dict[str, Any], uri: str) -> dict[str, dict[str, str]]:
    """Return the settings by which the sagemaker-training toolkit finds the code, for jobs that have no channel left."""
    bundle = f"{contract.BASE_DIR}/{contract.CODE_DIR}/{contract.BUNDLE_DIR}"
    inherited = mapping_at(request, ("Environment",)).get("PYTHONPATH")
    environment = {"PYTHONPATH": f"{bundle}:{inherited}" if inherited else bundle}
    program = str(code.entry_point)
    if code.command is not None or code.arguments != FORMS[0]:  # which the toolkit does not know
        program = f"{contract.SCRIPTS_DIR}/{contract.BOOT_FILE}"
        environment[contract.BOOT_ARGUMENTS_VARIABLE] = json.dumps(boot_arguments(code), ensure_ascii=False)
    if program.startswith(f"{contract.SCRIPTS_DIR}/"):
        program = f"{contract.BUNDLE_DIR}/{program}"
    parameters = {"sagemaker_program": program, "sagemaker_submit_directory": uri + contract.CODE_ARCHIVE}
    return {"HyperParameters": parameters, "Environment": environment}
