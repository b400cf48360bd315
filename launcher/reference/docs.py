"""The generated parts of the documentation.

`python -m launcher.reference.docs` updates them in every page, or in the files of its arguments.
A part begins with `<!-- NAME: generated -->` and ends with `<!-- end -->`. A test checks that they are current.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click
import yaml

import channel_specs
from entrypoints.records import FORMATS
from launcher.api import plan
from launcher.checks import RULES
from launcher.checks.codes import OTHER_CODES, OTHER_WARNINGS
from launcher.commands import COMMANDS
from launcher.commands.card import EXIT_CODES, Command
from launcher.cost.table import unpriced
from launcher.preflight import CHECKS
from launcher.reference.schema import schema
from launcher.request.text import as_yaml
from launcher.spec.channels import KINDS
from launcher.spec.channels.base import BaseChannel

_ROOT = Path(__file__).parents[2]


def specs_table() -> str:
    """Return a table of the bundled specs."""
    rows = [f"| [{name}]({name}.yaml) | {channel_specs.summary(name)} |" for name in channel_specs.names()]
    return "\n".join(["| spec | what it shows |", "|---|---|", *rows])


def commands_tables() -> str:
    """Return a table of options for each command, with the texts of `--help`."""
    context = click.Context(click.Command("launch"))
    parts = []
    for name, module in COMMANDS.items():
        card: type[Command] = resolve_name(module)
        command = card.as_click(name)
        arguments = [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
        words = " ".join(["launch", *([] if name == "run" else [name]), *arguments])
        rows = [
            f"| `{', '.join(each.opts + each.secondary_opts)}{_metavar(each)}` | {_option_help(each)} |"
            for each in command.params
            if isinstance(each, click.Option)
        ]
        first = card.texts()[1]
        ends = f"Example: `launch {card.example}`. Exit codes: {', '.join(map(str, card.exit_codes))}."
        parts.append("\n".join([f"**`{words}`** {first} {ends}", "", "| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def exit_codes_table() -> str:
    """Every exit code, a row each."""
    rows = [f"| {code} | {_in_cell(meaning)} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| code | meaning |", "|---|---|", *rows])


def _metavar(option: click.Option) -> str:
    return "" if option.is_flag else f" {option.metavar or (option.name or '').upper()}"


def _option_help(option: click.Option) -> str:
    return (option.help or "").replace("|", "\\|").replace("<", "&lt;")


def keys_table() -> str:
    """Return a table of a spec's keys except those of channels; `[]` marks the items of a list."""
    made = schema()
    keys = {key: field for key, field in made["properties"].items() if key != "channels"}
    return "\n".join([_KEYS_HEADINGS, *_key_rows(keys, made["$defs"])])


def channels_tables() -> str:
    """Return a table of a channel's keys for each storage kind."""
    definitions = schema()["$defs"]
    parts = []
    for source, kind in KINDS.items():
        definition = definitions[kind.__name__]
        keys = {key: field for key, field in definition["properties"].items() if key != "source"}
        head = [f"**`source: {source}`** {definition['description']} {_card(kind)}", "", _KEYS_HEADINGS]
        parts.append("\n".join([*head, *_key_rows(keys, definitions)]))
    return "\n\n".join(parts)


def _card(kind: type[BaseChannel]) -> str:
    """What the card of a storage kind states besides its keys."""
    preflight = ", ".join(kind.PREFLIGHT) or f"none ({kind.WITHOUT.get('PREFLIGHT')})"
    local = ", ".join(kind.PROVIDERS) or f"no mode ({kind.WITHOUT.get('PROVIDERS')})"
    member = f"`DataSource.{kind.MEMBER}`" if kind.MEMBER else f"none ({kind.WITHOUT.get('MEMBER')})"
    return f"Request entry: {member}. Delivered by local runs: {local}. Preflight checks: {preflight}."


_KEYS_HEADINGS = "| key | value | default | meaning |\n|---|---|---|---|"
_MANY_VALUES = 6
_TYPES = {"string": "text", "array": "list", "object": "mapping"}


