"""The generated parts of the documentation.

`python tests/data/make_docs.py` updates them in every page, or in the files of its arguments.
A part begins with `<!-- NAME: generated -->` and ends with `<!-- end -->`. A test checks that they are current. Parts of
`SITE_PARTS` are not kept in the repository: docs/conf.py writes them into the site in place of `<!-- NAME: on the site -->`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name

import click
import yaml

import make_keys
import make_reference
from launcher import bundled
from launcher.account import CHECKS
from launcher.api import plan
from launcher.commands import COMMANDS
from launcher.errors import EXIT_CODES
from launcher.request.serialization import as_yaml
from make_keys import table
from sagemaker_channels.formats import FORMATS
from sagemaker_channels.tools.ways import REMOVED, WAYS

_ROOT = Path(__file__).parents[2]


# From the root of the repository: the pages of the site, and those outside of it.
OUTSIDE = (
    "README.md",
    "CONTRIBUTING.md",
    *(f"{name}/README.md" for name in ("launcher", "channel_specs", "entrypoints", "tests")),
)
PAGES = (*OUTSIDE, *sorted(str(page.relative_to(_ROOT)) for page in (_ROOT / "docs").rglob("*.md")))


def all_commands() -> dict[str, click.Command]:
    """Return the commands by the words after `launch`, those of groups included."""
    found: dict[str, click.Command] = {}
    for name, place in COMMANDS.items():
        command: click.Command = resolve_name(place)
        inner = command.commands if isinstance(command, click.Group) else None
        found |= {f"{name} {each}": one for each, one in inner.items()} if inner is not None else {name: command}
    return found


def example_of(command: click.Command) -> str:
    """Return the arguments after `launch` of a command's example."""
    return str(command.epilog).partition("\n")[0].removeprefix("Example: launch ")


def _commands() -> str:
    """Return a table of options for each command, with the texts of `--help`; those of local runs are only in one table."""
    context = click.Context(click.Command("launch"))
    commands = all_commands()
    submitting = {each.name for each in commands["submit"].params}
    of_local = {each.name for each in commands["local"].params} - submitting - {"runner"}
    parts = []
    for name, command in commands.items():
        arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
        words = " ".join(["launch", *([] if name == "submit" else [name]), *arguments])
        options = [each for each in command.params if isinstance(each, click.Option)]
        has_others = name != "local" and of_local <= {each.name for each in options}
        rows = [
            (f"`{', '.join(each.opts + each.secondary_opts)}{_metavar(each)}`", _meaning(each))
            for each in options
            if not (has_others and each.name in of_local)
        ]
        rows += [("", "The options of `launch local` that are not here.")] if has_others else []
        codes = ", ".join(re.findall(r"(?:codes:|;) (\d+) ", str(command.epilog)))
        ends = f"Example: `launch {example_of(command)}`. Exit codes: {codes}."
        text = " ".join(str(command.help).split())
        shown = table(("option", "meaning"), rows)
        parts.append(f"## launch {name}\n\n`{words}`\n\n{text} {ends}\n\n{shown}")
    return "\n\n".join(parts)


def _metavar(option: click.Option) -> str:
    if option.is_flag:
        return ""
    choices = f"[{'|'.join(option.type.choices)}]" if isinstance(option.type, click.Choice) else ""
    return f" {option.metavar or choices or (option.name or '').upper()}"


def _meaning(option: click.Option) -> str:
    named = isinstance(option.show_default, str)  # in place of one that is another on each machine
    default = option.show_default if named else option.default
    shown = isinstance(default, int | str) and not option.is_flag
    return (option.help or "").replace("<", "&lt;") + (f" [default: {default}]" if shown else "")


