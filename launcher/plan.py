"""JobSpec -> Plan: exactly the request that is shown, sent, or run here.

Pure: the clock, chance, files and the environment are the caller's, who hands over the job's name and the code archive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from entrypoints import contract
from launcher.archive import CodeArchive
from launcher.aws_model import violations
from launcher.checks import check_spec
from launcher.checks.channels import MAX_CHANNELS
from launcher.codes import without_ignored
from launcher.errors import Problem, RefusedError, SpecError, cut, in_file_order
from launcher.nearest import did_you_mean
from launcher.request import build_request
from launcher.spec import Code, JobSpec

TOOLKIT_PROGRAM = "sagemaker_program"
TOOLKIT_DIRECTORY = "sagemaker_submit_directory"
TOOLKIT_TORCHRUN = "sagemaker_torch_distributed_enabled"


@dataclass(frozen=True)
class Plan:
    """What will be done."""

    request: dict[str, Any]
    """The CreateTrainingJob request, member for member."""
    spec: JobSpec
    code: CodeArchive | None
    """What is to lie at `code_uri` before the request is sent; None where no code travels."""
    code_uri: str | None
    warnings: tuple[Problem, ...]

    def veiled_request(self) -> dict[str, Any]:
        """The request with settings that name environment variables as written, `${NAME}`: fit to be shown to anyone."""
        request = dict(self.request)
        for (member, name), written in self.spec.veiled.items():
            if name in request.get(member, {}):
                request[member] = {**request[member], name: written}
        return request


def make_plan(
    spec: JobSpec,
    *,
    job_name: str,
    code: CodeArchive | RefusedError | None = None,
    ignore: tuple[str, ...] = (),
    strict: bool = False,
) -> Plan:
    """Plan one job.

    `code` is required where the spec has `code:`; why it could not be read becomes one of the problems. `ignore` names codes
    to say nothing of, besides the spec's own; `strict` makes warnings errors. Raises SpecError with every problem found.
    """
    request = build_request(spec, job_name)
    problems = check_spec(spec, job_name)
    uri = None
    if spec.code is not None and isinstance(code, CodeArchive):
        problems += _missing_files(spec, code)
        uri = _code_uri(request, spec.code, code)
        _add_code(request, spec.code, uri)
        problems += _code_violations(spec, request, problems)
    elif spec.code is not None:
        path = ("code", "directory")
        problems.append(Problem(path, str(code), "code-unreadable", location=spec.locate(path)))
    problems = in_file_order(without_ignored(problems, spec, ignore))
    if any(strict or problem.severity == "error" for problem in problems):
        raise SpecError(cut(problems))
    return Plan(request, spec, code if isinstance(code, CodeArchive) else None, uri, tuple(problems))


def _code_violations(spec: JobSpec, request: dict[str, Any], known: list[Problem]) -> list[Problem]:
    """The model's limits that the request breaks only with the code in it."""
    messages = {problem.message for problem in known}
    found = [violation for violation in violations(request) if violation.message not in messages]
    path = ("code", "s3_uri") if spec.code and spec.code.s3_uri is not None else ("code",)
    location = spec.locate(path)
    return [
        Problem(path, f"makes {'.'.join(map(str, each.path))} wrong: {each.message}", each.code, location=location)
        for each in found
    ]


def _missing_files(spec: JobSpec, archive: CodeArchive) -> list[Problem]:
    """Files that the spec names and the archive lacks."""
    code, names = spec.code, archive.names()
    problems = []
    for key in ("entry_point", "requirements"):
        name = getattr(code, key)
        bundled = key == "entry_point" and f"{contract.BUNDLE_DIR}/{name}" in names
        if name is not None and name not in names and not bundled:
            path = ("code", key)
            ours = f"{contract.BUNDLE_DIR}/"
            known = [each.removeprefix(ours) for each in names]
            if code is not None and code.directory is not None:
                message = f"{name!r} is not in {code.directory}{did_you_mean(name, known)}"
            else:
                message = (
                    f"{name!r} is none of the bundled scripts; name its folder with directory, such as directory: src"
                )
            problems.append(Problem(path, message, "code-file-missing", location=spec.locate(path)))
    return problems


def _code_uri(request: dict[str, Any], code: Code, archive: CodeArchive) -> str:
    """Where the code lies: content-addressed, so that unchanged code is there already."""
    output = request.get("OutputDataConfig", {}).get("S3OutputPath", "")
    place = code.s3_uri if code.s3_uri is not None else f"{output.rstrip('/')}/code"
    return f"{place.rstrip('/')}/{archive.digest}/"


def _add_code(request: dict[str, Any], code: Code, uri: str) -> None:
    full = len(request.get("InputDataConfig", ())) >= MAX_CHANNELS
    if code.delivery == "submit_directory" or (code.delivery == "auto" and full):
        _add_for_toolkit(request, code, uri)
    else:
        _add_channel(request, code, uri)


def _add_channel(request: dict[str, Any], code: Code, uri: str) -> None:
    """The code as a channel of its own, started by our own boot.py: any image that has Python will do."""
    source: dict[str, Any] = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    entries = request.setdefault("InputDataConfig", [])
    if any("InstanceGroupNames" in entry["DataSource"].get("S3DataSource", {}) for entry in entries):
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
    return arguments


def _add_for_toolkit(request: dict[str, Any], code: Code, uri: str) -> None:
    """The code by the sagemaker-training toolkit's own hyperparameters, for jobs that have no channel left."""
    program = str(code.entry_point)
    bundle = f"{contract.BASE_DIR}/{contract.CODE_DIR}/{contract.BUNDLE_DIR}"
    if program.startswith(f"{contract.BUNDLED_PACKAGE}/"):
        program = f"{contract.BUNDLE_DIR}/{program}"
    parameters = request.setdefault("HyperParameters", {})
    parameters[TOOLKIT_PROGRAM] = program
    parameters[TOOLKIT_DIRECTORY] = uri + contract.CODE_ARCHIVE
    if code.launcher == "torchrun":
        parameters[TOOLKIT_TORCHRUN] = "true"
    environment = request.setdefault("Environment", {})
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{bundle}:{inherited}" if inherited else bundle
