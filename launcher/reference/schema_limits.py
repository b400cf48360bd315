"""The service model's limits as JSON Schema: of texts, numbers and mappings, and of a whole request.

Limits that JSON Schema cannot express are wider here, since the parser decides.
"""

from __future__ import annotations

import re
from typing import Any

from launcher.request.aws_model import LARGEST, REQUEST, shapes, violations


def number_limits(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the minimum and maximum of a number's shape."""
    bounds = {"minimum": shape.get("min"), "maximum": shape.get("max", LARGEST)}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def bounds(shape: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the bounds of a shape; `what` is Items, Properties or, for characters, Length."""
    return {f"{limit}{what}": shape[limit] for limit in ("min", "max") if shape.get(limit)}


def text_limits(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the limits of a text; its pattern means the same in Python and in editors."""
    limits, pattern = bounds(shape, "Length"), shape.get("pattern", r"[\S\s]*")
    if "enum" in shape:
        return {"enum": shape["enum"]}
    if r"\p" in pattern and re.fullmatch(r"\(\[[^]]*\]\*\)", pattern):
        # Unicode classes become the ASCII characters that they exclude; all other characters are allowed.
        left_out = [chr(code) for code in range(128) if any(violations(chr(code), "TagValue"))]
        pattern = f"[^{''.join(map(_escaped, left_out))}]*"
    pattern = pattern.replace(r"\p{Alnum}", "a-zA-Z0-9")
    return limits if pattern in (".*", r"[\S\s]*") else {**limits, "pattern": f"^(?:{pattern})$"}


def _escaped(character: str) -> str:
    return character if character.isprintable() and character not in "\\]^-[" else f"\\x{ord(character):02x}"


def map_limits(option: dict[str, Any], key: str, value: str, shape: dict[str, Any]) -> None:
    """Limit a mapping whose keys the user chooses: their number, their form, and their values."""
    option.update(bounds(shape, "Properties"))
    option["propertyNames"] = text_limits(shapes()[key])
    option["additionalProperties"].update(text_limits(shapes()[value]))


def unquoted(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the types that a text may have without quotes; samples are tried, since patterns ignore numbers."""
    pattern, least = text_limits(shape).get("pattern", ""), shape.get("min", 0)

    def takes(*samples: str) -> bool:
        return all(len(sample) >= least and re.search(pattern, sample) for sample in samples)

    kinds = {"integer": takes("0", "123456"), "number": takes("0.5", "-1.25"), "boolean": takes("true", "false")}
    bound = {} if takes("-1") or not kinds["integer"] else {"minimum": 0}
    return {"type": ["string", *(kind for kind, taken in kinds.items() if taken)], **bound}


def request_members(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `request:`, by the model's own names; null deletes a member."""

    def of_shape(name: str, *, whole: bool) -> dict[str, Any]:
        shape = shapes()[name]
        match shape["type"]:
            case "structure":
                made = f"aws.{name}{'.whole' if whole else ''}"
                if made not in definitions:
                    # Added before its members, since a shape may contain itself.
                    definitions[made] = {"type": "object", "additionalProperties": False}
                    members = {key: of_shape(each["shape"], whole=whole) for key, each in shape["members"].items()}
                    definitions[made]["properties"] = {
                        key: {"anyOf": [each, {"type": "null"}]} for key, each in members.items()
                    }
                    if whole and "required" in shape:
                        definitions[made]["required"] = shape["required"]
                return {"$ref": f"#/$defs/{made}"}
            case "list":
                return {
                    "type": "array",
                    "items": of_shape(shape["member"]["shape"], whole=True),
                    **bounds(shape, "Items"),
                }
            case "map":
                option: dict[str, Any] = {
                    "type": "object",
                    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
                }
                map_limits(option, shape["key"]["shape"], shape["value"]["shape"], shape)
                return option
            case "boolean":
                return {"type": "boolean"}
            case "integer" | "long":
                return {"type": "integer", **number_limits(shape)}
        return {"type": ["string", "number", "boolean"], **text_limits(shape)}

    return of_shape(REQUEST, whole=False)
