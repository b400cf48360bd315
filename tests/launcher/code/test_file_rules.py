"""Which files of a code folder travel: limits, defaults, ignore files, and the spec's own patterns."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from unittest import mock

import pytest

import launcher
from launcher.code import archive
from launcher.code.archive import read_code
from launcher.code.file_rules import CodeError
from launcher.errors import SpecError
from launcher.rules.examples import laid_over_base

PARTS = ("a", "b", "data", "x.py", "y.pt", "z.txt")
PATTERNS = (
    *(
        "data",
        "data/",
        "/data",
        "*.pt",
        "a/*.pt",
        "/a/b",
        "**/b",
        "b/**",
        "a/**/z.txt",
        "a/**/",
        "[xy].*",
        "z.txt ",
        "?.py",
    ),
    *("!data", "!*.pt", "!a/y.pt", "!/z.txt", "!b/", "!/a", "!a/b/", "!*/", "!*.py", "!**/x.py", "!/data/"),
    *("*", "/*", "*/", "a/", "data/*", "# a comment", "", "\\!x", "!", "/"),
)


def written(folder: Path, *names: str, **contents: str) -> Path:
    """The folder with these files; `names` with a slash at the end are folders."""
    for name in names:
        file = folder / name
        (file if name.endswith("/") else file.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/") and not file.exists():
            file.write_text("pass\n")
    for name, text in contents.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


def sent(folder: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> set[str]:
    names = read_code(folder, include, exclude).names()
    return {name for name in names if not name.startswith("launcher_bundle/")}


def in_git(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("link", [False, True])
def test_huge_file_is_refused_by_its_size_without_being_read(tmp_path: Path, link: bool) -> None:
    """The file is sparse: its size costs no disk, but reading 2 TB would outlast the test's timeout."""
    source = written(tmp_path / "src", "train.py", "pkg/b.py", "pkg/c.py", "d.py", "e.py")
    data = tmp_path / "elsewhere" if link else source / "data"
    data.mkdir()
    with (data / "huge.bin").open("wb") as file:
        file.truncate(2_000_000_000_000)
    if link:
        (source / "data").symlink_to(data)
    with pytest.raises(CodeError, match=r"data/huge\.bin \(2\.0 TB\), .*code\.exclude") as caught:
        read_code(source, include=["data"] if link else [])
    assert caught.value.code == "code-too-large"
    assert str(caught.value).count(" bytes)") == 4, "the five largest files are named"
    assert sent(source, exclude=["data/"]) == {"train.py", "pkg/b.py", "pkg/c.py", "d.py", "e.py"}


