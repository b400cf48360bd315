"""The JSON Schema of a spec, for completion and checks in editors: `launch --schema` prints it.

Made from the spec's classes, the docstrings of their fields, and botocore's enums and patterns, so that it matches the
parser. `channel_specs/schema.json` is its copy; a test checks that it is current.
"""

from __future__ import annotations

import ast
import inspect
from contextlib import suppress
from itertools import pairwise
from typing import Any

from launcher.parsing.layers import ANCHORS
from launcher.reference.problem_codes import ignorable
from launcher.reference.shape_schema import descriptions, map_limits, of_shape, text_limits
from launcher.spec.aws_model import REQUEST, shapes, violations
from launcher.spec.channels import KINDS
from launcher.spec.job import Image, JobKeys, JobSpec
from launcher.spec.model import Section, spec_name
from launcher.spec.own_keys import Code, Queue
from launcher.spec.structures import OF_NO_MEMBERS, members


def schema() -> dict[str, Any]:
    made = JobKeys.model_json_schema()
    made["description"] = JobSpec.__doc__
    properties, found = made["properties"], made.pop("$defs")
    # `of_shape` makes the others, with their limits.
    ours: list[type[Section]] = [Code, Image, Queue, *KINDS.values()]
    definitions = {each.__name__: found[each.__name__] for each in ours}
    _describe(made, JobKeys)
    for each in ours:
        _describe(definitions[each.__name__], each)
    for definition in definitions.values():
        inner = definition["properties"]
        inner.update(
            (key, field if "anyOf" in field else _with_option(field, {"type": "null"}))
            for key, field in inner.items()
            if "default" in field  # which null gives it, as in the parser
        )
    for kind in KINDS.values():
        for key in kind.model_fields:
            _add_key(definitions[kind.__name__]["properties"], key, "Channel", kind.place(key), definitions)
    for key, place in members().items():
        if key not in OF_NO_MEMBERS:
            _add_key(properties, key, REQUEST, place, definitions)
    map_limits(properties["tags"]["anyOf"][0], "TagKey", "TagValue", shapes()["TagList"])
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
        "description": "The input channels by name; at most 20, not counting those that the script itself reads.",
    }
    # The beginning of a TrainingJobName, cut to the characters left for it.
    made["properties"]["base_name"]["anyOf"][0].update(
        type=["string", "integer", "boolean"], minimum=0, pattern="^[a-zA-Z0-9][a-zA-Z0-9-]*$"
    )
    made["properties"]["request"]["anyOf"][0] = of_shape(REQUEST, definitions, keys=False)
    made["properties"]["ignore"]["anyOf"][0]["items"] = {"enum": sorted(ignorable())}
    _tidy(made)
    _tidy(definitions)
    for definition in (made, *definitions.values()):
        _open_to_variables(definition)
    definitions["Variable"] = {"type": "string", "pattern": r"\$\{"}
    made["patternProperties"] = {f"^{ANCHORS}": {"description": "Left out of the job: a place for anchors."}}
    made.update(_of_a_whole_job())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A SageMaker training job",
        **made,
        "$defs": definitions,
    }


def _describe(definition: dict[str, Any], section: type[Section]) -> None:
    """Use the docstring under each field of the class and its bases as the field's description.

    pydantic's `use_attribute_docstrings` reads the sources whenever classes are created, which takes 0.3 s of every start.
    """
    for cls in reversed([each for each in section.__mro__ if issubclass(each, Section)]):
        with suppress(OSError):  # a class that was made by `create_model` has no source
            (tree,) = ast.parse(inspect.getsource(cls)).body
            for pair in pairwise(getattr(tree, "body", ())):
                match pair:
                    case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                        definition["properties"].get(key, {})["description"] = text


def _add_key(
    properties: dict[str, Any], key: str, top: str, place: tuple[str, ...], definitions: dict[str, Any]
) -> None:
    """Add the key of a member, at `place` below the shape `top`, or its limits if it is a key of ours with more types."""
    within, name = "", top
    for member in place:
        known = shapes()[name].get("members", {})
        if member not in known:
            return  # a key without a member
        within, name = name, known[member]["shape"]
    if shapes()[name]["type"] == "map" and key in properties:
        option = properties[key]["anyOf"][0]
        map_limits(option, shapes()[name]["key"]["shape"], shapes()[name]["value"]["shape"], shapes()[name])
        return
    described = descriptions().get(within, {}).get(key)
    about = {"description": described} if described else {}
    about |= {name: value for name, value in properties.get(key, {}).items() if name in ("description", "default")}
    made = of_shape(name, definitions, keys=True, member=place[-1])
    properties[key] = {"anyOf": [made, {"type": "null"}], **about}


def _with_option(field: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
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
