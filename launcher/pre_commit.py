"""The hook of pre-commit: `launch SPEC --dry-run` for each spec among the files of a commit.

    python -m launcher.pre_commit [--OPTION=VALUE...] FILE...

pre-commit passes every YAML file; one is a spec if most keys at its top are a spec's. Requests are not printed, only problems.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from launcher.cli import main as launch
from launcher.parsing.spec_text import are_of_a_spec, first_keys


def main(arguments: Sequence[str]) -> int:
    """Return the highest exit code of the dry runs, each with all options."""
    options = [word for word in arguments if word.startswith("-")]
    codes = [0]
    for file in (word for word in arguments if word not in options):
        if are_of_a_spec(first_keys(Path(file).read_bytes())):
            try:
                with redirect_stdout(io.StringIO()):
                    launch([file, "--dry-run", *options])
            except SystemExit as end:
                codes.append(int(end.code or 0))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
