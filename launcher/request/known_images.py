"""What is known offline of AWS's registries, so that a misspelt image or region is noticed before a job waits for it.

The repositories and tags are those of launcher/data/images.json, and the regions those of that file and of the installed botocore.
"""

from __future__ import annotations

import json
import re
from functools import cache

from launcher.request.image_uris import image_table, images
from launcher.spec.aws_model import botocore_data

_PROCESSOR = r"-(cpu|gpu|cu\d+)(?=-|$)"
_PYTHON = r"-(py\d+)(?=-|$)"
_NEWER = 5  # minor versions that may have been published after the table was made


@cache
def known_regions() -> tuple[str, ...]:
    """Return the regions of all partitions."""
    partitions = json.loads(botocore_data("partitions.json"))["partitions"]
    found = {region for partition in partitions for region in partition["regions"]}
    found.update(*image_table()["registries"])  # botocore may be older than the table
    return tuple(sorted(region for region in found if not region.endswith("-global")))


def known_repositories() -> tuple[str, ...]:
    """Return the repositories of AWS's images for any purpose."""
    return tuple(image_table()["repositories"])


def known_accounts() -> set[str]:
    """Return AWS's accounts with images for training."""
    return {account for accounts in image_table()["registries"] for account in accounts.values()}


def accounts_of(repository: str, region: str) -> set[str]:
    known = [each.accounts for each in images() if each.repository == repository]
    return {accounts[region] for accounts in known if region in accounts}


def known_tags(repository: str) -> list[str]:
    """Return the tags of a repository for training, which AWS has with further words at their ends as well."""
    return list(dict.fromkeys(each.tag for each in images() if each.repository == repository))


def has_tag(repository: str, tag: str) -> bool:
    """Return whether a repository for training probably has a tag, judged by its version, processor and Python.

    The table lacks newer patches of a version, and other words in tags, so these are not compared; nor is a version that is a
    little newer than the table's.
    """
    known = known_tags(repository)
    newest, release = max(map(_release, known), default=(0, 0)), _release(tag)
    if newest < release <= (newest[0], newest[1] + _NEWER):
        return True
    # AWS's tags of scikit-learn and XGBoost exist without the words at their ends, too.
    shorter = repository.startswith("sagemaker-") and any(each.startswith(f"{tag}-") for each in known)
    return shorter or any(
        tag == each or tag.startswith(f"{each}-") or _has_parts(tag, each, is_newest=release == newest)
        for each in known
    )


def _release(tag: str) -> tuple[int, int]:
    """Return the first two numbers of a tag's version; (0, 0) if it begins with none."""
    found = re.match(r"(\d+)\.(\d+)", tag)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _has_parts(tag: str, known: str, *, is_newest: bool) -> bool:
    """Return whether a tag has the release, processor and Python of a known tag that has a processor.

    The newest version may have been built again for a later Python since the table was made.
    """
    processor, python, own = (re.search(*each) for each in ((_PROCESSOR, known), (_PYTHON, known), (_PYTHON, tag)))
    if processor is None or _release(tag) != _release(known) or processor[1] not in tag.split("-"):
        return False
    later = own is not None and python is not None and is_newest and _python(own[1]) > _python(python[1])
    return python is None or python[1] in tag.split("-") or later


def _python(word: str) -> tuple[int, int]:
    """Return (3, 12) of py312."""
    return int(word[2]), int(word[3:] or 0)
