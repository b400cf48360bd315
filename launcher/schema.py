"""The JSON Schema of a spec, by which editors complete and check: `python -m launcher.schema` prints it.

Made from the spec's own classes, the lines under their fields, and botocore's enums and patterns, so it says what the parser
takes. `channel_specs/schema.json` is its copy; a test keeps it current.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from typing import Any

from launcher.aws_model import REQUEST, shapes
from launcher.channels import KINDS
from launcher.channels.base import BaseChannel
from launcher.part import Part, aws_name
from launcher.request import member_place
from launcher.spec import JobSpec


def schema() -> dict[str, Any]:
    """The whole schema, JSON Schema 2020-12."""
    made = JobSpec.model_json_schema()
    definitions: dict[str, Any] = made.pop("$defs")
    for name, part in _parts().items():
        _describe(definitions.get(name, made), part)
    for key, field in made["properties"].items():
        _limit(field, _shape(shapes()[REQUEST], member_place(key)), definitions)
    for kind in KINDS.values():
        for key, field in definitions[kind.__name__]["properties"].items():
            _limit(field, _shape(shapes()["Channel"], (*kind.PLACES.get(key, ()), aws_name(key))), definitions)
    shorthand = {"type": "string", "description": "A prefix in S3: source S3, File mode, FullyReplicated."}
    channel = {"anyOf": [shorthand, *({"$ref": f"#/$defs/{kind.__name__}"} for kind in KINDS.values())]}
    made["properties"]["channels"] = {
        "anyOf": [{"type": "object", "additionalProperties": channel}, {"type": "null"}],
        "description": "The input channels by name, at most 20 besides those of source S3Connector.",
    }
    _tidy(made)
    _tidy(definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A SageMaker training job",
        **made,
        "$defs": definitions,
    }


def _parts() -> dict[str, type[Part]]:
    """Every class of a spec by its name."""
    found: dict[str, type[Part]] = {}
    todo: list[type[Part]] = [Part]
    while todo:
        for part in todo.pop().__subclasses__():
            found[part.__name__] = part
            todo.append(part)
    return {name: part for name, part in found.items() if part not in (BaseChannel,)}


def _describe(definition: dict[str, Any], part: type[Part]) -> None:
    """Take the line under each field of the class, and of those above it, for the field's description."""
    for cls in reversed(part.__mro__):
        if not issubclass(cls, Part):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(tree, ast.ClassDef), "the source of a class"
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                assert isinstance(field.target, ast.Name), "a field has a plain name"
                if field.target.id in definition.get("properties", {}):
                    definition["properties"][field.target.id]["description"] = str(text.value.value)


def _shape(shape: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any] | None:
    """The service model's shape at a place below `shape`; None where the key is ours alone."""
    for member in place:
        if member not in shape.get("members", {}):
            return None
        shape = shapes()[shape["members"][member]["shape"]]
    return shape


def _limit(field: dict[str, Any], shape: dict[str, Any] | None, definitions: dict[str, Any]) -> None:
    """Add the service model's enum, pattern and bounds to a field, and to the fields below it."""
    if shape is None:
        return
    for option in field.get("anyOf", [field]):
        if "$ref" in option:
            inner = definitions[option["$ref"].rsplit("/", 1)[1]]
            for key, below in inner["properties"].items():
                _limit(below, _shape(shape, (aws_name(key),)), definitions)
        elif option.get("type") == "array" and "member" in shape:
            _limit(option["items"], shapes()[shape["member"]["shape"]], definitions)
        elif option.get("type") == "integer" or (shape["type"] in ("integer", "long") and "string" in option["type"]):
            option.update({name: shape[key] for key, name in (("min", "minimum"), ("max", "maximum")) if key in shape})
        elif "enum" in shape and option.get("type") != "null":
            option.clear()
            option["enum"] = shape["enum"]
        elif isinstance(option.get("type"), list) and r"\p" not in shape.get("pattern", r"\p"):
            option["pattern"] = f"^(?:{shape['pattern']})$"
            if "boolean" in option["type"]:
                option.update(_unquoted(shape["pattern"]))


def _unquoted(pattern: str) -> dict[str, Any]:
    """What a text of a pattern may be without quotes. A schema's pattern says nothing of numbers, so samples are tried."""

    def takes(*samples: str) -> bool:
        return all(re.fullmatch(pattern, sample) for sample in samples)

    kinds = {"integer": takes("0", "123456"), "number": takes("0.5", "-1.25"), "boolean": takes("true", "false")}
    bound = {} if takes("-1") or not kinds["integer"] else {"minimum": 0}
    return {"type": ["string", *(kind for kind, taken in kinds.items() if taken)], **bound}


def _tidy(value: Any) -> None:
    """Drop what editors do not need: generated titles, and defaults of null."""
    if isinstance(value, dict):
        if isinstance(value.get("title"), str):
            del value["title"]
        if "default" in value and value["default"] is None:
            del value["default"]
        for inner in value.values():
            _tidy(inner)
    elif isinstance(value, list):
        for inner in value:
            _tidy(inner)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
