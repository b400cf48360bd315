"""Run the user's entry point like the sagemaker-training toolkit, and report its exit code and the reason of a failure.

A `.py` file is run by this Python, in a package as its module (`python -m`); another file by itself, or by bash without a #! line.
It starts in the code folder, with the hyperparameters as arguments and all SM_* variables; by torchrun, if requested, on all hosts.
No shell is involved, so quotes, newlines and `$` in hyperparameters stay as they are. Nothing here prints a value, because
hyperparameters and variables can hold secrets.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

from sagemaker_channels import contract
from sagemaker_channels.errors import ConfigError
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.job.hyperparameters import FORMS, command_line_arguments
from sagemaker_channels.start import mpi
from sagemaker_channels.start.command import (
    Command,
    command_words,
    host_variables,
    name_of,
    program_of,
    show_bundled_scripts,
)
from sagemaker_channels.start.failure import failure_text, fit_to_limit, how_it_ended, write_failure
from sagemaker_channels.start.outputs import lost_checkpoints, lost_model
from sagemaker_channels.start.process import ProgramResult, run_program
from sagemaker_channels.start.references import SecretError, mask_of, read_secrets, references_in, with_values
from sagemaker_channels.start.requirements import install, install_package, is_package, packages_folder
from sagemaker_channels.start.variables import Machine, count_machine, sagemaker_variables

_GRACE_SECONDS = contract.STOP_SECONDS - 5  # leaves time to write the reason before SageMaker kills this process, too
_HOST_SECONDS = 300  # A cluster's names do not resolve before all its hosts are up.
_VARIABLE_BYTES = 128 * 1024  # Linux's limit on `NAME=value` with its NUL, and on one argument


@dataclass(frozen=True)
class StartOptions:
    entry_point: str | None = None  # a path in the code; entrypoints/<name>.py is a script of the bundle
    command: Command | None = None  # in place of the entry point
    requirements: str | None = None  # a path in the code
    shell: str | None = None  # in place of the entry point: a command for a shell, or empty for the shell alone
    argument_style: str = "toolkit"  # or "json": see job/hyperparameters.py
    arguments: str = FORMS[0]

    @property
    def name(self) -> str:
        return name_of(self.command) if self.command is not None else str(self.entry_point)


class StartError(Exception):
    """The entry point cannot be started; one line with the reason and the remedy."""


def run_entry_point(root: Path, environ: Mapping[str, str], options: StartOptions) -> int:
    """Run the job from the unpacked code to the end of the training, and return the container's exit code.

    If it fails, `output/failure` gets the reason, unless the script wrote its own.
    """
    failure_file = root / contract.FAILURE_FILE
    try:
        environment = load_environment(root, environ)
        bundled = _check(environment, options)
        parameters = environment.hyperparameters
        secrets = read_secrets(references_in([*environ.values(), *parameters.values()]), environ)
        mask = mask_of(secrets)
        environment = replace(environment, hyperparameters=with_values(parameters, secrets))
        environ = with_values({name: environ[name] for name in environ if name != contract.SECRETS_VARIABLE}, secrets)
        for directory in (environment.model_dir, environment.output_data_dir):
            directory.mkdir(parents=True, exist_ok=True)  # Scripts expect them to exist.
        packages = root / contract.PACKAGES_DIR
        for what, pip in _installations(environment, environ, options, packages):
            if pip.exit_code != 0:
                pip = replace(pip, stderr=mask.apply(pip.stderr))
                write_failure(failure_file, _pip_failure(what, pip))
                return pip.exit_code
        machine = count_machine(environment.current_instance_type)
        style = options.argument_style, options.arguments
        variables = sagemaker_variables(environment, environ, machine, options.entry_point, *style)
        arguments = command_line_arguments(environment.hyperparameters, *style)
        child = _child_environ(environment, environ, variables, packages)
        if options.command is not None:
            child = {**_launcher_variables(environment, variables, machine, options.command), **child}
        if options.shell is not None:
            os.chdir(environment.code_dir)
            shell = shutil.which("bash", path=child.get("PATH")) or "/bin/sh"
            os.execve(shell, [shell, *(["-c", options.shell] if options.shell else [])], child)
        if options.command is None:
            words = [*_program(environment, str(options.entry_point), packages, bundled=bundled), *arguments]
        else:
            words = command_words(options.command, arguments, child.get("PATH"))
            if len(environment.hosts) > 1 and contract.MASTER_ADDR_VARIABLE not in environ:
                wait_for_hosts(environment.hosts, _HOST_SECONDS)
            show_bundled_scripts(options.command, environment.code_dir, root / contract.BUNDLE_DIR)
            if program_of(options.command) in mpi.PROGRAMS:
                words = mpi.words_on(variables, words)
        begun, has_checkpoints = time.time(), environment.checkpoint_dir.exists()
        try:
            result = _run(words, child, environment.code_dir)
        finally:
            if options.command is not None and program_of(options.command) in mpi.PROGRAMS:
                mpi.end(variables)
        result = replace(result, stderr=mask.apply(result.stderr))
        lost = [] if has_checkpoints else [lost_checkpoints(environment)]
        if result.exit_code == 0:
            lost.append(lost_model(environment, begun))
        for warning in filter(None, lost):
            print(f"boot: warning: {warning}", file=sys.stderr, flush=True)
    except (StartError, ConfigError, SecretError) as error:
        print(f"boot: {error}", file=sys.stderr, flush=True)
        write_failure(failure_file, fit_to_limit(str(error), ""))
        return 1
    if result.stopped_by is not None and result.exit_code != 0:
        reason = fit_to_limit(f"{options.name} was stopped by {result.stopped_by.name}", result.stderr)
        write_failure(failure_file, reason)
    elif result.exit_code != 0:
        write_failure(failure_file, failure_text(options.name, result.exit_code, result.stderr))
    return result.exit_code


def _installations(
    environment: Environment, environ: Mapping[str, str], options: StartOptions, packages: Path
) -> Iterator[tuple[str, ProgramResult]]:
    """Install the script's requirements, then its package; yield what was installed and how pip ended."""
    if options.requirements is not None:
        print(f"boot: installing {options.requirements}", flush=True)
        wanted = ["-r", options.requirements]
        yield options.requirements, install(wanted, packages, environment.code_dir, environ, _GRACE_SECONDS)
    if is_package(environment.code_dir) and not str(options.entry_point).endswith(".sh"):  # the toolkit's exception
        print("boot: installing the package in the code folder", flush=True)
        yield "the package in the code folder", install_package(packages, environment.code_dir, environ, _GRACE_SECONDS)


