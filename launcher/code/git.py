"""The git commit of the code folder: a job's tags by which a model leads back to the code that trained it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

COMMIT, DIRTY = "git-commit", "git-dirty"  # the tags' keys
_SECONDS = 10  # of a status in a large repository on a slow disk; without an answer there are no tags


def git_tags(directory: Path) -> dict[str, str]:
    """Return the commit of a folder, and whether the folder differs from it, as tags.

    Empty if the folder is in no repository or is ignored in it, if there is no commit, and if git is missing or refuses to answer.
    """
    folder = directory.resolve()
    if not any((each / ".git").exists() for each in (folder, *folder.parents)):
        return {}
    if _git(directory, "check-ignore", "--quiet", ".") is not None:
        return {}
    status = _git(directory, "status", "--porcelain=v2", "--branch", "--", ".")
    if status is None or (commit := re.search(r"^# branch\.oid ([0-9a-f]+)$", status, re.MULTILINE)) is None:
        return {}
    dirty = any(not line.startswith("#") for line in status.splitlines())
    return {COMMIT: commit[1], DIRTY: "true" if dirty else "false"}


def commit_of(tags: Iterable[Mapping[str, str]] | None) -> str | None:
    """Return what a job's tags say about its code, in a few words; None if they have no commit."""
    values = {tag["Key"]: tag["Value"] for tag in tags or ()}
    if COMMIT not in values:
        return None
    return f"commit {values[COMMIT][:12]}{' with uncommitted changes' if values.get(DIRTY) == 'true' else ''}"


def _git(directory: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails. It runs no program of the repository's configuration, and changes nothing."""
    command = ("git", "-C", str(directory), "-c", "core.fsmonitor=false", "--no-optional-locks", *arguments)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_SECONDS)
        return done.stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return None
