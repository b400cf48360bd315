"""`launch import WHAT`: the spec of a request that exists, of a past job, or of a job that a script would create."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from launcher.bundled import SCHEMA_LINE
from launcher.commands import options
from launcher.console import print_line, say
from launcher.importing.imports import import_file, import_job, import_script
from launcher.importing.source_text import is_script


@options.command("import", "import digits-1")
@click.argument("what", type=click.Path(allow_dash=True))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--pick", metavar="NUMBER", help="Which one, if there are several requests: its number, or its place.")
@click.option("--python", metavar="PATH", help="The Python that runs a script, instead of launch's own.")
@options.json_option
@options.account_options
def import_spec(
    what: str,
    arguments: tuple[str, ...],
    pick: str | None,
    python: str | None,
    as_json: bool,
    where: options.AccountOptions,
) -> None:
    """Print the spec for a request, a past job, or a script's job.

    WHAT is a file with a request (JSON, YAML, a Python literal, or AWS CLI commands in *.sh), - for standard input, a training
    job's name or ARN, or a *.py script or *.ipynb notebook, which is run with ARGUMENTS (after --) while nothing that it
    sends reaches AWS.
    """
    is_arn = what.startswith("arn:") and what.count(":") == 5
    is_file = what == "-" or os.sep in what or Path(what).suffix or Path(what).exists()
    if is_arn or not is_file:
        account = (where._replace(region=what.split(":")[3]) if is_arn else where).open()
        found = import_job(account, what, pick, lambda text: say(f"warning: {text}; the spec has no tags", "yellow"))
    elif is_script(Path(what)):
        found = import_script(Path(what), arguments, python or sys.executable, where.open(), pick)
    else:
        found = import_file(what, pick)
    if as_json:
        options.print_json({"Spec": found.spec, "Notes": found.notes, "Variables": found.variables})
    else:
        print_line(f"{SCHEMA_LINE}\n{found.as_yaml()}".removesuffix("\n"))
