"""Installs a script's requirements into a folder of the run, beside the image's own packages.

The toolkit runs plain `pip install`, which on someone's own machine would change that machine. `pip install --target`
leaves it alone but takes no notice of what is installed: a requirement that needs torch would fetch torch again and put
it before the image's own build. So pip runs in a virtual environment below the run's root that sees the image's
packages: what they satisfy is left as it is, what is missing or of another version goes to the folder, and nothing
outside is removed. The script itself runs by the image's Python and finds the folder on PYTHONPATH, its commands on PATH.
"""

from __future__ import annotations

import contextlib
import importlib.util
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from entrypoints.process import Outcome, run_program

# As --no-input, a question would wait for an answer for ever.
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-r")


def install_requirements(
    requirements: str, folder: Path, code_dir: Path, environ: Mapping[str, str], grace_seconds: float
) -> Outcome:
    """Installs the file `requirements`, whose relative paths count from `code_dir`, into `folder`.

    pip's output is passed through; the outcome holds the end of what it wrote to stderr.
    """
    # It sees the image's pip. Only where there is none it gets its own, and where that cannot be had, either, the
    # outcome says that there is no module pip.
    with contextlib.suppress(subprocess.CalledProcessError):
        venv.EnvBuilder(symlinks=True, with_pip=importlib.util.find_spec("pip") is None).create(folder)
    seen = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [f"import site; site.addsitedir({path!r})" for path in seen]
    (packages_folder(folder) / "image.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run_program([str(folder / "bin" / "python"), *PIP, requirements], environ, code_dir, grace_seconds)


def packages_folder(folder: Path) -> Path:
    """Where in `folder` the packages lie, for PYTHONPATH."""
    names = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", "venv" if sys.version_info >= (3, 11) else "posix_prefix", names))


def commands_folder(folder: Path) -> Path:
    """Where in `folder` the packages' commands lie, for PATH."""
    return folder / "bin"