def wait_for_hosts(hosts: Iterable[str], seconds: float) -> None:
    """Wait until every host's name resolves. Raises StartError, with those that do not, after `seconds`."""
    until = time.monotonic() + seconds
    if missing := [host for host in hosts if not _resolves(host)]:
        print(f"boot: waiting for {', '.join(missing)}", flush=True)
    while missing := [host for host in missing if not _resolves(host)]:
        if time.monotonic() > until:
            raise StartError(
                f"{', '.join(missing)}: the name did not resolve within {seconds:.0f} s, and the command needs every host; "
                "see that host's log, or run on one host"
            )
        time.sleep(1)


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _check(environment: Environment, options: StartOptions) -> bool:
    """Return whether the entry point is one of the bundled scripts. Raises StartError if a file is missing."""
    for name in (options.entry_point, options.requirements):
        if name is not None and (PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts):
            raise StartError(f"{name!r} is not a path inside the code; name a file of code.directory")
    if options.requirements is not None and not (environment.code_dir / options.requirements).is_file():
        raise StartError(f"requirements {options.requirements!r} are not in the code; check code.requirements")
    if options.entry_point is None or (environment.code_dir / options.entry_point).is_file():
        return False
    path = PurePosixPath(options.entry_point)
    of_bundle = path.parent == PurePosixPath(contract.SCRIPTS_DIR) and path.suffix == ".py"
    if of_bundle and (environment.root / contract.BUNDLE_DIR / path).is_file():
        return True
    raise StartError(
        f"entry point {options.entry_point!r} is not in the code; check code.entry_point and code.directory"
    )


def _program(environment: Environment, entry_point: str, packages: Path, *, bundled: bool) -> list[str]:
    """Return the command that runs the entry point, without its arguments."""
    if bundled:
        return [sys.executable, str(environment.root / contract.BUNDLE_DIR / entry_point)]
    file = environment.code_dir / entry_point
    if entry_point.endswith(".py"):
        module = _module(environment.code_dir, file, packages) if is_package(environment.code_dir) else None
        return [sys.executable, *(["-m", module] if module else [entry_point])]
    with file.open("rb") as opened:
        line, _, _ = opened.read(4096).partition(b"\n")
    if not line.startswith(b"#!") and b"\0" not in line:  # neither a script with an interpreter nor a binary
        return [shutil.which("bash") or "sh", entry_point]
    if line.startswith(b"#!") and line.endswith(b"\r"):
        raise StartError(f"{entry_point} has Windows line ends, so its first line names no program; save it with LF")
    interpreter = os.fsdecode(line[2:].split()[0]) if line.startswith(b"#!") and line[2:].split() else None
    if interpreter is not None and not Path(interpreter).is_file():
        raise StartError(f"{entry_point} is to be run by {interpreter}, which is not here; correct its first line")
    file.chmod(file.stat().st_mode | 0o111)
    return [f"./{entry_point}"]


