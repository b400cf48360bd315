"""Installs a script's requirements, and its folder if that is a package, into a folder of the run, beside the image's own.

The toolkit runs plain `pip install`, which on someone's own machine would change that machine. `pip install --target`
leaves it alone but takes no notice of what is installed: a requirement that needs torch would fetch torch again and put
it before the image's own build. So pip runs in a virtual environment below the run's root that sees the image's
packages: what they satisfy is left as it is, what is missing or of another version goes to the folder, and nothing
outside is removed. The script itself runs by the image's Python and finds the folder on PYTHONPATH, its commands on PATH.

A code folder with setup.py is a package to the toolkit, which runs `pip install .` with its dependencies. So do we, also with a
pyproject.toml that says how to build it (`[build-system]`) or has its modules in `src`; many others only configure tools, or
list dependencies of a script. If the image holds all that the build needs, nothing is fetched for it (--no-build-isolation): an
image with setuptools installs a package without dependencies offline.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import re
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from entrypoints.start.process import ProgramResult, run_program

# As --no-input, a question would wait for an answer for ever.
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install")
SETUPTOOLS_WITH_WHEEL = (70, 1)  # older ones need the package `wheel` to build


def is_package(code_dir: Path) -> bool:
    """Return whether the code folder is a package to install."""
    tables = re.findall(r"^\[(build-system|project)\]", _pyproject(code_dir), re.MULTILINE)
    return (
        (code_dir / "setup.py").is_file() or "build-system" in tables or (bool(tables) and (code_dir / "src").is_dir())
    )


def install_package(folder: Path, code_dir: Path, environ: Mapping[str, str], grace_seconds: float) -> ProgramResult:
    """Install the package in `code_dir` with its dependencies; like `install`."""
    source = folder / "source"  # pip leaves a build folder beside what it builds
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(code_dir, source)
    offline = ["--no-build-isolation"] if image_can_build(code_dir) else []
    return install([*offline, str(source)], folder, code_dir, environ, grace_seconds)


def image_can_build(code_dir: Path) -> bool:
    """Return whether the image holds all that the package's build needs, so that nothing has to be fetched for it."""
    requires = re.search(r"^requires\s*=\s*\[(.*?)\]\s*(?:#.*)?$", _pyproject(code_dir), re.MULTILINE | re.DOTALL)
    needed = re.findall(r"""["']([\w.-]+)[^"'>]*(?:>=\s*([\d.]+))?""", requires[1] if requires else "'setuptools'")
    try:
        versions = {name: _version(importlib.metadata.version(name)) for name, _ in needed}
        if versions.get("setuptools", SETUPTOOLS_WITH_WHEEL) < SETUPTOOLS_WITH_WHEEL:
            importlib.metadata.version("wheel")
    except importlib.metadata.PackageNotFoundError:
        return False
    return all(versions[name] >= _version(least) for name, least in needed)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _pyproject(code_dir: Path) -> str:
    file = code_dir / "pyproject.toml"
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def install(
    wanted: Sequence[str], folder: Path, code_dir: Path, environ: Mapping[str, str], grace_seconds: float
) -> ProgramResult:
    """Install into `folder` what pip's arguments `wanted` name; relative paths count from `code_dir`.

    pip's output is passed through; the result holds the end of what it wrote to stderr.
    """
    # It sees the image's pip. Only where there is none it gets its own, and where that cannot be had, either, the
    # result says that there is no module pip.
    with contextlib.suppress(subprocess.CalledProcessError):
        venv.EnvBuilder(symlinks=True, with_pip=importlib.util.find_spec("pip") is None).create(folder)
    seen = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [f"import site; site.addsitedir({path!r})" for path in seen]
    (packages_folder(folder) / "image.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run_program([str(folder / "bin" / "python"), *PIP, *wanted], environ, code_dir, grace_seconds)


def packages_folder(folder: Path) -> Path:
    """Where in `folder` the packages lie, for PYTHONPATH."""
    names = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", "venv" if sys.version_info >= (3, 11) else "posix_prefix", names))


def commands_folder(folder: Path) -> Path:
    """Where in `folder` the packages' commands lie, for PATH."""
    return folder / "bin"
