"""What is said of a first word, or an option, that `launch` does not have: what to write in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pkgutil import resolve_name

import click

from launcher.commands import COMMANDS
from launcher.commands.options import in_place_of_folder, is_folder
from launcher.errors import did_you_mean_path, dotted, nearest
from launcher.parsing.spec_text import is_spec

A_SPEC = "a spec (*.yaml, *.yml, *.json, or - for stdin)"
_SCRIPTS = (".py", ".sh", ".ipynb")
# What to write -> what other tools call it; {0} is the spec among the words.
_MEANT = {
    "launch {0}": "run start train apply up",
    "launch {0} --check": "check validate lint",
    "launch {0} --local --channel NAME=PATH": "test debug",
    "launch {0} --dry-run": "plan show render preview",
    "launch init": "new",
    "launch logs NAME --follow": "follow tail watch",
    "launch status NAME": "describe get",
    "launch list": "ls ps jobs",
    "launch stop NAME": "kill cancel delete rm down",
    "launch exec NAME": "ssh shell",
}
_INSIDE = {"channels": ".NAME.s3_uri", "environment": ".NAME", "hyperparameters": ".NAME"}  # of mappings with any keys
MEANT = {word: text for text, words in _MEANT.items() for word in words.split()}


def remedy(args: Sequence[str]) -> str:
    """Return what to write in place of a first word that is neither a command nor a spec; empty if no word is near."""
    word, spec = args[0], " ".join(each for each in args[1:] if is_spec(each)) or "job.yaml"
    if word in MEANT:
        return f"; write {MEANT[word].format(spec)}"
    if word.endswith(_SCRIPTS):
        folder, _, name = word.rpartition("/")
        key = f"code: {{directory: {folder or '.'}, entry_point: {name}}}"
        return f"; name a script in the spec, by {key}, and write launch {spec}"
    if is_folder(word):
        return in_place_of_folder(word)
    near = nearest(word, [*COMMANDS, *MEANT])
    meant = MEANT.get(str(near), str(near)).format(spec)
    return did_you_mean_path(word, is_spec) or (f"; did you mean {meant}?" if near else "")


def no_such_option(error: click.NoSuchOption) -> str:
    """Return the message, with what to write if `launch submit` or `launch local` has the option, or their spec the key."""
    option, here = error.option_name, error.ctx.info_name if error.ctx else ""
    having = [name for name in ("submit", "local") if option in options_of(resolve_name(COMMANDS[name]))]
    if having and here == "launch":
        start = "`launch --example s3-file` prints a spec to start from"
        return f"{option} needs {A_SPEC}: write launch job.yaml {option}; {start}"
    if having == ["submit"] and here == "local":
        return f"{option} and --local exclude each other; pass one of them"
    if having == ["local"] and here == "submit":
        return f"{option} works only with --local; add --local or leave it out"
    name = option.lstrip("-")
    if near := nearest(name, (each.lstrip("-") for each in error.possibilities or ())):
        return f"No such option {option!r}; did you mean --{near}?"
    if here in ("submit", "local") and option.startswith("--"):
        from launcher.parsing.foreign_keys import place_of
        from launcher.spec.job import JobSpec

        key, dot, rest = name.partition(".")
        sure = place_of((key,), [*JobSpec.model_fields])
        path = dotted(sure[1]) if sure and sure[1] else f"hyperparameters.{key}"
        path += f"{dot}{rest}" or _INSIDE.get(path, "")
        return f"No such option {option!r}. A key of the spec is set by --set {path}=VALUE"
    return error.format_message()


def options_of(command: click.Command) -> set[str]:
    return {option for each in command.params for option in each.opts}
