"""The files of the project itself: they name the same versions, tools and commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher
from launcher.bundled import SCRIPTS
from patience import PATIENCE

ROOT = Path(launcher.__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def yaml_of(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_workflow_runs_ci_on_every_declared_python() -> None:
    job = yaml_of(".github/workflows/ci.yml")["jobs"]["test"]
    declared = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    assert job["strategy"]["matrix"]["python"] == declared
    assert f'requires-python = ">={declared[0]}"' in PYPROJECT
    (step,) = (step for step in job["steps"] if "run" in step)
    assert (step["run"], step["env"]["PYTHON"]) == (".ci/run", "python${{ matrix.python }}")


def test_workflows_name_actions_by_commit() -> None:
    """A tag can be moved to other code; the version is a comment."""
    for file in (ROOT / ".github/workflows").iterdir():
        used = re.findall(r"\buses: *(.*)", file.read_text(encoding="utf-8"))
        assert used
        assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", each)] == []


def test_container_scripts_import_nothing_of_the_launcher() -> None:
    """import-linter checks the library, and not the scripts beside it, which are no package."""
    assert {"boot.py", "train.py"} <= {script.name for script in SCRIPTS.glob("*.py")}
    found = [
        each for each in SCRIPTS.glob("*.py") if re.search(r"^\s*(from|import) launcher\b", each.read_text(), re.M)
    ]
    assert found == []


@pytest.mark.parametrize("package", ["launcher", "entrypoints/sagemaker_channels"])
def test_each_module_has_a_name_of_its_own(package: str) -> None:
    """So `git grep NAME` finds one module and those that import it."""
    names = Counter(file.name for file in (ROOT / package).rglob("*.py") if file.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_make_help_lists_every_command() -> None:
    commands = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[0].split()
    printed = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert sorted(re.findall(r"^([a-z][a-z0-9-]*)  +\S", printed, re.MULTILINE)) == sorted(commands)


def test_pre_commit_runs_the_tools_of_make_check() -> None:
    (repository,) = yaml_of(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].removeprefix(".venv/bin/").split()[0] for hook in repository["hooks"]}
    recipe = MAKEFILE.split("\ncheck: ")[1].split("\n\n")[0]
    assert tools == set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe))


def test_changelog_has_a_section_for_the_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?$", changes, re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert launcher.__version__ in sections[1:] or f"will be {launcher.__version__}" in changes


def test_release_moves_version_and_changelog_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    import release

    (tmp_path / "launcher").mkdir()
    for name in ("CHANGELOG.md", "launcher/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    with pytest.raises(SystemExit, match=f"several versions: .*v{launcher.__version__}"):
        release.check(tmp_path, "v99.0.0")
    release.release(tmp_path, "99.0.0")
    release.check(tmp_path, "v99.0.0")
    changes = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[Unreleased\]\n\n## \[99.0.0\] - \d{4}-\d\d-\d\d\n", changes, re.MULTILINE)
    assert "will be" not in changes
    for version, reason in {"99.0.0": "already", "99.1.0": "nothing is unreleased", "v100": "expected"}.items():
        with pytest.raises(SystemExit, match=reason):
            release.release(tmp_path, version)


def test_release_publishes_only_tags_and_only_what_was_built_before() -> None:
    jobs = yaml_of(".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["if"] == "github.event_name == 'push'"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert [step for step in jobs["publish"]["steps"] if "run" in step] == []
    assert [step["run"] for step in jobs["build"]["steps"] if "run" in step][-1] == "make dist"
    assert "permissions" not in jobs["build"]