def test_size_limit_counts_all_files_together(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(archive.MAX_BYTES // 3 + 1)
    with pytest.raises(CodeError, match=r"250\.0 MB would be sent with the code, and the limit is 250\.0 MB"):
        read_code(tmp_path)
    with (tmp_path / "c").open("wb"):
        pass
    assert sent(tmp_path) == {"a", "b", "c"}


def test_too_many_files_are_refused_with_the_fullest_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_FILES", 5)
    written(tmp_path, "train.py", *(f"images/{number}.png" for number in range(6)))
    with pytest.raises(CodeError, match=r"more than 5 files .* images \("):
        read_code(tmp_path)
    assert sent(tmp_path, exclude=["images"]) == {"train.py"}


SECRETS = """
.env .env.local pkg/.envrc prod.env prod.tfvars terraform.tfstate terraform.tfstate.backup
key.pem A.PEM tls.key b.p12 c.pfx d.jks id_rsa id_rsa.bak pkg/id_ed25519.pub deploy_key github_ed25519
.git-credentials .netrc .npmrc .NPMRC~ .pypirc .pgpass .vault-token .docker/config.json .huggingface/token .streamlit/secrets.toml
kaggle.json service-account-prod.json credentials.json credentials.json.old x/credentials
""".split()  # noqa: SIM905 - as a list it would be 40 lines
SECRET_FOLDERS = (".aws/", ".ssh/", ".kube/", "pkg/.AWS/")


def test_secrets_and_caches_are_left_out_by_default(tmp_path: Path) -> None:
    kept = (
        *("train.py", "id_map.json", "id_lookup.py", "id_tables/a.csv", "environment.yml", "config.json"),
        *("secrets.py", "credentials.py", "keys.py", "tokenizer.json", "env/a.py", "credentials/a.py", "history.csv"),
    )
    caches = (".ipynb_checkpoints/train.py", "__pycache__/a.pyc", ".git/config", ".venv/a.py", ".env.d/a.py")
    written(tmp_path, *kept, *SECRETS, *(f"{folder}config" for folder in SECRET_FOLDERS), *caches)
    found = read_code(tmp_path)
    assert sent(tmp_path) == set(kept)
    assert found.left_out == tuple(sorted([*SECRETS, *SECRET_FOLDERS]))
    assert "13 files, " in str(found.described())
    assert f"left out .NPMRC~, .aws/, .docker/config.json and {len(SECRETS) + 1} more (code.include sends them)" in str(
        found.described()
    )


def test_link_to_a_secret_in_the_folder_is_left_out(tmp_path: Path) -> None:
    written(tmp_path, "train.py", "prod.env", ".docker/config.json")
    (tmp_path / "settings.py").symlink_to("prod.env")
    (tmp_path / "plain").symlink_to(".docker")
    found = read_code(tmp_path)
    assert sent(tmp_path) == {"train.py"}
    assert found.left_out == (".docker/config.json", "plain/config.json", "prod.env", "settings.py")
    assert found.rules is not None
    assert "usually holds secrets" in str(found.rules.why_left_out("settings.py"))


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ([], [], None),
        ([], ["here"], None),
        ([], ["here", "notes"], {"train.py"}),
        (["here/"], [], None),  # another link
        (["here/", "notes"], [], {"train.py", "notes", "here/a.py", "here/b.json"}),
        (["notes", "here/.ssh/id_x", "here/*.json"], [], {"train.py", "notes", "here/.ssh/id_x", "here/b.json"}),
        (["notes", "!here"], ["here"], {"train.py", "notes"}),
        (["notes", "here/**"], [], {"train.py", "notes", "here/a.py", "here/b.json", "here/.env", "here/.ssh/id_x"}),
    ],
)
def test_link_out_of_the_folder_is_followed_only_if_included(
    tmp_path: Path, include: list[str], exclude: list[str], expected: set[str] | None
) -> None:
    """Below the folder that it leads to, the other rules hold: what `include` names is sent, and secrets are not."""
    home = written(tmp_path / "home", "a.py", "b.json", ".env", ".ssh/id_x")
    folder = written(tmp_path / "src", "train.py")
    (folder / "here").symlink_to(home)
    (folder / "notes").symlink_to(home / ".ssh/id_x")
    if expected is not None:
        assert sent(folder, include, exclude) == expected
        return
    with pytest.raises(CodeError, match=r"notes -> \S+/home/\.ssh/id_x; name it in code\.include") as caught:
        read_code(folder, include, exclude)
    assert caught.value.code == "code-link-outside"
    assert ("here -> " in str(caught.value)) == (not (include or exclude))


def test_link_out_of_an_included_link_is_refused(tmp_path: Path) -> None:
    shared = written(tmp_path / "shared", "a.py")
    folder = written(tmp_path / "src", "train.py")
    (folder / "lib").symlink_to(shared)
    (shared / "inner").symlink_to("a.py")
    assert sent(folder, ["lib"]) == {"train.py", "lib/a.py", "lib/inner"}
    written(tmp_path / "home", "key")
    (shared / "further").symlink_to(tmp_path / "home")
    with pytest.raises(CodeError, match="lib/further -> "):
        read_code(folder, ["lib"])