def _rooms() -> str:
    """Return a table of the project's packages, with the first lines of their docstrings."""
    files = sorted(
        file
        for package in ("launcher", "entrypoints/sagemaker_channels")
        for file in (_ROOT / package).glob("*/__init__.py")
    )
    texts = [ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "" for file in files]
    rows = [
        (f"`{file.parent.relative_to(_ROOT)}/`", text.partition("\n")[0])
        for file, text in zip(files, texts, strict=True)
    ]
    return table(("package", "what belongs there"), rows)


def _request() -> str:
    """Return the request of the README's first spec, as `--dry-run` prints it, without the code: its digest changes with ours."""
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    spec = yaml.safe_load(readme.split("```yaml\n")[1].split("```")[0])
    del spec["code"]
    return f"```yaml\n{as_yaml(plan(spec, name='pets-1').request)}```"


def _account_checks() -> str:
    """Return a section for each account check, with one for each of its codes."""
    parts = []
    for check in CHECKS:
        parts.append(f"## {check.name}\n\n{check.question}")
        parts += [f"### `{code}`\n\n{severity.capitalize()}. {why}" for code, (severity, why) in check.codes.items()]
    return "\n\n".join(parts)


def _formats() -> str:
    """Return a table of the formats of a container's samples."""
    rows = [
        (
            f"`{form.name}`",
            ", ".join(f"`{each}`" for each in form.content_types),
            form.sample,
            "yes" if form.boundaries else "wrapped",
            f"`{form.ending}`" if form.ending else "",
        )
        for form in FORMATS
    ]
    return table(("short name", "selected by the content type", "a sample", "Pipe", "shards"), rows)


def _damage() -> str:
    """Return a table of what the formats read next after skipped damage."""
    rows = [(f"`{form.name}`", form.after_damage or "the next object") for form in FORMATS]
    return table(("format", "after damage, reading continues with"), rows)


def _ways() -> str:
    """Return a table of the ways to read samples, and of those that no longer exist."""
    rows = [
        (
            f"`{way.name}`",
            way.title,
            ", ".join(f"`{name}`" for name in way.arrivals),
            ", ".join(way.formats) if len(way.formats) < make_keys.MANY_VALUES else "shards",
            "; ".join(f"`{need.install}`" for need in way.needs),
        )
        for way in WAYS.values()
    ]
    gone = [(f"`{name}`", f"removed by its authors; `{way}` replaces it", "", "", "") for name, way in REMOVED.items()]
    return table(("way", "what it is", "channel", "only for", "needs"), [*rows, *gone])


def spec_summary(name: str) -> str:
    """Return a bundled spec's first line, a sentence on what it shows."""
    return bundled.spec_path(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


PARTS: dict[str, Callable[[], str]] = {
    "rooms": _rooms,
    "request": _request,
    "keys": make_keys.keys,
    "channels": make_keys.channels,
    "specs": lambda: table(
        ("spec", "what it shows"),
        [(f"[{name}](../../channel_specs/{name}.yaml)", spec_summary(name)) for name in bundled.spec_names()],
    ),
    "commands": _commands,
    "exit_codes": lambda: table(("code", "meaning"), [(str(code), text) for code, text in EXIT_CODES.items()]),
    "launcher_api": make_reference.launcher_api,
    "library_api": make_reference.library_api,
    "formats": _formats,
    "damage": _damage,
    "ways": _ways,
}

# `launch --explain CODE` prints the same.
SITE_PARTS = {"codes": make_reference.codes, "account_checks": _account_checks, "causes": make_reference.causes}


def with_site_parts(text: str) -> str:
    """Return the text of a page with the parts that only the site has."""
    return re.sub(r"<!-- (\w+): on the site -->", lambda found: SITE_PARTS[found[1]](), text)


def updated(text: str) -> str:
    """Return a text with its generated parts up to date. Raises KeyError for a part that nothing generates."""

    def part(found: re.Match[str]) -> str:
        return f"{found[1]}\n{PARTS[found[2]]()}\n{found[4]}"

    return re.sub(r"(<!-- (\w+): generated -->)\n(.*?)(<!-- end -->)", part, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:] or PAGES):
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
