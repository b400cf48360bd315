"""The hook of pre-commit: `launch SPEC --dry-run` for each spec among the files of a commit.

    python -m launcher.pre_commit [--OPTION=VALUE...] FILE...

pre-commit passes every YAML file; one is a spec if most keys at its top are a spec's. In place of a file that specs of the
repository extend, which need not be whole, those specs are checked, and in place of a team's file, the specs below it. Requests are
not printed, only problems.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path

from launcher.cli import main as launch
from launcher.errors import SpecError
from launcher.parsing.spec_text import are_of_a_spec, first_keys
from launcher.parsing.team_files import FILE_NAME
from launcher.parsing.tree import read_tree


def main(arguments: Sequence[str]) -> int:
    """Return the highest exit code of the dry runs, each with all options."""
    options = [word for word in arguments if word.startswith("-")]
    files = [word for word in arguments if word not in options]
    left = [file for file in files if _is_of_team(file) or are_of_a_spec(first_keys(Path(file).read_bytes()))]
    extending, seen, codes = _extending(files) if left else {}, set[str](), [0]
    while left:
        file = left.pop(0)
        if (place := os.path.realpath(file)) in seen:
            continue
        seen.add(place)
        if _is_of_team(file) or place in extending:
            left += extending.get(place, ())
            continue
        try:
            with redirect_stdout(io.StringIO()):
                launch([file, "--dry-run", *options])
        except SystemExit as end:
            codes.append(int(end.code or 0))
    return max(codes)


def _is_of_team(file: str) -> bool:
    return Path(file).name == FILE_NAME


def _extending(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the specs that extend a file, or are below a team's, by its path, of these files and those of the repository."""
    command = ["git", "ls-files", "-z", "*.yaml", "*.yml"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\0")
    found: dict[str, list[str]] = {}
    for file in dict.fromkeys((*files, *filter(None, listed))):
        with suppress(OSError, SpecError):  # one that is deleted, or no spec
            text = Path(file).read_bytes()
            keys = first_keys(text)
            named = read_tree(text, file).value["extends"] if "extends" in keys else ()
            below = [Path(file).parent / name for name in ([named] if isinstance(named, str) else named)]
            below += [folder / FILE_NAME for folder in Path(file).absolute().parents] if are_of_a_spec(keys) else []
            for path in below:
                found.setdefault(os.path.realpath(path), []).append(file)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
