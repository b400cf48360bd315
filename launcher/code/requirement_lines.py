"""Lines of a requirements.txt that pip cannot install in the container, as `pip freeze` writes them in other places."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from posixpath import dirname, join, normpath

from launcher.code.archive import CodeArchive
from launcher.errors import Problem
from sagemaker_channels import contract

# A path of this machine: `numpy @ file:///croot/...`, which conda's pip freeze writes, `-e /home/me/lib` or `./lib[extra]`.
_PATH = re.compile(
    r"(?P<name>[\w.\[\],-]+\s*@\s*)?(?:-e\s*|--editable[\s=]+)?"
    r"(?:file:/*(?P<whole>/.*?)|(?!-|.*://)(?P<path>[/.].*?|[^\s=<>@]*/[^\s@:]*?))(?:\[[^/]*\])?$"
)
# Bare paths of the container's image are right, so others are known by where users have their files.
_OF_USERS = ("/home/", "/Users/", "/root/", "/mnt/")
_OTHER_FILE = re.compile(r"(?:-[rc]|--requirement|--constraint)[\s=]*(?P<path>[^\s:]+)$")
# A build of another index than PyPI: `torch==2.13.0+cpu`.
_LOCAL_VERSION = re.compile(r"[\w.-]+\s*==\s*[^\s;]*\+(?P<build>\w+)")
_INDEX = re.compile(r"(?:-i|-f|--(?:extra-)?index-url|--find-links)\b|PIP_")


def requirement_problems(name: str, archive: CodeArchive, variables: Collection[str] = ()) -> Iterator[Problem]:
    """Yield the lines of a file of the archive that name files which it lacks, or builds that PyPI does not have.

    `variables` are those of the job, of which PIP_* can name an index. Lines with a marker or a variable are not judged.
    """
    if "\0" in archive.texts[name]:
        return  # UTF-16, which pip reads too
    lines = [re.sub(r"(^|\s)#.*|\\$", "", line).strip() for line in archive.texts[name].splitlines()]
    has_index = any(_INDEX.match(each) or _OTHER_FILE.match(each) for each in (*lines, *variables))
    for number, line in enumerate(lines, 1):
        reason = ""
        if ";" in line or "${" in line:
            continue
        if found := (other := _OTHER_FILE.match(line)) or _PATH.match(re.split(r"\s+-|#", line)[0]):
            path = found.groupdict().get("whole") or found["path"]
            is_of_image = path.startswith(f"{contract.BASE_DIR}/") or not (
                other or found["name"] or path.startswith(_OF_USERS)
            )
            # pip reads other files beside this one, but packages from its working directory, the code folder.
            place = normpath(join(dirname(name) if other else "", path))
            is_sent = place == "." or any(f"{each}/".startswith(f"{place}/") for each in archive.names())
            if not is_sent and not (path.startswith("/") and is_of_image):
                reason = f"{path} is not in the code; send it, or name the package and its version"
        elif not has_index and (found := _LOCAL_VERSION.match(line)):
            reason = f"PyPI has no build {found['build']}; leave out +{found['build']}, or name its index by --extra-index-url"
        if reason:
            yield Problem(("code", "requirements"), f"{name}:{number}: {reason}", "requirements-line")
