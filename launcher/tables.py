"""The tables of this package: YAML files beside the modules that read them, when they need them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 8 times as fast where PyYAML was built with libyaml


@cache
def read_table(module: str | Path, name: str) -> Any:
    """Return the content of `<name>.yaml` beside a module, given by its `__file__`. The caller must not change it."""
    return yaml.load(Path(module).with_name(f"{name}.yaml").read_text(encoding="utf-8"), Loader=Loader)
