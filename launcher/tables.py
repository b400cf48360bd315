"""The tables of this package, read when they are needed: YAML beside the module that reads it, and JSON in launcher/data."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 8 times as fast where PyYAML was built with libyaml


@cache
def read_table(module: str | Path, name: str) -> Any:
    """Return the content of `<name>.yaml` beside a module, given by its `__file__`. The caller must not change it."""
    return yaml.load(Path(module).with_name(f"{name}.yaml").read_text(encoding="utf-8"), Loader=Loader)


@cache
def read_data(name: str) -> Any:
    """Return the content of `launcher/data/<name>.json`. The caller must not change it."""
    return json.loads(Path(__file__).with_name("data").joinpath(f"{name}.json").read_text(encoding="utf-8"))
