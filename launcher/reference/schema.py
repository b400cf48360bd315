"""The JSON Schema of a spec, for completion and checks in editors: `python -m launcher.reference.schema` prints it.

Made from the spec's classes, the docstrings of their fields, and botocore's enums and patterns, so that it matches the
parser. `channel_specs/schema.json` is its copy; a test checks that it is current.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from launcher.console import print_line
from launcher.reference.problem_codes import ignorable
from launcher.reference.schema_limits import bounds, map_limits, number_limits, request_members, text_limits, unquoted
from launcher.request.aws_model import REQUEST, shapes, violations
from launcher.request.origin import member_of
from launcher.spec.channels import KINDS
from launcher.spec.job import JobSpec
from launcher.spec.model import Section, aws_name, spec_name


def schema() -> dict[str, Any]:
    """Return the schema, JSON Schema 2020-12."""
    made = JobSpec.model_json_schema()
    definitions: dict[str, Any] = made.pop("$defs")
    for section in _below(Section):
        _describe(made if section is JobSpec else definitions.get(section.__name__, {}), section)
    for key, field in made["properties"].items():
        if key == "tags":
            map_limits(field["anyOf"][0], "TagKey", "TagValue", shapes()["TagList"])
        _limit(field, _shape(shapes()[REQUEST], member_of(key)), definitions)
    for definition in definitions.values():
        properties = definition["properties"]
        properties.update({key: _or_null(field) for key, field in properties.items() if "default" in field})
    for kind in KINDS.values():
        for key, field in definitions[kind.__name__]["properties"].items():
            _limit(field, _shape(shapes()["Channel"], kind.place(key)), definitions)
    shorthand = {
        "type": "string",
        **text_limits(shapes()["S3Uri"]),
        "description": "An S3 prefix, short for {s3_uri: ...}: source S3, FullyReplicated, in the job's input mode.",
    }
    channel = {"anyOf": [shorthand, *({"$ref": f"#/$defs/{kind.__name__}"} for kind in KINDS.values())]}
    made["properties"]["channels"] = {
        "anyOf": [
            {"type": "object", "additionalProperties": channel, "propertyNames": text_limits(shapes()["ChannelName"])},
            {"type": "null"},
        ],
        "description": "The input channels by name; at most 20, not counting those of source S3Connector.",
    }
    # The beginning of a TrainingJobName, cut to the characters left for it.
    made["properties"]["base_name"]["anyOf"][0].update(
        type=["string", "integer", "boolean"], minimum=0, pattern="^[a-zA-Z0-9][a-zA-Z0-9-]*$"
    )
    made["properties"]["request"]["anyOf"][0] = request_members(definitions)
    made["properties"]["ignore"]["anyOf"][0]["items"] = {"enum": sorted(ignorable())}
    _tidy(made)
    _tidy(definitions)
    for definition in (made, *definitions.values()):
        _open_to_variables(definition)
    definitions["Variable"] = {"type": "string", "pattern": r"\$\{"}
    made.update(_of_a_whole_job())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A SageMaker training job",
        **made,
        "$defs": definitions,
    }


def _below(section: type[Section]) -> Iterator[type[Section]]:
    """Yield every class that inherits from `section`."""
    for each in section.__subclasses__():
        yield each
        yield from _below(each)


def _describe(definition: dict[str, Any], section: type[Section]) -> None:
    """Use the docstring under each field of the class and its bases as the field's description.

    pydantic's `use_attribute_docstrings` does the same, but whenever the classes are created, which slows every start.
    """
    properties = definition.get("properties", {})
    for cls in reversed([each for each in section.__mro__ if issubclass(each, Section)]):
        (tree,) = ast.parse(inspect.getsource(cls)).body
        for pair in pairwise(getattr(tree, "body", ())):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                    properties.get(key, {})["description"] = text


def _shape(shape: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the service model's shape at a place below `shape`; None for a key of the launcher's own."""
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
            option.update(bounds(shape, "Items"))
            _require(option["items"], shape, definitions)
        elif option.get("type") == "object" and "value" in shape:
            map_limits(option, shape["key"]["shape"], shape["value"]["shape"], shape)
        elif shape["type"] in ("integer", "long") and option.get("type") != "null":
            option.update(number_limits(shape))
        elif "enum" in shape and option.get("type") != "null":
            option.clear()
            option["enum"] = shape["enum"]
        elif isinstance(option.get("type"), list):
            option.update(text_limits(shape))
            if "boolean" in option["type"]:
                option.update(unquoted(shape))


