"""The service model's shapes as JSON Schema, with their limits: under the names of a spec, and under the request's own.

Limits that JSON Schema cannot express are wider here, since the parser decides.
"""

from __future__ import annotations

import re
from typing import Any

from launcher.spec.aws_model import LARGEST, READ_ONLY, shapes, violations
from launcher.spec.model import spec_name
from launcher.spec.values import DURATIONS, SIZES
from launcher.tables import read_table


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


def of_shape(
    name: str, definitions: dict[str, Any], *, keys: bool, member: str = "", whole: bool = False
) -> dict[str, Any]:
    """Return the schema of a shape; those of structures are added to `definitions`, `$defs` of the schema.

    With `keys`, members are called as in a spec, where null gives the default, else as in the request, where null deletes one. The
    unit of `member`, which has the shape, decides the type of a key. With `whole`, required members have to be there: a list is
    replaced as a whole, so no other layer can add them.
    """
    shape = shapes()[name]
    match shape["type"]:
        case "structure":
            made = f"{'' if keys else 'aws.'}{name}{'.whole' if whole else ''}"
            if made not in definitions:
                about = descriptions().get(name, {}) if keys else {}
                own: dict[str, Any] = {"type": "object", "additionalProperties": False, **_described(about, "is")}
                definitions[made] = own  # before its members, since a shape may contain itself
                own["properties"] = {}
                for inner, each in shape["members"].items():
                    if not (keys and inner in READ_ONLY):
                        key = spec_name(inner) if keys else inner
                        below = of_shape(each["shape"], definitions, keys=keys, member=inner, whole=whole)
                        own["properties"][key] = {"anyOf": [below, {"type": "null"}], **_described(about, key)}
                if whole and "required" in shape:
                    own["required"] = [spec_name(each) if keys else each for each in shape["required"]]
            return {"$ref": f"#/$defs/{made}"}
        case "list":
            items = of_shape(shape["member"]["shape"], definitions, keys=keys, whole=True)
            return {"type": "array", "items": items, **bounds(shape, "Items")}
        case "map":
            types = ["string", "number", "boolean", *([] if keys else ["null"])]
            option: dict[str, Any] = {"type": "object", "additionalProperties": {"type": types}}
            map_limits(option, shape["key"]["shape"], shape["value"]["shape"], shape)
            return option
        case "boolean":
            return {"type": "boolean"}
        case "integer" | "long":
            unit = next(
                (limits for end, limits in _UNITS.items() if keys and member.endswith(end)), {"type": "integer"}
            )
            least = {"minimum": shape["min"]} if "min" in shape else {}
            return {**unit, **least, "maximum": shape.get("max", LARGEST)}
    if "enum" in shape:
        return {"enum": shape["enum"]}
    return {"type": ["string", "number", "boolean"], **text_limits(shape), **(unquoted(shape) if keys else {})}


_UNITS: dict[str, dict[str, Any]] = {"InSeconds": DURATIONS, "InGB": SIZES}


def descriptions() -> dict[str, dict[str, str]]:
    """Return what the keys of AWS's structures mean: structure -> key -> description, those of the structures under `is`."""
    found: dict[str, dict[str, str]] = read_table(__file__, "descriptions")
    return found


def _described(about: dict[str, str], key: str) -> dict[str, str]:
    return {"description": about[key]} if key in about else {}