def _key_rows(keys: dict[str, Any], definitions: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, field in keys.items():
        default = f"`{field['default']}`" if field.get("default") is not None else ""
        parts = list(_inner(field))
        meaning = field.get("description") or " ".join(definitions[inner].get("description", "") for inner, _ in parts)
        yield f"| `{above}{key}` | {_values(field)} | {default} | {_in_cell(meaning)} |"
        for inner, mark in parts:
            yield from _key_rows(definitions[inner]["properties"], definitions, f"{above}{key}{mark}.")


def _options(field: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the forms that a key allows besides null and a variable."""
    for option in field.get("anyOf", field.get("oneOf", [field])):
        if "oneOf" in option or "anyOf" in option:
            yield from _options(option)
        elif option.get("type") != "null" and option.get("$ref") != "#/$defs/Variable":
            yield option


def _inner(field: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each mapping inside a key, with the mark of a list's items."""
    for option in _options(field):
        for place, mark in ((option, ""), (option.get("items", {}), "[]")):
            name = place.get("$ref", "").removeprefix("#/$defs/")
            if name and not name.startswith("aws."):
                yield name, mark


def _values(field: dict[str, Any]) -> str:
    words: list[str] = []
    for option in _options(field):
        allowed = option.get("enum", [option["const"]] if "const" in option else [])
        if allowed:
            words += [f"`{each}`" for each in allowed] if len(allowed) <= _MANY_VALUES else [f"one of {len(allowed)}"]
        elif "$ref" in option:
            words.append("mapping")
        else:
            types = option.get("type", "string")
            first: str = types[0] if isinstance(types, list) else types  # the others are unquoted forms of text
            words.append(_TYPES.get(first, first))
    return ", ".join(dict.fromkeys(words))


def rooms_table() -> str:
    """The packages of the project, a row each, with the first line of their docstrings."""
    files = sorted(file for package in ("launcher", "entrypoints") for file in (_ROOT / package).glob("*/__init__.py"))
    rows = []
    for file in files:
        said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        rows.append(f"| `{file.parent.relative_to(_ROOT)}/` | {_in_cell(said.splitlines()[0])} |")
    return "\n".join(["| package | what belongs there |", "|---|---|", *rows])


def request_block() -> str:
    """Return the request of the README's first spec, as `--dry-run` prints it."""
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    spec = yaml.safe_load(readme.split("```yaml\n")[1].split("```")[0])
    return f"```yaml\n{as_yaml(plan(spec, name='digits-1').request)}```"


def codes_table() -> str:
    """Return a table of every code: the rules in the order of their checks, then the others."""
    rows = [f"| `{rule.code}` | {rule.severity} | {_first_paragraph(rule.find)} |" for rule in RULES]
    for severity, table in (("error", OTHER_CODES), ("warning", OTHER_WARNINGS)):
        rows += [f"| `{code}` | {severity} | {text} |" for code, text in table.items()]
    return "\n".join(["| code | severity | why |", "|---|---|---|", *rows])


def preflight_table() -> str:
    """Return a table of preflight's codes, grouped by check."""
    rows = []
    for check in CHECKS:
        rows.append(f"| **{check.name}**: {_in_cell(check.question)} | | |")
        rows += [f"| `{code}` | {severity} | {_in_cell(why)} |" for code, (severity, why) in check.codes.items()]
    return "\n".join(["| code | severity | why |", "|---|---|---|", *rows])


def formats_table() -> str:
    """Every format of a container's samples, a row each."""
    rows = [
        f"| `{form.name}` | {', '.join(f'`{each}`' for each in form.content_types)} | {form.sample} "
        f"| {'yes' if form.boundaries else 'wrapped'} | {f'`{form.ending}`' if form.ending else ''} |"
        for form in FORMATS
    ]
    headings = "| short name | selected by the content type | a sample | Pipe | shards |"
    return "\n".join([headings, "|---|---|---|---|---|", *rows])


def _in_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first_paragraph(function: Callable[..., object]) -> str:
    return _in_cell((function.__doc__ or "").split("\n\n")[0])


def unpriced_line() -> str:
    """Return a sentence with the instance types without a price, by family."""
    sizes: dict[str, list[str]] = {}
    for name in unpriced():
        _, family, size = name.split(".")
        sizes.setdefault(family, []).append(size)
    families = "; ".join(f"{family} ({', '.join(each)})" for family, each in sizes.items())
    return f"The bundled table has no price, in any region, for {len(unpriced())} instance types: {families}."


# From the root of the repository.
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "launcher/README.md",
    "channel_specs/README.md",
    "entrypoints/README.md",
    "tests/README.md",
)

PARTS: dict[str, Callable[[], str]] = {
    "rooms": rooms_table,
    "request": request_block,
    "keys": keys_table,
    "channels": channels_tables,
    "specs": specs_table,
    "commands": commands_tables,
    "exit_codes": exit_codes_table,
    "preflight": preflight_table,
    "codes": codes_table,
    "unpriced": unpriced_line,
    "formats": formats_table,
}


def updated(text: str) -> str:
    """A text with its generated parts up to date. Raises KeyError for a part that nothing generates."""

    def part(found: re.Match[str]) -> str:
        return f"{found[1]}\n{PARTS[found[2]]()}\n{found[4]}"

    return re.sub(r"(<!-- (\w+): generated -->)\n(.*?)(<!-- end -->)", part, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:] or PAGES):
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
