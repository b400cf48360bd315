"""The spec's keys for names that users know from elsewhere: the request's members, and the SageMaker SDK's arguments.

Such users write `RoleArn`, `max_run` or a channel's `DataSource`, and lists of `{Name: ..., Value: ...}`. All are refused,
so that a spec has one form; the message shows the right key, and that key is not reported as missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from launcher.errors import SpecPath, dotted
from launcher.spec.channels import KINDS
from launcher.spec.model import spec_name
from launcher.tables import read_table

_REMARKS = ("comment", "comments", "description", "note", "notes")
_NESTING = ("data_source", "s3_data_source", "file_system_data_source", "dataset_source")
# The keys whose absence is reported at another key.
_MISSED_AT: dict[SpecPath, SpecPath] = {("training_job_name",): ("base_name",)}


@cache
def _tables() -> dict[str, dict[str, Any]]:
    """Return the tables of foreign_keys.yaml, which describes them, each by key."""
    tables = read_table(__file__, "foreign_keys")
    by_meaning = {name: tables[name].items() for name in ("elsewhere", "in_a_channel")}
    return {
        **tables,
        **{name: {key: meant for meant, keys in table for key in keys.split()} for name, table in by_meaning.items()},
    }


def place_of(path: SpecPath, known: Iterable[str]) -> tuple[str, SpecPath] | None:
    """Return `write ...` for an unknown key that is known from elsewhere, and the place that it means; else None.

    `known` are the keys that the mapping around it may have.
    """
    key = spec_name(str(path[-1])).replace("-", "_")
    above = path[:-1]
    if key in known:
        place = (*above, key)
        return f"write {key}", _MISSED_AT.get(place, place)
    if len(path) == 1 and key in _REMARKS:
        return "write a remark as a comment, which begins with #", ()
    tables = _tables()
    if path[0] != "channels" and key in tables["elsewhere"]:
        place = tuple(tables["elsewhere"][key].split("."))
        if above and place[:-1] == above:
            return f"write {place[-1]}", place
        remedy = tables["instead"].get(key) or tables["instead"].get(dotted(place)) or f"write {_as_yaml(place)}"
        return remedy, _MISSED_AT.get(place, place)
    if above and (right := tables["in_a_mapping"].get(str(above[-1]), {}).get(key)):
        return f"write {right}", (*above, right)
    if path[:1] == ("channels",) and len(path) == 3:
        if key in _NESTING:
            return "write its keys in the channel itself, such as s3_uri or file_system_id", above
        if key == "channel_name":
            return "the name is the channel's own key; delete it", ()
        if key in tables["of_a_channel"]:
            return f"write {tables['of_a_channel'][key]}", above
        if key in (examples := tables["in_a_channel"]):
            example = examples["directory" if key == "path" and "directory_path" in known else key]
            return f"write {example.replace('{KINDS}', ', '.join(KINDS))}", above
        if kinds := [kind for kind, model in KINDS.items() if key in model.model_fields]:
            return f"it needs source: {' or '.join(kinds)}", above
    return None


def _as_yaml(place: SpecPath) -> str:
    """Return a place as YAML: `code: {directory: ...}`."""
    *outer, last = place
    return "".join(f"{part}: {{" for part in outer) + f"{last}: ..." + "}" * len(outer)


def as_mapping(path: SpecPath, value: Any) -> str:
    """Return `; write {...}` for a value that should be a mapping, or an empty text if the intended mapping is unclear.

    The values of a list's items are not shown: in `environment` they can be secrets.
    """
    if path == ("channels",):
        return "; write each channel under its name: {train: {s3_uri: ...}}"
    if path[:1] == ("channels",) and len(path) == 2:
        several = isinstance(value, list) and len(value) > 1
        return "; write a channel for each, since a channel has one source" if several else "; write {s3_uri: ...}"
    if path and (keys := _tables()["first_keys"].get(str(path[-1]))):
        return f"; write {{{keys}}}"
    names = [_name(item) for item in value] if isinstance(value, list) else []
    if not names or not all(names):
        return ""
    shown = ", ".join(f"{_scalar(name)}: ..." for name in names[:3] if name)
    return f"; write {{{shown}{', ...' if len(names) > 3 else ''}}}"


def _name(item: Any) -> str | None:
    """Return the name in `{Name: ..., Value: ...}` or in `NAME=value`."""
    if isinstance(item, str) and (named := re.match(r"([A-Za-z_][A-Za-z0-9_]{0,39})=", item)):
        return named[1]
    if isinstance(item, dict) and len(item) == 2:
        folded = {str(key).lower(): value for key, value in item.items()}
        name = folded.get("key", folded.get("name"))
        return str(name)[:40] if name is not None and "value" in folded else None
    return None


def as_list(path: SpecPath, value: Any) -> str:
    """Return `such as [...]` for a value that should be a list, made of the value if possible."""
    if path == ("extends",) and not isinstance(value, str):
        return "such as [base.yaml]"
    if isinstance(value, Mapping) and value:
        first = _scalar(str(next(iter(value)))[:40])
        if path == ("metric_definitions",) and "regex" not in value:
            return f"such as [{{name: {first}, regex: ...}}]"
        if path[-1:] == ("instance_groups",) and "instance_type" not in value:
            return f"such as [{{instance_group_name: {first}, instance_type: ..., instance_count: 1}}]"
        return f"such as [{{{first}: ...{', ...' if len(value) > 1 else ''}}}]"
    if isinstance(value, str) and 0 < len(value) <= 120:
        separator = r"\s*,\s*" if path[:1] == ("extends",) else r"\s*,\s*|\s+"
        return f"such as [{', '.join(_scalar(word) for word in re.split(separator, value.strip()) if word)}]"
    return "such as [one, two]"


def _scalar(text: str) -> str:
    """Return a text as YAML inside brackets, in quotes if it needs them."""
    is_plain = re.fullmatch(r"[A-Za-z0-9_./-][A-Za-z0-9_./:@=-]*", text) and not text.endswith(":")
    return text if is_plain else json.dumps(text)