def test_secret_folder_as_code_folder_sends_nothing_by_default(tmp_path: Path) -> None:
    written(tmp_path / ".aws", "config")
    (tmp_path / "code").symlink_to(".aws")
    assert sent(tmp_path / "code") == set()
    assert sent(tmp_path / "code", ["config"]) == {"config"}


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
@pytest.mark.parametrize("seed", range(60))
def test_gitignore_files_decide_as_in_git(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    folders = ["", *{"/".join(chance.choices(PARTS[:3], k=chance.randint(1, 3))) + "/" for _ in range(4)}]
    for folder in folders:
        written(tmp_path, *(f"{folder}{name}" for name in PARTS[3:]))
        if chance.random() < 0.6:
            text = "\n".join(chance.choices(PATTERNS, k=chance.randint(1, 4)))
            (tmp_path / folder / ".gitignore").write_text(f"{text}\n")
    git = ["git", "-c", "core.excludesFile=/dev/null", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    (tmp_path / ".git/info/exclude").unlink(missing_ok=True)
    for start in folders[:2]:  # the work tree's root, and a folder inside of it
        listing = [*git[:-1], str(tmp_path / start), "ls-files", "--others", "--exclude-standard"]
        known = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
        ignored = start and subprocess.run([*git, "check-ignore", "--quiet", start]).returncode == 0
        if not ignored:
            assert sent(tmp_path / start) == set(known)


def test_gitignore_is_applied_in_a_work_tree_only(tmp_path: Path) -> None:
    written(tmp_path / "src", "train.py", "data/a.bin", "data/b.txt", _gitignore="data/\n")
    assert sent(tmp_path / "src") == {"train.py", "data/a.bin", "data/b.txt", ".gitignore"}
    in_git(tmp_path)
    assert sent(tmp_path / "src") == {"train.py", ".gitignore"}
    (tmp_path / "src/.gitignore").unlink()
    (tmp_path / ".gitignore").write_text("src/data/*.bin\n")
    assert sent(tmp_path / "src") == {"train.py", "data/b.txt"}


def test_code_folder_that_git_ignores_is_sent(tmp_path: Path) -> None:
    written(in_git(tmp_path), "build/train.py", "build/x.tmp", _gitignore="build/\n*.tmp\n")
    assert sent(tmp_path / "build") == {"train.py", "x.tmp"}


def test_negated_folder_does_not_include_default_exclusions(tmp_path: Path) -> None:
    """Lists of what git is to keep begin with `*` and `!*/`, which also match .venv and .aws."""
    written(
        in_git(tmp_path), "train.py", "pkg/a.py", "data/a.bin", ".venv/b.py", ".aws/c.py", _gitignore="*\n!*/\n!*.py\n"
    )
    assert sent(tmp_path) == {"train.py", "pkg/a.py"}


def test_launchignore_outranks_gitignore_and_needs_no_git(tmp_path: Path) -> None:
    written(tmp_path, "train.py", "data/a.bin", "model/b.bin", "model/small/c.bin")
    (tmp_path / ".launchignore").write_text("data\n/.launchignore\n")
    (tmp_path / "model/.launchignore").write_text("*.bin\n!small/c.bin\n.launchignore\n")
    assert sent(tmp_path) == {"train.py", "model/small/c.bin"}
    in_git(tmp_path)
    (tmp_path / ".gitignore").write_text("*.bin\n*.py\n.gitignore\n")
    assert sent(tmp_path) == {"model/small/c.bin"}
    rules = read_code(tmp_path).rules
    assert rules and "'*.py' in " in str(rules.why_left_out("train.py"))


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ([], [], {"train.py", "pkg/a.py"}),
        ([], ["*.py", "!train.py"], {"train.py"}),
        ([], ["/pkg"], {"train.py"}),
        ([".env"], [], {"train.py", "pkg/a.py", ".env"}),
        (["data/labels.json"], [], {"train.py", "pkg/a.py", "data/labels.json"}),
        (["/data/*.json"], ["data", "pkg"], {"train.py", "data/labels.json"}),
        (["data/"], [], {"train.py", "pkg/a.py", "data/labels.json", "data/raw/1.bin", "data/.env"}),
        (["data/", "!data/raw/", "!.env"], [], {"train.py", "pkg/a.py", "data/labels.json"}),
        (["data/**/1.bin"], [], {"train.py", "pkg/a.py", "data/raw/1.bin"}),
        (["labels.json", "**/1.bin"], [], {"train.py", "pkg/a.py"}),  # not in a folder that is left out
        (["train.py"], ["*"], {"train.py"}),
    ],
)
def test_include_outranks_exclude_and_ignore_files(
    tmp_path: Path, include: list[str], exclude: list[str], expected: set[str]
) -> None:
    files = ("train.py", "pkg/a.py", ".env", "data/labels.json", "data/raw/1.bin", "data/.env")
    written(in_git(tmp_path), *files, _gitignore="data/\n.gitignore\n")
    assert sent(tmp_path, include, exclude) == expected


@pytest.mark.parametrize(
    ("script", "remedy"),
    [
        ("entrypoints/tran.py", "did you mean entrypoints/train.py?"),
        ("train.py", "write its folder, such as directory: . beside this file"),
    ],
)
def test_unknown_bundled_script_has_a_remedy(script: str, remedy: str) -> None:
    with pytest.raises(SpecError) as caught:
        launcher.plan(launcher.parse_spec(laid_over_base(f"code: {{entry_point: {script}}}")))
    assert f"code.entry_point: '{script}' is not a bundled script; {remedy} [code-file-missing]" in str(caught.value)


def test_missing_code_folder_is_named_once(tmp_path: Path) -> None:
    written(tmp_path / "src", "train.py")
    (tmp_path / "job.yaml").write_text(laid_over_base("code: {directory: source, entry_point: train.py}"))
    with pytest.raises(SpecError, match=r": code\.directory: \S*source is not a folder; did you mean src\?"):
        launcher.plan(tmp_path / "job.yaml")


def test_file_in_the_wrong_folder_has_a_remedy(tmp_path: Path) -> None:
    written(tmp_path, "src/train.py", "requirements.txt")
    keys = "directory: src, entry_point: train.py, requirements: requirements.txt"
    (tmp_path / "job.yaml").write_text(laid_over_base(f"code: {{{keys}}}"))
    with pytest.raises(SpecError, match=r"requirements\.txt' is not in \S*src; put it there, or correct the path "):
        launcher.plan(tmp_path / "job.yaml")


