"""The tables of a spec's keys, from the JSON schema, as Markdown for make_docs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from launcher.reference.schema import schema
from launcher.spec.channels import KINDS

MANY_VALUES = 6
_TYPES = {"string": "text", "array": "list", "object": "mapping"}
_HEADINGS = ("key", "value", "default", "meaning")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    first, *others = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([first, "|---" * len(headings) + "|", *others])


def keys() -> str:
    """Return a table of a spec's keys except those of channels, and one of the keys in each mapping; `[]` marks a list's items."""
    made = schema()
    rows, parts = [], []
    for key, field in made["properties"].items():
        if key != "channels":
            row, *inner = _key_rows({key: field}, made["$defs"])
            rows.append((f"[{row[0]}](#{key})", *row[1:]) if inner else row)
            if inner:
                below = [(name.replace(f"`{key}.", "`", 1), *others) for name, *others in inner]
                parts.append(f"### {key}\n\n{table(_HEADINGS, below)}")
    return "\n\n".join([table(_HEADINGS, rows), *parts])


def channels() -> str:
    """Return a table of a channel's keys for each storage kind, below what its card states besides."""
    definitions = schema()["$defs"]
    parts = []
    for source, kind in KINDS.items():
        definition = definitions[kind.__name__]
        keys = {key: field for key, field in definition["properties"].items() if key != "source"}
        checks = ", ".join(kind.ACCOUNT_CHECKS) or f"none ({kind.WITHOUT.get('ACCOUNT_CHECKS')})"
        local = ", ".join(kind.PROVIDERS) or f"no mode ({kind.WITHOUT.get('PROVIDERS')})"
        member = f"`DataSource.{kind.MEMBER}`" if kind.MEMBER else f"none ({kind.WITHOUT.get('MEMBER')})"
        card = f"Request entry: {member}. Delivered by local runs: {local}. Account checks: {checks}."
        parts.append(
            f"### source: {source}\n\n{definition['description']} {card}\n\n{table(_HEADINGS, _key_rows(keys, definitions))}"
        )
    return "\n\n".join(parts)


def _key_rows(keys: dict[str, Any], definitions: dict[str, Any], above: str = "") -> Iterator[tuple[str, ...]]:
    for key, field in keys.items():
        default = f"`{field['default']}`" if field.get("default") is not None else ""
        parts = list(_inner(field))
        meaning = field.get("description") or " ".join(definitions[inner].get("description", "") for inner, _ in parts)
        yield f"`{above}{key}`", _values(field), default, meaning
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
            words += [f"`{each}`" for each in allowed] if len(allowed) <= MANY_VALUES else [f"one of {len(allowed)}"]
        elif "$ref" in option:
            words.append("mapping")
        else:
            types = option.get("type", "string")
            first: str = types[0] if isinstance(types, list) else types  # the others are unquoted forms of text
            words.append(_TYPES.get(first, first))
    return ", ".join(dict.fromkeys(words))
