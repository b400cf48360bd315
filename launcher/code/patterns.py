"""Patterns in the syntax of .gitignore files, matched against single entries while their folders are walked."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


class Patterns:
    """The patterns of one file, or of one key of a spec.

    `pathspec` compiles the lines, but it matches whole paths: a pattern that matches a folder also matches everything below it,
    which git leaves to the walk. Only such a match fills the one group of its expressions.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        from pathspec import GitIgnoreSpec  # takes 20 ms

        self.wrong: list[str] = []  # the lines that are not patterns, which match nothing
        self._patterns = []
        for line in (line for line in map(str.rstrip, lines) if line and not line.startswith("#")):
            bare = line[:-1] if line.endswith("/") and line.strip("!/") else line
            try:
                self._patterns.append((line, bare, GitIgnoreSpec.from_lines([bare]).patterns[0]))
            except ValueError:
                self.wrong.append(line)

    def verdict(self, path: str) -> tuple[bool | None, str]:
        """Return whether `path`, with a final slash for a folder, is matched itself (None: by no line), and the deciding line."""
        name = path.rstrip("/")
        for line, bare, pattern in reversed(self._patterns):
            if (line == bare or name != path) and (found := pattern.match_file(name)) and not found.match.lastindex:
                return pattern.include, line
        return None, ""


def leads_below(pattern: str, folder: str) -> bool:
    """Return whether a pattern of `code.include` can match a file in a folder that is left out.

    A pattern without a folder, such as `*.json`, does not: every cache would be searched.
    """
    steps, parts = pattern.strip("/").split("/"), folder.rstrip("/").split("/")
    for step, part in zip(steps, parts, strict=False):
        if step == "**":
            return steps[0] != "**"
        if not fnmatch.fnmatchcase(part, step):
            return False
    return len(steps) > len(parts)