def test_excluded_entry_point_is_refused_with_the_rule(tmp_path: Path) -> None:
    written(in_git(tmp_path) / "src", "train.py", _gitignore="*.py\n")
    (tmp_path / "job.yaml").write_text(laid_over_base("code: {directory: src, entry_point: train.py}"))
    with pytest.raises(SpecError) as caught:
        launcher.plan(tmp_path / "job.yaml")
    assert str(caught.value).endswith(
        f"code.entry_point: 'train.py' is left out by '*.py' in {tmp_path}/src/.gitignore; add it to code.include"
        " [code-file-missing]"
    )
    for keys in ("include: [train.py]", "include: ['*.py']"):
        (tmp_path / "job.yaml").write_text(laid_over_base(f"code: {{directory: src, entry_point: train.py, {keys}}}"))
        assert launcher.plan(tmp_path / "job.yaml").code is not None


def test_invalid_pattern_is_reported_at_its_key_and_skipped_in_ignore_files(tmp_path: Path) -> None:
    written(in_git(tmp_path) / "src", "train.py", "a.bin", _gitignore="!\n*.bin\n\\\n.gitignore\n")
    assert sent(tmp_path / "src") == {"train.py"}
    (tmp_path / "job.yaml").write_text(laid_over_base("code: {directory: src, entry_point: train.py, exclude: ['!']}"))
    with pytest.raises(SpecError, match=r"code\.exclude: '!' is not a pattern as in \.gitignore"):
        launcher.plan(tmp_path / "job.yaml")


def test_broken_links_and_fifos_are_skipped_with_a_warning_and_other_links_followed(tmp_path: Path) -> None:
    written(tmp_path / "src", "train.py", "cache/")
    written(tmp_path / "shared", "a.py")
    for name, target in (("itself", "itself"), ("gone", "nowhere"), ("shared", "../shared"), ("up", "..")):
        (tmp_path / "src" / name).symlink_to(target)
    followed = sent(tmp_path / "src", include=["shared", "up"])
    assert followed == {"train.py", "shared/a.py", "up/shared/a.py"}
    (tmp_path / "src/.#train.py").symlink_to("user@machine.17")  # Emacs marks a file that is being edited so
    os.mkfifo(tmp_path / "src/cache/pipe")
    (tmp_path / "src/odd\nname").symlink_to("nowhere")
    included = "code: {directory: src, entry_point: train.py, include: [shared, up]}"
    (tmp_path / "job.yaml").write_text(laid_over_base(included))
    (warning,) = launcher.plan(tmp_path / "job.yaml").warnings
    assert warning.code == "code-skipped"
    assert warning.message.startswith(
        "'odd\\nname' (a broken link), cache/pipe (not a regular file), gone (a broken link), itself (a broken link) cannot be sent"
    )
    excluded = laid_over_base("code: {directory: src, entry_point: train.py, exclude: ['*', '!train.py']}")
    (tmp_path / "job.yaml").write_text(excluded)
    assert launcher.plan(tmp_path / "job.yaml").warnings == ()


def test_file_that_cannot_be_looked_at_is_an_error_and_no_broken_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in a folder that this user may list and not enter: the job would lack it."""
    written(tmp_path, "train.py")
    entry = mock.Mock(
        path=f"{tmp_path}/train.py", is_symlink=lambda: False, stat=mock.Mock(side_effect=PermissionError(13, "no"))
    )
    entry.name = "train.py"
    monkeypatch.setattr(os, "scandir", lambda folder: [entry])
    with pytest.raises(CodeError, match=r"train\.py: cannot be read: no; make it readable, or leave it out"):
        sent(tmp_path)


def test_only_the_first_of_many_skipped_names_are_shown(tmp_path: Path) -> None:
    written(tmp_path / "src", "train.py")
    for number in range(9):
        (tmp_path / f"src/link{number}").symlink_to("nowhere")
    (tmp_path / "job.yaml").write_text(laid_over_base("code: {directory: src, entry_point: train.py}"))
    (warning,) = launcher.plan(tmp_path / "job.yaml").warnings
    assert "link4 (a broken link) and 4 more cannot be sent" in warning.message
    assert "link5" not in warning.message


def test_circular_links_are_walked_once(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file.py").touch()
        for number in range(3):
            (tmp_path / name / f"to-{other}-{number}").symlink_to(tmp_path / other)
    names = [name for name in read_code(tmp_path).names() if not name.startswith("launcher_bundle")]
    assert len(names) == 2 + 2 * 3
