"""Until when AWS patches its images for training, without a network: launcher/data/image_support.json has the source and date."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, NamedTuple

from launcher.request.image_uris import is_of_aws
from launcher.tables import read_data

_OLDER = "older"  # than all versions of the table


class Support(NamedTuple):
    framework: str
    """As in `image: {framework: pytorch}`."""
    version: str
    end_of_patch: date
    """The day after which AWS does not patch it."""
    python: str | None
    """The version of Python in its images, such as `3.12`, if the table has it."""


def support_of(image: str) -> Support | None:
    """Return the support of the version in one of AWS's images; None for other images, and for those without a date."""
    repository, _, tag = image.rpartition("/")[2].partition(":")
    name = next((name for name, entry in _frameworks().items() if repository in entry["repositories"]), None)
    if name is None or not is_of_aws(image):
        return None
    listed = versions_of_framework(name)
    for support in listed:
        if re.match(rf"{re.escape(support.version)}(?!\d)", tag):
            return support
    release = re.match(r"(\d+)\.(\d+)", tag)
    older = _frameworks()[name]["end_of_patch"].get(_OLDER)
    if release and older and (int(release[1]), int(release[2])) < tuple(map(int, listed[0].version.split("."))):
        return Support(name, release[0], date.fromisoformat(older), None)
    return None


def versions_of_framework(name: str) -> list[Support]:
    """Return the versions of a framework, the newest last."""
    entry = _frameworks()[name]
    ends = {version: end for version, end in entry["end_of_patch"].items() if version != _OLDER}
    return [Support(name, each, date.fromisoformat(end), entry["python"].get(each)) for each, end in ends.items()]


def _frameworks() -> dict[str, Any]:
    frameworks: dict[str, Any] = read_data("image_support")["frameworks"]
    return frameworks
