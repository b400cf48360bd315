"""`launch exec`: a shell or a command in a host of a running job, or in a host made like one on this machine."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

import click

import launcher
from launcher.commands import options
from launcher.commands.jobs import is_local
from launcher.commands.local import run_options
from launcher.console import Console
from launcher.parsing.spec_text import is_spec

_OF_SPECS = {each.name for each in fields(launcher.LocalOptions)} | {"run_name", "sets", "ignore", "strict"}


@options.command("exec", "exec job.yaml --channel train=./images")
@options.job_argument
@click.argument("command", nargs=-1, metavar="[-- CMD]...")
@click.option("--host", metavar="HOST", default="algo-1", help="The host, such as algo-2.")
@click.option("--name", "run_name", metavar="NAME", help="With a spec: the job's full name.")
@options.spec_options
@options.account_options
@run_options
def execute(
    name: str,
    command: tuple[str, ...],
    host: str,
    run_name: str | None,
    reading: options.SpecOptions,
    where: options.AccountOptions,
    local: launcher.LocalOptions,
) -> int:
    """Open a shell in a running job, or run CMD there.

    NAME is a training job, which is entered by Systems Manager; its remote debugging is enabled first. It can also be a local run
    that has not ended; CMD gets the variables of its script. If NAME is a spec, such as job.yaml, a host of its job is made on this
    machine, with its channels, code, requirements and variables, and removed at the end; without a terminal, its shell reads
    commands from standard input. One word of CMD is a line for the shell. The exit code is that of CMD.
    """
    text = command[0] if len(command) == 1 else shlex.join(command)
    if is_spec(name):
        if found := options.given("region", "profile"):
            raise click.UsageError(f"{found[0]} works only with a job's name; a spec has region and profile")
        run = replace(local, shell=host, command=text)
        return launcher.run_local(reading.plan(name, run_name), options=run).exit_code
    if found := options.given(*_OF_SPECS - {"runner", "yes", "as_json", "command"}):
        raise click.UsageError(f"{found[0]} works only with a spec, such as job.yaml")
    if is_local(name, local=bool(options.given("runner")), where=where):
        from launcher.local.runs import local_run
        from launcher.local.shell import execute

        code = execute(local_run(name), host, text, to_stderr=local.as_json)
    else:
        from launcher.jobs import remote

        console = Console(as_json=local.as_json)
        code = remote.execute(where.open(), name, host, text, console, to_stderr=local.as_json)
    if local.as_json:
        options.print_json({"TrainingJobName": name, "Host": host, "ExitCode": code})
    return code