def _module(code_dir: Path, file: Path, packages: Path) -> str | None:
    """Return the dotted name of a file of the installed package, under which its relative imports work."""
    names, folder = [file.stem], file.parent
    while folder != code_dir and (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    found = PathFinder.find_spec(names[0], [str(code_dir), str(packages_folder(packages))])
    return ".".join(names) if len(names) > 1 and found is not None else None


def _launcher_variables(
    environment: Environment, variables: Mapping[str, str], machine: Machine, command: Command
) -> dict[str, str]:
    """Return the settings of launchers for this job's hosts, and write the file of the hosts."""
    hostfile = environment.root / contract.HOSTFILE
    processes = machine.gpus or machine.neurons or 1
    hostfile.write_text("".join(f"{host} slots={processes}\n" for host in sorted(environment.hosts)), encoding="utf-8")
    found = {**host_variables(variables, processes), contract.HOSTFILE_VARIABLE: str(hostfile)}
    if program_of(command) in mpi.PROGRAMS:
        interface = environment.network_interface_name
        is_here = interface in _interfaces() and not interface.startswith("lo")
        found |= mpi.variables_of(str(hostfile), interface if is_here else None, _GRACE_SECONDS - 5)
    return found


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _child_environ(
    environment: Environment, environ: Mapping[str, str], variables: Mapping[str, str], packages: Path
) -> dict[str, str]:
    """Return the entry point's environment: the container's, SM_*, module and command search paths, and network settings."""
    child = {
        "MASTER_ADDR": variables["SM_MASTER_ADDR"],
        "MASTER_PORT": variables["SM_MASTER_PORT"],
        "PYTHONUNBUFFERED": "1",  # Lines appear in the log when they are written.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(_GRACE_SECONDS - 5),  # torchrun's 30 s is short for a checkpoint
    }
    if environment.network_interface_name in _interfaces():
        child["GLOO_SOCKET_IFNAME"] = child["NCCL_SOCKET_IFNAME"] = environment.network_interface_name
    child |= environ  # The job's own Environment has priority.
    child |= variables
    if str(environment.root) != contract.BASE_DIR:
        child[contract.BASE_DIR_VARIABLE] = str(environment.root)
    modules = [environment.code_dir, environment.root / contract.BUNDLE_DIR]
    if packages.is_dir():
        modules.append(packages_folder(packages))
        child["PATH"] = os.pathsep.join([child.get("PATH", os.defpath), str(packages / "bin")])
    inherited = [environ["PYTHONPATH"]] if environ.get("PYTHONPATH") else []
    child["PYTHONPATH"] = os.pathsep.join([*map(str, modules), *inherited])
    return child


def _run(command: list[str], environ: Mapping[str, str], directory: Path) -> ProgramResult:
    variables = {}
    for name, value in environ.items():
        entry = f"{name}={value}"
        if "=" in name or "\0" in entry or len(entry.encode(errors="replace")) >= _VARIABLE_BYTES:
            # The toolkit fails here. The script can still read the value from hyperparameters.json.
            print(f"boot: {name[:80]!r} is left out: Linux cannot pass such a variable", file=sys.stderr, flush=True)
        else:
            variables[name] = value
    try:
        return run_program(command, variables, directory, _GRACE_SECONDS)
    except ValueError as error:  # a NUL in an argument
        raise StartError(f"a hyperparameter cannot be an argument of the entry point: {error}; remove it") from error
    except OSError as error:
        raise StartError(f"{command[0]} cannot be started: {error.strerror}") from error


def _pip_failure(what: str, pip: ProgramResult) -> str:
    if pip.stopped_by is not None:
        return f"installing {what} was stopped by {pip.stopped_by.name}"
    of_build = re.search(r"^ +(\S.*)\n +\[end of output\]", pip.stderr, re.MULTILINE)  # the failed build's last line
    lines = [line for line in pip.stderr.splitlines() if line.startswith("ERROR: ")]
    reason = of_build[1] if of_build else lines[0] if lines else "pip gave no reason"
    return fit_to_limit(f"installing {what} {how_it_ended(pip.exit_code)}: {reason}", pip.stderr)
