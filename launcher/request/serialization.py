"""The request as YAML or JSON text, exactly as it would be sent."""

from __future__ import annotations

import re
from typing import Any

import yaml

from launcher.console import json_text
from launcher.spec.values import Plain

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Text that every YAML reader, old or new, reads as text.
_PLAINLY_TEXT = re.compile(r"[A-Za-z/][A-Za-z0-9_./:@+-]*[A-Za-z0-9_/-]|[A-Za-z]")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class _RequestDumper(_Dumper):  # type: ignore[misc]
    """A dumper that quotes each text that a reader could treat as a number, a date or a boolean: `1e-3`, `012`, `no`."""


def _represent_text(dumper: Any, text: str) -> Any:
    plain = _PLAINLY_TEXT.fullmatch(text) and text.lower() not in _WORDS and ": " not in text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"' if "\n" in text else "'")


def _represent_plain(dumper: Any, text: Plain) -> Any:
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), str(text))


_RequestDumper.add_representer(str, _represent_text)
_RequestDumper.add_representer(Plain, _represent_plain)


def as_yaml(request: dict[str, Any]) -> str:
    """Return the request as YAML that reads back equal."""
    return str(yaml.dump(request, Dumper=_RequestDumper, sort_keys=False, allow_unicode=True, width=4096))


def as_json(request: dict[str, Any]) -> str:
    """Return what `aws sagemaker create-training-job --cli-input-json` accepts."""
    return json_text(request, indent=2) + "\n"
