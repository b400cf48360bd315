"""The files that come with the package: the specs of `channel_specs`, the scripts of `entrypoints` and the skill for agents.

The folders are beside this package in a checkout, and in it once it is installed: a package index has other modules by such names.

All specs but the templates read the demo data (`python -m launcher.demo DIR`), so each runs locally with `--local --data DIR`. For
AWS, replace my-bucket, the role, the file systems and the network by your own. The first line of each is its summary.
"""

from __future__ import annotations

from pathlib import Path

_ENDING = ".yaml"
_TEMPLATES = ("measure", "reshard")  # of the commands of these names
SCHEMA_FILE = ".launch.schema.json"
# The first line of what `launch` writes. Editors look for the file beside the spec, in every checkout; anything behind its name is
# a remark (yaml-language-server, src/languageservice/services/modelineUtil.ts).
SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE} (launch --schema > {SCHEMA_FILE})"


def _folder(name: str) -> Path:
    here = Path(__file__).parent
    installed = here / name
    return installed if installed.is_dir() else here.parent / name


_SPECS, SCRIPTS = _folder("channel_specs"), _folder("entrypoints")
SCHEMA = _SPECS / "schema.json"
_INSTALLED_SKILL = Path(__file__).with_name("SKILL.md")
_SKILL = Path(__file__).parents[1] / "docs/skills/sagemaker-launch/SKILL.md"
SKILL = _INSTALLED_SKILL if _INSTALLED_SKILL.is_file() else _SKILL


def spec_names() -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _SPECS.glob(f"*{_ENDING}")))


def spec_path(name: str) -> Path:
    """Return the file of a bundled spec. Raises KeyError, with all names, for an unknown one."""
    if name not in spec_names():
        raise KeyError(f"there is no bundled spec {name!r}; choose one of {', '.join(spec_names())}")
    return _SPECS / f"{name}{_ENDING}"


def is_template(file: str) -> bool:
    """Return whether a file is the bundled spec of a command, whose role, image and machine only stand for the user's."""
    return Path(file).parent == _SPECS and Path(file).stem in _TEMPLATES
