"""What is published: what sdist and wheel hold and say, and that the wheel works in an environment of its own.

Not shown: that an index has the packages that the wheel requires. They are links to those of this environment; `make dist` asks
the index.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import launcher
from launcher import bundled
from launcher.rules.examples import laid_over_base
from patience import PATIENCE

ROOT = Path(launcher.__file__).parents[1]
ABOUT = f"sagemaker_launch-{launcher.__version__}"
MOST_PACKAGES = 20  # with its own
REPOSITORY = {"GITHUB_SERVER_URL": "https://example.com", "GITHUB_REPOSITORY": "someone/launch"}


def run(*command: str | Path, folder: Path, **environ: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and with a wheel that is built from it, elsewhere."""
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "hatchling", "build", "-d", folder)
    run(*build, "-t", "sdist", folder=ROOT, **REPOSITORY)
    subprocess.run(["tar", "-xzf", f"{ABOUT}.tar.gz"], cwd=folder, check=True)
    run(*build, "-t", "wheel", folder=folder / ABOUT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"{ABOUT}-py3-none-any.whl"


def needed(name: str) -> set[str]:
    """Return the packages that a package of this environment needs, itself among them, without extras."""
    found, left = set[str](), [name]
    while left:
        if (name := canonicalize_name(left.pop())) not in found:
            found.add(name)
            requirements = map(Requirement, metadata.requires(name) or ())
            left += [each.name for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def bin_folder(wheel: Path) -> Path:
    """The programs of an environment that has the wheel, and of this environment's packages only those that it needs."""
    environment = wheel.parent / "venv"
    venv.create(environment)
    (site,) = environment.glob("lib/python*/site-packages")
    for name in needed("sagemaker-launch") - {"sagemaker-launch"}:
        for top in {file.parts[0] for file in metadata.files(name) or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(metadata.distribution(name).locate_file(top)))
    # pip refuses a requirement that no installed package meets.
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        environment / "bin/python",
    ]
    run(*pip, "install", "--quiet", "--no-index", "--no-compile", wheel, folder=wheel.parent)
    return environment / "bin"


def about(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(f"{ABOUT}.dist-info/METADATA"))


def test_wheel_holds_packages_specs_scripts_and_licence_only(wheel: Path) -> None:
    """Names such as `entrypoints` would be mistaken for other packages of the index."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.partition("/")[0] for name in names} == {"launcher", "sagemaker_channels", f"{ABOUT}.dist-info"}
    assert {f"{ABOUT}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= names
    specs = {f"launcher/channel_specs/{name}.yaml" for name in bundled.spec_names()}
    scripts = {f"launcher/entrypoints/{file.name}" for file in bundled.SCRIPTS.glob("*.py")}
    assert specs | scripts | {"launcher/channel_specs/schema.json", "launcher/py.typed", "launcher/SKILL.md"} <= names
    endings = {Path(name).suffix for name in names if not name.startswith(ABOUT)}
    assert endings == {".py", ".yaml", ".json", ".typed", ".md"}


def test_sdist_holds_every_file_of_the_repository(built: Path) -> None:
    """So its tests run there, too; hatchling leaves out what git ignores."""
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("needs a git checkout")
    with tarfile.open(built / f"{ABOUT}.tar.gz") as archive:
        names = {name.removeprefix(f"{ABOUT}/") for name in archive.getnames()}
    assert {name for name in tracked.stdout.split("\n") if (ROOT / name).is_file()} <= names


def test_wheel_metadata_has_version_licence_and_links_that_an_index_can_follow(wheel: Path) -> None:
    found = about(wheel)
    assert (found["Version"], found["License-Expression"]) == (launcher.__version__, "Apache-2.0")
    assert found["Description-Content-Type"] == "text/markdown"
    url = "/".join(REPOSITORY.values())
    assert found.get_all("Project-URL") == [f"Source, {url}", f"Changelog, {url}/blob/main/CHANGELOG.md"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = found.get_payload()
    assert isinstance(shown, str)
    links = re.findall(r"\]\((.*?)\)", shown)
    assert [each for each in links if not each.startswith("https://")] == []
    assert f"]({url}/raw/v{launcher.__version__}/docs/speed.svg)" in shown
    assert len(links) == len(re.findall(r"\]\(.*?\)", readme))


def test_readme_of_an_unknown_repository_has_no_broken_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    from packaging_hooks import absolute

    text = "![a](b.svg) [c](d.md#e), [f](https://g.h/)\n\n```\n[i](j)\n```\n"
    assert absolute(text, None, "1.0") == " c, [f](https://g.h/)\n\n```\n[i](j)\n```\n"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@example.com:someone/launch.git", "https://example.com/someone/launch"),
        ("ssh://git@example.com/someone/launch", "https://example.com/someone/launch"),
        ("https://example.com/someone/launch.git", "https://example.com/someone/launch"),
        ("https://me:secret@example.com/someone/launch", None),
        ("/home/me/launch", None),
    ],
)
def test_address_of_the_repository_is_the_remote_without_credentials(
    remote: str, address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    from packaging_hooks import repository

    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git/objects").mkdir()
    (tmp_path / ".git/refs").mkdir()
    (tmp_path / ".git/config").write_text(f'[remote "origin"]\n\turl = {remote}\n')
    assert repository(str(tmp_path)) == address


def test_installed_launch_needs_few_packages_and_runs_bundled_scripts(bin_folder: Path, tmp_path: Path) -> None:
    """Away from the checkout; the specs, the script and the library come from the wheel."""
    (site,) = bin_folder.parent.glob("lib/python*/site-packages")
    assert len(list(metadata.distributions(path=[str(site)]))) <= MOST_PACKAGES
    launch, job = bin_folder / "launch", tmp_path / "job.yaml"
    job.write_text(run(launch, "--example", "s3-file", folder=tmp_path))
    as_package = bin_folder / "sagemaker-launch"  # the name that uvx and pipx look for
    request = yaml.safe_load(run(as_package, "job.yaml", "--dry-run", "--name", "one", folder=tmp_path))
    assert request == launcher.plan(job, name="one").request
    (tmp_path / "data").mkdir()
    (tmp_path / "data/1.txt").write_text("one")
    job.write_text(
        laid_over_base("code: {entry_point: entrypoints/read_channels.py}\nchannels: {train: {s3_uri: s3://b/data/}}")
    )
    run(
        launch,
        "job.yaml",
        "--local",
        "--channel",
        "train=data",
        "--no-namespaces",
        folder=tmp_path,
        PATH="/usr/bin:/bin",
    )
