"""Install a script's requirements, and its code folder if that is a package, into a folder of the run.

The toolkit's plain `pip install` would change a user's own machine in a local run, and `pip install --target` ignores installed
packages: it would fetch torch again and put it before the image's build. So pip runs in a virtual environment below the run's root
that sees the image's packages, and installs there only what is missing or of another version. The script runs by the image's Python
and finds the packages by PYTHONPATH and PATH.

A code folder is a package if it has setup.py, as for the toolkit, or a pyproject.toml with `[build-system]` or with modules in
`src`; other pyproject.toml files only configure tools. If the image has all build requirements, none is fetched
(--no-build-isolation), so a package without dependencies can be installed offline.

In a warm pool, pip's cache is in the directory that is kept for the next job, unless PIP_CACHE_DIR names another.
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

from sagemaker_channels import contract
from sagemaker_channels.start.process import ProgramResult, run_program

# Without --no-input, a question of pip's would wait for an answer forever.
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install")
_SETUPTOOLS_WITH_WHEEL = (70, 1)  # older ones need the package `wheel` to build


def is_package(code_dir: Path) -> bool:
    tables = re.findall(r"^\[(build-system|project)\]", _pyproject(code_dir), re.MULTILINE)
    has_modules = bool(tables) and (code_dir / "src").is_dir()
    return (code_dir / "setup.py").is_file() or "build-system" in tables or has_modules


def install_package(folder: Path, code_dir: Path, environ: Mapping[str, str], grace_seconds: float) -> ProgramResult:
    """Install the package in `code_dir` with its dependencies; like `install`."""
    source = folder / "source"  # pip leaves a build folder beside what it builds
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(code_dir, source)
    offline = ["--no-build-isolation"] if image_can_build(code_dir) else []
    return install([*offline, str(source)], folder, code_dir, environ, grace_seconds)


def image_can_build(code_dir: Path) -> bool:
    """Return whether the image has all build requirements of the package, so that none must be fetched."""
    requires = re.search(r"^requires\s*=\s*\[(.*?)\]\s*(?:#.*)?$", _pyproject(code_dir), re.MULTILINE | re.DOTALL)
    needed = re.findall(r"""["']([\w.-]+)[^"'>]*(?:>=\s*([\d.]+))?""", requires[1] if requires else "'setuptools'")
    try:
        versions = {name: _version(importlib.metadata.version(name)) for name, _ in needed}
        if versions.get("setuptools", _SETUPTOOLS_WITH_WHEEL) < _SETUPTOOLS_WITH_WHEEL:
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
    """Run pip, whose output is passed through, in `code_dir`, until its end or `grace_seconds` after a signal.

    `wanted` are pip's arguments after `install`; `folder` is the virtual environment, made if it is missing.
    """
    # The environment sees the image's pip, and gets its own only if there is none. If that fails too, pip's result reports that
    # there is no module pip.
    with contextlib.suppress(subprocess.CalledProcessError):
        venv.EnvBuilder(symlinks=True, with_pip=importlib.util.find_spec("pip") is None).create(folder)
    seen = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    if pool := environ.get(contract.WARM_POOL_VARIABLE):
        cache = Path(pool, "pip")
        with contextlib.suppress(OSError):  # pip warns, and works without.
            cache.mkdir(parents=True, exist_ok=True)  # pip ignores a cache of another user.
        environ = {"PIP_CACHE_DIR": str(cache), **environ}
    lines = [f"import site; site.addsitedir({path!r})" for path in seen]
    (packages_folder(folder) / "image.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run_program([str(folder / "bin" / "python"), *_PIP, *wanted], environ, code_dir, grace_seconds)


def packages_folder(folder: Path) -> Path:
    names = {"base": str(folder), "platbase": str(folder)}
    return Path(sysconfig.get_path("purelib", "venv" if sys.version_info >= (3, 11) else "posix_prefix", names))