def _require(items: dict[str, Any], shape: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Require AWS's required keys in an item: a list is replaced as a whole, so no other layer can add them."""
    required = shapes()[shape["member"]["shape"]].get("required", ())
    if required and "$ref" in items:
        definitions[items["$ref"].rsplit("/", 1)[1]]["required"] = [spec_name(member) for member in required]


def _or_null(field: dict[str, Any]) -> dict[str, Any]:
    """Return a field that also allows null, which gives it its default, as in the parser."""
    return field if "anyOf" in field else _with_option(field, {"type": "null"})


def _with_option(field: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a field that also allows `other`."""
    about = {key: value for key, value in field.items() if key in ("description", "default")}
    return {"anyOf": [{key: field[key] for key in field if key not in about}, other], **about}


def _tidy(value: Any) -> None:
    """Drop what editors do not need: generated titles, and defaults of null."""
    if isinstance(value, dict):
        if isinstance(value.get("title"), str):
            del value["title"]
        if value.get("default", "") is None:
            del value["default"]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _tidy(inner)


def _open_to_variables(node: Any) -> None:
    """Allow `${NAME}` for every scalar with limits, since its value is known only later."""
    if not isinstance(node, dict):
        return
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = _or_variable(node[key])
    for key, inner in node.get("properties", {}).items():
        node["properties"][key] = _or_variable(inner)
    for option in node.get("anyOf", []):
        _open_to_variables(option)


def _or_variable(node: dict[str, Any]) -> dict[str, Any]:
    _open_to_variables(node)
    variable = {"$ref": "#/$defs/Variable"}
    if any(map(_is_limited, node.get("anyOf", ()))):
        return {**node, "anyOf": [*node["anyOf"], variable]}
    return _with_option(node, variable) if _is_limited(node) else node


def _is_limited(node: dict[str, Any]) -> bool:
    """Return whether it is a scalar that does not allow every text."""
    if node.get("type") in ("object", "array", "null") or "$ref" in node:
        return False
    is_text = node.get("type") not in ("integer", "number", "boolean")
    return not is_text or any(key in node for key in ("enum", "const", "pattern", "maxLength", "minLength"))


def _of_a_whole_job() -> dict[str, Any]:
    """Return the required keys of a spec that names its job and neither extends another nor has `request:`.

    Files without a job's name may be layers, which other files complete.
    """
    kinds = []
    for source, kind in KINDS.items():
        entry = kind.model_validate({"source": source}).input_data_config("name", "File")
        lacks = [spec_name(str(each.path[-1])) for each in violations(entry, "Channel")] if entry else ["s3_uri"]
        named: dict[str, Any] = {"properties": {"source": {"const": source}}}
        if source != "S3":  # which a channel without `source` is
            named["required"] = ["source"]
        kinds.append({"if": named, "then": {"required": lacks}})
    channel = {"if": {"type": "object"}, "then": {"allOf": kinds}}
    inner: dict[str, Any] = {"channels": {"additionalProperties": channel}}
    for member in shapes()[REQUEST]["required"]:
        shape = shapes()[shapes()[REQUEST]["members"][member]["shape"]]
        if member != "TrainingJobName":
            below = [spec_name(name) for name in shape.get("required", ())]
            inner[spec_name(member)] = {"not": {"type": "null"}, **({"required": below} if below else {})}
    whole: list[Any] = [{"anyOf": [{"required": ["base_name"]}, {"required": ["training_job_name"]}]}]
    whole += [{"not": {"required": [key]}} for key in ("extends", "request")]
    required = [key for key in inner if key != "channels"]
    return {"if": {"allOf": whole}, "then": {"required": required, "properties": inner}}


if __name__ == "__main__":
    print_line(json.dumps(schema(), indent=2))
