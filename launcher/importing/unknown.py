"""Values that a file does not hold, since a workflow or a template computes them: each becomes a variable of the spec.

While the request is read, an unknown value is a number of 12 digits of its own, which is valid as a text, as a part of a text, as
a whole number and as an account. At the end, `written` puts the variable in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from launcher.errors import InputError
from launcher.spec.values import Plain

_FIRST = 770_377_034_001
_REFERENCE = re.compile(r"Get|Ref|Std:\w+|Fn::\w+")  # {"Get": "Parameters.Type"}, {"Ref": "Bucket"}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MEANINGS = {"ACCOUNT_ID": "the number of the account", "ROLE_ARN": "the role that the script runs in"}
_MADE = re.compile(r"(\$\(|`)\s*(date|uuidgen)\b.*|\$RANDOM", re.DOTALL)  # in a shell, different each time
_MOST_VALUES = 200_000  # more than a template of CloudFormation has, which is at most 1 MB long
_LONGEST = 40  # characters of a variable's name


class Unknowns:
    """The unknown values of one file, by their numbers."""

    def __init__(self) -> None:
        self._variables: dict[str, tuple[str, str]] = {}
        """Number -> the variable, and what the file has in its place."""
        self._values = 0

    def number(self, reference: str, name: str = "") -> Plain:
        """Return the number of what a file refers to; its variable is `name`, or made of the reference."""
        known = next((each for each, (_, other) in self._variables.items() if other == reference), None)
        if known is None:
            words = _WORD.findall(reference.removeprefix("Parameters."))
            made = "_".join(words).upper()[:_LONGEST].strip("_") or "VALUE"
            made = re.sub(r"\W", "_", name, flags=re.ASCII) or made
            made = f"_{made}" if made[0].isdigit() else made
            taken = [variable for variable, _ in self._variables.values()]
            made = next(each for each in (made, *(f"{made}_{n}" for n in range(2, 10**6))) if each not in taken)
            known = str(_FIRST + len(self._variables))
            self._variables[known] = (made, reference)
        return Plain(known)

    def known(self, value: Any) -> Any:
        """Return a document's data with a number for each path, expression or reference in it.

        Raises InputError if it has too many values: with aliases, nine lines of YAML can stand for a billion.
        """
        self._values += 1
        if self._values > _MOST_VALUES:
            raise InputError(
                f"has more than {_MOST_VALUES:,} values, as aliases repeat them; write out the request alone"
            )
        if isinstance(value, list):
            return [self.known(item) for item in value]
        if isinstance(value, str):
            if value.startswith("{%") and value.endswith("%}"):
                return self.number(value[2:-2].strip())
            return value
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and _is_reference(value):
            ((kind, inner),) = value.items()
            found = self._referred(str(kind), inner)
            return self._document(found) if isinstance(found, str) and not isinstance(found, Plain) else found
        known = {}
        for key, item in value.items():
            is_path = str(key).endswith(".$") and isinstance(item, str)
            known[str(key).removesuffix(".$") if is_path else key] = (
                self.number(item) if is_path else self._document(self.known(item))
            )
        return known

    def _document(self, value: Any) -> Any:
        """Return the data of a text that holds a definition as JSON, such as a state machine's, and other values as they are."""
        if not isinstance(value, str) or '"AlgorithmSpecification"' not in value:
            return value
        try:
            return self.known(json.loads(value))
        except ValueError:
            return value

    def _referred(self, kind: str, inner: Any) -> str:
        """Return the text of a reference, with a number for each unknown part of it."""
        if kind in ("Ref", "Get", "Fn::GetAtt"):
            return self.number(".".join(map(str, inner)) if isinstance(inner, list) else str(inner))
        if kind == "Fn::Sub":
            text, own = inner if isinstance(inner, list) and len(inner) == 2 else (inner, {})
            values = self.known(own) if isinstance(own, dict) else {}
            parts = re.split(r"\$\{(!?[^}]*)\}", str(text))
            for index, name in enumerate(parts):
                if index % 2:
                    parts[index] = f"${{{name[1:]}}}" if name[:1] == "!" else str(values.get(name) or self.number(name))
            return "".join(parts)
        if kind == "Fn::Join" and isinstance(inner, list) and len(inner) == 2 and isinstance(inner[1], list):
            return str(inner[0]).join(str(self.known(part)) for part in inner[1])
        if kind == "Std:Join" and isinstance(inner, dict) and isinstance(inner.get("Values"), list):
            return str(inner.get("On", "")).join(str(self.known(part)) for part in inner["Values"])
        return self.number(f"{kind} {json.dumps(inner)}")

    def fitted(self, value: Any, shape_name: str, shapes: Mapping[str, Any], lost: list[str], name: str = "") -> Any:
        """Return a request in which an unknown list of texts has one item; whole mappings that are unknown are in `lost`."""
        shape = shapes.get(shape_name, {})
        members = shape.get("members", {})
        if isinstance(value, dict):
            inner = shape.get("value", {}).get("shape", "")
            fitted = {
                key: self.fitted(item, members.get(key, {}).get("shape", inner), shapes, lost, str(key))
                for key, item in value.items()
            }
            return {key: item for key, item in fitted.items() if item is not None}
        item = shape.get("member", {}).get("shape", "")
        if isinstance(value, list):
            return [self.fitted(each, item, shapes, lost, name) for each in value]
        if not isinstance(value, str) or value not in self._variables or shape.get("type") in (None, "string"):
            return value
        if shape["type"] == "list" and shapes[item]["type"] == "string":
            return [value]
        if shape["type"] in ("structure", "map", "list"):
            lost.append(f"{name} ({self._variables[value][1]})")
            return None
        return value

    def without_time(self, name: str) -> str:
        """Return a job's name without the times and random numbers that a shell appends to it."""
        for number, (_, reference) in reversed(self._variables.items()):
            if _MADE.fullmatch(reference):
                name = name.removesuffix(number).rstrip("-") or name
        return name

    def replaced(self, value: Any, texts: Mapping[str, str]) -> Any:
        """Return data with numbers in place of texts that stand for unknown values: text -> the variable."""
        if isinstance(value, dict):
            return {self.replaced(key, texts): self.replaced(item, texts) for key, item in value.items()}
        if isinstance(value, list):
            return [self.replaced(item, texts) for item in value]
        for text, variable in texts.items() if isinstance(value, str) else ():
            if text in value:
                value = value.replace(
                    text, self.number(_MEANINGS.get(variable, f"the environment variable {variable}"), variable)
                )
        return value

    def written(self, value: Any) -> Any:
        """Return a spec's value with its variables; other texts with `${` are escaped, since a request has no variables."""
        if isinstance(value, dict):
            return {self._key(key): self.written(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.written(item) for item in value]
        if isinstance(value, int) and value.bit_length() < 128 and str(value) in self._variables:
            value = str(value)
        if isinstance(value, str):
            value = value.replace("${", "$${")
            for number, (variable, _) in self._variables.items():
                value = value.replace(number, f"${{{variable}}}")
        return value

    def _key(self, key: Any) -> Any:
        """Return a key, in which a spec has no variables: the variable's name stands for itself."""
        for number, (variable, _) in self._variables.items():
            key = key.replace(number, variable) if isinstance(key, str) else key
        return key

    def used(self, spec: str) -> dict[str, str]:
        """Return the variables in a written spec, each with what the source has in its place."""
        known = {variable: " ".join(reference.split())[:200] for variable, reference in self._variables.values()}
        return {variable: text for variable, text in known.items() if f"${{{variable}}}" in spec.replace("$${", "")}


def _is_reference(value: Mapping[Any, Any]) -> bool:
    """Return whether a mapping of one entry is a reference, not a setting named Get or Ref with a plain text."""
    ((key, inner),) = value.items()
    return bool(_REFERENCE.fullmatch(str(key))) and (not isinstance(inner, str) or key != "Get" or "." in inner)
