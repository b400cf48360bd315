"""The version and CHANGELOG.md, which change together.

python .ci/release.py 0.2.0           sets the version, and puts what is unreleased into a section of it
python .ci/release.py --check v0.2.0  fails unless tag, version and the newest section agree
"""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone
from pathlib import Path

_VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_SECTION = re.compile(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?\n", re.MULTILINE)
_PLANNED = re.compile(r"; it will be [\d.]+(?=\.\n)")


def release(root: Path, version: str) -> None:
    """Write both files. Raises SystemExit, with the reason, for a version that cannot be the next."""
    module, changes = root / "launcher/__init__.py", root / "CHANGELOG.md"
    source, text = module.read_text(encoding="utf-8"), changes.read_text(encoding="utf-8")
    unreleased, *earlier = re.split(r"^(?=## \[)", text, flags=re.MULTILINE)[1:]
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"{version}: expected a version such as 0.2.0")
    if f"## [{version}]" in text:
        sys.exit(f"{changes}: has a section of {version} already; pass the next version")
    if not unreleased.removeprefix("## [Unreleased]").strip():
        sys.exit(f"{changes}: nothing is unreleased; write what has changed since {earlier[0].split()[1]}")
    today = datetime.now(timezone.utc).date()
    section = _PLANNED.sub("", unreleased.replace("[Unreleased]", f"[{version}] - {today}", 1))
    changes.write_text(text.replace(unreleased, f"## [Unreleased]\n\n{section}", 1), encoding="utf-8")
    module.write_text(_VERSION.sub(f'__version__ = "{version}"', source), encoding="utf-8")


def check(root: Path, tag: str) -> None:
    """Raise SystemExit, with the reason, unless this commit is the release that the tag names."""
    (version,) = _VERSION.findall((root / "launcher/__init__.py").read_text(encoding="utf-8"))
    _, newest, *_ = [*_SECTION.findall((root / "CHANGELOG.md").read_text(encoding="utf-8")), "none"]
    if (found := {tag, f"v{version}", f"v{newest}"}) != {tag}:
        sys.exit(f"the tag, launcher.__version__ and CHANGELOG.md name several versions: {', '.join(sorted(found))}")


if __name__ == "__main__":
    here = Path(__file__).parents[1]
    if sys.argv[1:2] == ["--check"]:
        check(here, *sys.argv[2:])
    elif len(sys.argv) != 2:
        sys.exit("name the version: make release VERSION=0.2.0")
    else:
        release(here, sys.argv[1])
        print(
            f"commit CHANGELOG.md and launcher/__init__.py; once they are on main: git tag v{sys.argv[1]} && git push --tags"
        )
