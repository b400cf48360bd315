"""boot.py: requirements and packages that it installs before the script runs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from boot_container import Container
from sagemaker_channels import contract
from sagemaker_channels.start import requirements

SRC_LAYOUT = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools>=40"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "example-of-ours"\nversion = "0.7"\n[project.scripts]\nexample-command = "example.train:command"\n',
    "src/example/__init__.py": "",
    "src/example/data.py": "NAME = 'brought'",
    "src/example/train.py": "import importlib.metadata, os, subprocess\nfrom .data import NAME\n"
    "def command(): print('command ran', flush=True)\n"
    "if __name__ == '__main__':\n"
    "    subprocess.run(['example-command'], check=True)\n"
    "    print(NAME, importlib.metadata.version('example-of-ours'), sorted(os.listdir()))\n",
}


def test_package_with_a_src_layout_is_installed_offline(tmp_path: Path) -> None:
    container = Container(tmp_path / "ml", SRC_LAYOUT)
    finished = container.run("src/example/train.py", PIP_NO_INDEX="1")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.splitlines()[-2:] == ["command ran", "brought 0.7 ['pyproject.toml', 'src']"]


def test_failed_package_installation_is_the_failure(tmp_path: Path) -> None:
    code = {"setup.py": "raise SystemExit('no build today')", "train.py": "print('never')", "train.sh": "echo ran"}
    container = Container(tmp_path / "ml", code)
    finished = container.run("train.py", PIP_NO_INDEX="1")
    assert finished.returncode == 1 and "never" not in finished.stdout
    reason = "installing the package in the code folder ended with exit code 1: no build today"
    assert str(container.failure).partition("\n")[0] == reason
    assert container.run("train.sh").stdout == "ran\n"  # the toolkit does not install for a shell script, either


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"setup.py": ""}, True),
        ({"pyproject.toml": "[build-system]\nrequires = []"}, True),
        ({"pyproject.toml": "[project]\nname = 'x'", "src/x.py": ""}, True),
        ({"pyproject.toml": "[project]\nname = 'x'", "train.py": ""}, False),
        ({"pyproject.toml": "[tool.ruff]\nline-length = 100", "src/x.py": ""}, False),
        ({"sub/setup.py": ""}, False),
    ],
)
def test_is_package_recognises_setup_and_pyproject_files(files: dict[str, str], expected: bool, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert requirements.is_package(tmp_path) is expected


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        ('["setuptools>=40.8", "pytest"]', True),
        ('[\n  "pytest >=1.0,<999",\n]  # comment', True),
        ('["setuptools>=4000"]', False),
        ('["no-such-backend-of-ours[toml]"]', False),
    ],
)
def test_image_can_build_depends_on_the_build_requirements(requires: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[build-system]\nrequires = {requires}\n")
    assert requirements.image_can_build(tmp_path) is expected


def wheel(folder: Path, name: str, content: str) -> None:
    """The least that pip takes for a wheel: no build, no network."""
    info = f"{name}-0.4.dist-info"
    with zipfile.ZipFile(folder / f"{name}-0.4-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.4\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-command = {name}:command\n")
        archive.writestr(f"{info}/RECORD", "")


def test_requirements_are_installed_in_the_runs_folder(tmp_path: Path) -> None:
    """Among them PyPI's module `entrypoints`, beside our folder of that name."""
    wheel(tmp_path, "brought", "def command(): print('command ran')")
    wheel(tmp_path, "entrypoints", "def get_group_all(group): return ['old', group]")
    script = (
        "import subprocess, brought, entrypoints\n"
        "from sagemaker_channels import load_environment\n"
        "print(entrypoints.get_group_all('x'))\n"
        "print(brought.__file__, load_environment().root)\n"
        "subprocess.run(['brought-command'], check=True)\n"
    )
    # pytest is there already: nothing may be fetched for it.
    requirements = f"--no-index\n--find-links {tmp_path}\nbrought\nentrypoints\npytest\n"
    container = Container(tmp_path / "ml", {"train.py": script, "needs.txt": requirements})
    finished = container.run("train.py", "--requirements", "needs.txt")
    assert finished.returncode == 0, finished.stderr
    *_, old, brought, command = finished.stdout.splitlines()
    assert brought.startswith(str(container.root / "packages")) and brought.endswith(str(container.root))
    assert (old, command) == ("['old', 'x']", "command ran")
    probe = subprocess.run([sys.executable, "-c", "import brought"], capture_output=True, text=True)
    assert "No module named 'brought'" in probe.stderr


def test_missing_requirement_is_the_failure(tmp_path: Path) -> None:
    code = {"train.py": "print('never')", "needs.txt": "--no-index\nno-such-package-of-ours\n"}
    container = Container(tmp_path / "ml", code)
    finished = container.run("train.py", "--requirements", "needs.txt")
    assert finished.returncode == 1 and "never" not in finished.stdout
    first, _, rest = str(container.failure).partition("\n\n")
    assert first.startswith("installing needs.txt ended with exit code 1: ERROR: ")
    assert "No matching distribution found for no-such-package-of-ours" in rest


def test_pip_caches_in_the_warm_pool_for_the_next_job(tmp_path: Path) -> None:
    source = tmp_path / "brought-0.4"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n"
        "[project]\nname = 'brought'\nversion = '0.4'\n"
    )
    (source / "brought.py").write_text("NAME = 'brought'\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 0.4\n")
    with tarfile.open(tmp_path / "brought-0.4.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)
    requirements = f"--no-index\n--find-links {tmp_path}\nbrought\n"
    code = {"train.py": "import brought\nprint(brought.NAME)\n", "needs.txt": requirements}
    environ = {"PIP_NO_BUILD_ISOLATION": "0", contract.WARM_POOL_VARIABLE: str(tmp_path / "pool")}
    for job, how in (("first", "Building wheel"), ("second", "Using cached")):
        finished = Container(tmp_path / job, code).run("train.py", "--requirements", "needs.txt", **environ)
        assert finished.stdout.splitlines()[-1] == "brought", finished.stderr
        assert how in finished.stdout
    assert list((tmp_path / "pool/pip").rglob("brought-0.4-*.whl"))
