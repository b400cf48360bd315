"""Hatchling's hooks: what a package index shows of the project, and where the wheel has the library.

An index has neither the README's pictures nor the pages that it links, so links lead to the repository. In GitHub Actions its
address is in variables; elsewhere it is that of the git remote `origin`. Without either, links become plain text, and pictures are
left out. A wheel that is built from an sdist has what the sdist says.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)")
_SSH = re.compile(r"git@([\w.-]+):(.+)|ssh://git@([\w.-]+)/(.+)")


class Library(BuildHookInterface[Any]):
    """Puts the library, which `sources` cannot move out of a folder that they move, and the agent skill into a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add both, unless the checkout is on the path, as of an editable install."""
        if version != "editable":
            build_data["force_include"]["entrypoints/sagemaker_channels"] = "sagemaker_channels"
            build_data["force_include"]["docs/skills/sagemaker-launch/SKILL.md"] = "launcher/SKILL.md"


class Metadata(MetadataHookInterface):
    """Sets `readme` and `urls` of the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml leaves to this hook."""
        readme, url = (Path(self.root) / "README.md").read_text(encoding="utf-8"), repository(self.root)
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(readme, url, metadata["version"])}
        metadata["urls"] = {} if url is None else {"Source": url, "Changelog": f"{url}/blob/main/CHANGELOG.md"}


def repository(root: str) -> str | None:
    """Return the address of the repository's pages, if it is known."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ['GITHUB_SERVER_URL']}/{name}"
    if not (Path(root) / ".git").exists():
        return None
    git = ["git", "-C", root, "remote", "get-url", "origin"]
    url = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip().removesuffix(".git")
    if ssh := _SSH.fullmatch(url):
        url = "https://{}/{}".format(*filter(None, ssh.groups()))
    return url if re.match(r"https://[\w.-]+/", url) else None  # no credentials, and no folder of this machine


def absolute(readme: str, url: str | None, version: str) -> str:
    """Return the README with each relative link leading to the version's tag in the repository."""

    def linked(match: re.Match[str]) -> str:
        is_picture, text, target = match.groups()
        if url is None:
            return "" if is_picture else text
        return f"{is_picture}[{text}]({url}/{'raw' if is_picture else 'blob'}/v{version}/{target})"

    parts, end = [], 0
    for code in _CODE.finditer(readme):
        parts += [_LINK.sub(linked, readme[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(linked, readme[end:])])
