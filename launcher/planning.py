"""JobSpec -> Plan: exactly the request that is shown, sent, or run here.

Pure: the clock, chance, files and the environment are the caller's, who hands over the job's name and the code archive.
The code is added to a request only when nothing else is wrong with it; what the code itself would break is looked at before,
apart from the request, so that all problems are told at once, each at its own place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from entrypoints import contract
from launcher.checks import check_spec
from launcher.checks.channels.entries import MAX_CHANNELS
from launcher.checks.codes import without_ignored
from launcher.code.archive import CodeArchive
from launcher.code.files import CodeError
from launcher.errors import Problem, SpecError, SpecPath, cut, in_file_order
from launcher.nearest import did_you_mean
from launcher.request.aws_model import REQUEST, shapes, shown, violations
from launcher.request.build import build_request
from launcher.request.origin import Origin
from launcher.request.view import groups_of
from launcher.spec.job import Code, JobSpec

TOOLKIT_PROGRAM = "sagemaker_program"
TOOLKIT_DIRECTORY = "sagemaker_submit_directory"
TOOLKIT_TORCHRUN = "sagemaker_torch_distributed_enabled"
_Found = tuple[SpecPath, str, str]  # where, the code, and what is wrong


@dataclass(frozen=True)
class Plan:
    """What will be done."""

    request: dict[str, Any]
    """The CreateTrainingJob request, member for member."""
    origin: Origin
    """Where each of its members is written in the spec."""
    spec: JobSpec
    code: CodeArchive | None
    """What is to lie at `code_uri` before the request is sent; None where no code travels."""
    code_uri: str | None
    warnings: tuple[Problem, ...]

    def masked_request(self) -> dict[str, Any]:
        """The request with settings that name environment variables as written, `${NAME}`: fit to be shown to anyone."""
        request = dict(self.request)
        for member, name in self.masked:
            request[member] = {**request[member], name: self.spec.masked[member, name]}
        return request

    @property
    def masked(self) -> list[tuple[str, str]]:
        """The settings that `masked_request` does not show as they are sent: (member, name)."""
        return [(member, name) for member, name in self.spec.masked if name in self.request.get(member, {})]


def make_plan(
    spec: JobSpec,
    *,
    job_name: str,
    code: CodeArchive | CodeError | None = None,
    ignore: tuple[str, ...] = (),
    strict: bool = False,
    problems: Sequence[Problem] = (),
) -> Plan:
    """Plan one job.

    `job_name` is what `names.job_name` made of the spec, or a name that was given in its place. `code` is required where the
    spec has `code:`; why it could not be read becomes one of the problems. `ignore` names codes to say nothing of, besides
    the spec's own; `strict` makes warnings errors. Raises SpecError with every problem found.
    """
    built = build_request(spec, job_name)
    request, uri = built.request, None
    problems = [*problems, *check_spec(spec, job_name, built=built)]
    if spec.code is not None:
        found: list[_Found] = []
        if isinstance(code, CodeArchive):
            uri = _code_uri(request, spec.code, code)
            by_toolkit = _goes_by_toolkit(spec.code, request)
            found = [*_missing_files(spec.code, code), *_broken_limits(spec.code, request, uri)]
            found += _toolkit_limits(spec.code, code) if by_toolkit else ()
            problems += _warnings(spec, spec.code, code, by_toolkit=by_toolkit)
        else:
            error = code or CodeError("has not been read; give make_plan what read_code returns")
            found.append((("code", *error.path), error.code, str(error)))
        told = {problem.path for problem in problems if problem.severity == "error"}
        for path, name, message in found:
            if path not in told:  # of a wrong file name all the rest follows
                problems.append(Problem(path, message, name, location=spec.locate(path)))
            told |= {path} - {("code",)}
    problems = in_file_order(without_ignored(problems, spec, ignore))
    if any(strict or problem.severity == "error" for problem in problems):
        raise SpecError(cut(problems))
    if spec.code is not None and uri is not None:
        _add_code(request, spec.code, uri)
    return Plan(request, built.origin, spec, code if isinstance(code, CodeArchive) else None, uri, tuple(problems))


def _missing_files(code: Code, archive: CodeArchive) -> Iterator[_Found]:
    """Files that the spec names and the archive lacks."""
    names = archive.names()
    ours = f"{contract.BUNDLE_DIR}/"
    for key in ("entry_point", "requirements"):
        name = getattr(code, key)
        if name is None or name in names or (key == "entry_point" and ours + name in names):
            continue
        message = f"{name!r} is none of the bundled scripts; name its folder with directory, such as directory: src"
        if archive.rules is not None and (why := archive.rules.why_left_out(name)):
            message = f"{name!r} {why}; add it to code.include"
        elif code.directory is not None:
            near = did_you_mean(name, [each.removeprefix(ours) for each in names])
            message = f"{name!r} is not in {code.directory}{near}"
        yield ("code", key), "code-file-missing", message


def _toolkit_limits(code: Code, archive: CodeArchive) -> Iterator[_Found]:
    """What the toolkit cannot run as boot.py does: it runs a folder with setup.py as a Python module."""
    remedy = "leave setup.py out with code.exclude, or free a channel for the code"
    if "setup.py" in archive.names() and code.launcher == "torchrun":
        message = f"the toolkit, which starts this code, does not run a package (setup.py) by torchrun; {remedy}"
        yield ("code", "launcher"), "code-package-toolkit", message
    elif "setup.py" in archive.names() and not str(code.entry_point).endswith((".py", ".sh")):
        message = f"the toolkit, which starts this code, would run it as a Python module because of setup.py; {remedy}"
        yield ("code", "entry_point"), "code-package-toolkit", message


def _warnings(spec: JobSpec, code: Code, archive: CodeArchive, *, by_toolkit: bool) -> Iterator[Problem]:
    """What is probably wrong with files that travel."""
    # The toolkit installs it by itself, and a shell script has to, there as here.
    installs = by_toolkit or code.requirements is not None or str(code.entry_point).endswith(".sh")
    if "requirements.txt" in archive.names() and not installs:
        message = (
            "requirements.txt travels with the code but is not installed; write code.requirements: requirements.txt"
        )
        path: SpecPath = ("code",)
        yield Problem(path, message, "code-requirements-unnamed", "warning", location=spec.locate(path))
    if archive.skipped:
        path = ("code",)
        message = (
            f"{_first(archive.skipped)} cannot travel with the code; correct or delete what is needed, and leave the rest"
            " out with code.exclude"
        )
        yield Problem(path, message, "code-skipped", "warning", location=spec.locate(path))
    if archive.aws_keys:
        path = ("code", "directory")
        message = (
            f"{_first(archive.aws_keys)}: AWS secret access keys seem to be there, and would be stored in S3 with the"
            " code; delete them, since the job has its role's own credentials, or leave the files out with code.exclude"
        )
        yield Problem(path, message, "code-aws-keys", "warning", location=spec.locate(path))


def _first(names: tuple[str, ...]) -> str:
    """The first five of the names, and how many more there are."""
    return ", ".join(names[:5]) + f" and {len(names) - 5:,} more" * (len(names) > 5)


def _broken_limits(code: Code, request: dict[str, Any], uri: str) -> Iterator[_Found]:
    """The model's limits that break by what the code adds: its place, its arguments, its settings.

    Each is looked at by itself, since the request that they go into can be wrong in any way.
    """
    place: SpecPath = ("code",) if code.s3_uri is None else ("code", "s3_uri")
    if _place(code, request):
        for each in violations(uri, "S3Uri"):
            yield place, each.code, f"its place in S3, {shown(uri)}, {each.message}; choose a shorter code.s3_uri"
    if not _goes_by_toolkit(code, request):
        for key in ("entry_point", "requirements"):
            for each in violations(getattr(code, key) or "", "TrainingContainerArgument"):
                yield ("code", key), each.code, f"is an argument of the container and {each.message}"
        return
    for member, added in _toolkit_settings(code, request, uri).items():
        settings = shapes()[shapes()[REQUEST]["members"][member]["shape"]]
        for name, value in added.items():
            for each in violations(value, settings["value"]["shape"]):
                yield ("code",), each.code, f"makes {member}.{name}, which {each.message}"
        given = _mapping(request, member)
        if len({**given, **added}) > settings["max"] >= len(given):
            message = f"adds to {member}, which then has more entries than the {settings['max']} that AWS takes"
            yield ("code",), "aws-max", message


def _mapping(request: dict[str, Any], member: str) -> dict[str, Any]:
    """A member that is a mapping, of a request that may hold anything there."""
    given = request.get(member)
    return given if isinstance(given, dict) else {}


def _place(code: Code, request: dict[str, Any]) -> str:
    """The folder in S3 for all versions of the code; empty where the request has no right one, which is told elsewhere."""
    if code.s3_uri is not None:
        return code.s3_uri
    output = _mapping(request, "OutputDataConfig").get("S3OutputPath")
    return f"{output.rstrip('/')}/code" if isinstance(output, str) and not any(violations(output, "S3Uri")) else ""


def _code_uri(request: dict[str, Any], code: Code, archive: CodeArchive) -> str:
    """Where the code lies: content-addressed, so that unchanged code is there already."""
    return f"{_place(code, request).rstrip('/')}/{archive.digest}/"


def _goes_by_toolkit(code: Code, request: dict[str, Any]) -> bool:
    entries = request.get("InputDataConfig")
    full = isinstance(entries, list) and len(entries) >= MAX_CHANNELS
    return code.delivery == "submit_directory" or (code.delivery == "auto" and full)


def _add_code(request: dict[str, Any], code: Code, uri: str) -> None:
    """Let a request that has nothing wrong with it bring the code."""
    if not _goes_by_toolkit(code, request):
        _add_channel(request, code, uri)
        return
    for member, added in _toolkit_settings(code, request, uri).items():
        request[member] = {**request.get(member, {}), **added}


def _add_channel(request: dict[str, Any], code: Code, uri: str) -> None:
    """The code as a channel of its own, started by our own boot.py: any image that has Python will do."""
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


def boot_arguments(code: Code) -> list[str]:
    """What boot.py is told: the entry point, and how to start it where that is not plain."""
    arguments = [str(code.entry_point)]
    if code.launcher != "python":
        arguments += ["--launcher", code.launcher]
    if code.requirements is not None:
        arguments += ["--requirements", code.requirements]
    if code.argument_style != "toolkit":
        arguments += ["--argument-style", code.argument_style]
    return arguments


def _toolkit_settings(code: Code, request: dict[str, Any], uri: str) -> dict[str, dict[str, str]]:
    """The code by the sagemaker-training toolkit's own hyperparameters, for jobs that have no channel left."""
    program = str(code.entry_point)
    bundle = f"{contract.BASE_DIR}/{contract.CODE_DIR}/{contract.BUNDLE_DIR}"
    if program.startswith(f"{contract.BUNDLED_PACKAGE}/"):
        program = f"{contract.BUNDLE_DIR}/{program}"
    parameters = {TOOLKIT_PROGRAM: program, TOOLKIT_DIRECTORY: uri + contract.CODE_ARCHIVE}
    if code.launcher == "torchrun":
        parameters[TOOLKIT_TORCHRUN] = "true"
    inherited = _mapping(request, "Environment").get("PYTHONPATH")
    return {
        "HyperParameters": parameters,
        "Environment": {"PYTHONPATH": f"{bundle}:{inherited}" if inherited else bundle},
    }
