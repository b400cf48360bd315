"""The code archive: read in pieces, checked for changes, and searched for secrets."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

import launcher
from launcher.code.archive import MAX_BYTES, read_code
from launcher.code.file_rules import CodeError
from launcher.rules.examples import laid_over_base
from launching import launch
from sagemaker_channels import contract

KEY_ID = "AKIA" + "IOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYEXAMPLEKEY"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print('training')\n")
    (tmp_path / "job.yaml").write_text(laid_over_base("code: {directory: src, entry_point: train.py}"))
    return tmp_path / "job.yaml"


def test_dry_run_reports_the_size_of_the_code_on_stderr(job: Path) -> None:
    (job.parent / "src/.env").write_text("TOKEN=hush\n")
    done = launch(str(job), "--dry-run", "--json")
    assert done.stderr == "code      1 file, 18 bytes; left out .env (code.include sends them)\n"
    assert json.loads(done.stdout)["RoleArn"]
    job.write_text(laid_over_base("code: {entry_point: entrypoints/train.py}"))
    assert launch(str(job), "--dry-run", "--json").stderr == ""


@pytest.mark.parametrize("content", ["print('changed!')\n", "print('more training')\n", "", None])
def test_file_that_changes_after_hashing_is_refused(job: Path, content: str | None) -> None:
    code = read_code(job.parent / "src")
    if content is None:
        (job.parent / "src/train.py").unlink()
    else:
        (job.parent / "src/train.py").write_text(content)
    with pytest.raises(CodeError, match=r"train\.py: (has changed since it was first read|cannot be read)"):
        code.write_tar_gz(io.BytesIO())


def test_file_that_grows_is_sent_as_it_was(job: Path) -> None:
    """As a log that `tee` or another program writes."""
    log = job.parent / "src/log.txt"
    log.write_text("first\n")
    code = read_code(job.parent / "src")
    log.write_text("first\nsecond\n")
    code.write_tar_gz(target := io.BytesIO())
    target.seek(0)
    with tarfile.open(fileobj=target) as tar:
        content = tar.extractfile("log.txt")
        assert content is not None and content.read() == b"first\n"


def test_archive_keeps_modes_and_contents(job: Path) -> None:
    (job.parent / "src/run.sh").write_text("true\n")
    (job.parent / "src/run.sh").chmod(0o700)
    (job.parent / "src/empty").touch()
    read_code(job.parent / "src").write_tar_gz(target := io.BytesIO())
    target.seek(0)
    with tarfile.open(fileobj=target) as tar:
        members = {member.name: member for member in tar.getmembers()}
        content = tar.extractfile("train.py")
        assert content is not None
        assert content.read() == b"print('training')\n"
    assert [oct(members[name].mode) for name in ("run.sh", "train.py")] == ["0o755", "0o644"]
    assert members["empty"].size == 0
    assert {member.mtime for member in members.values()} == {0}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"a = 1\n[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n", [4]),
        (f'client(\n    "{KEY_ID}",\n    "{SECRET}",\n)\n', [3]),
        (f"AWS_SECRET_ACCESS_KEY={SECRET}", [1]),
        (f'{{"secretKey": "{SECRET}"}}', [1]),
        (f"only = '{KEY_ID}'", []),
        (f"digest = '{SECRET}'", []),  # 40 characters alone say nothing
        (f"{KEY_ID}\nsecret = '{40 * 'a'}'\ncommit = '{'0a1b2c3d' * 5}'", []),
        (f"{KEY_ID}\n{SECRET}x\n{SECRET}=", []),
        (f"\0{KEY_ID} {SECRET}", []),
    ],
)
def test_aws_keys_are_found_by_file_and_line(job: Path, text: str, lines: list[int]) -> None:
    (job.parent / "src/config.py").write_text(text)
    warnings = launcher.plan(job).warnings
    assert [warning.code for warning in warnings] == ["code-secrets"] * bool(lines)
    for warning, line in zip(warnings, lines, strict=True):
        where = f"code.directory: config.py:{line} (AWS secret access key)"
        assert f"{where}: these lines seem to have secrets, which would be stored in S3" in str(warning)
        assert SECRET not in str(warning)
    assert launcher.plan(job, ignore=("code-secrets",)).warnings == ()


MIXED = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xYz0AbCdEfGhIj"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"# a\nlogin('{'hf' + '_' + MIXED[:34]}')\n", ["2 (Hugging Face token)"]),
        (f"url = 'https://x:{'gh' + 'p_' + MIXED[:36]}@github.com'", ["1 (GitHub token)"]),
        (f"{'gh' + 'o_' + MIXED[:36]}\n\n{'github' + '_pat_' + MIXED}", ["1 (GitHub token)", "3 (GitHub token)"]),
        (f"GITLAB={'glpat' + '-' + MIXED[:20]}", ["1 (GitLab token)"]),
        (f"x: {'xox' + 'b-123456789012-1234567890123-' + MIXED[:24]}", ["1 (Slack token)"]),
        (f"--index-url https://me:{MIXED[:12]}@pypi.example/simple", ["1 (password in a URL)"]),
        (f"torch\nmine @ https://me:{MIXED[:12]}@files.example/mine.whl", ["2 (password in a URL)"]),
        ("--index-url https://me:${TOKEN}@pypi.example/simple\nhttps://user:password@host http://host:80/a@b", []),
        ("token = '" + "hf_" + 34 * "x" + "'", []),  # stands for a token in documents
        ("self.hf_" + MIXED[:34] + "_name", []),
        ("hf_short", []),
    ],
)
def test_tokens_are_found_by_file_and_line(job: Path, text: str, found: list[str]) -> None:
    (job.parent / "src/config.py").write_text(text)
    code = launcher.plan(job).code
    assert code is not None
    assert code.secrets == tuple(f"config.py:{place}" for place in found)


def test_secret_far_into_a_large_file_is_found_in_its_line(job: Path) -> None:
    lines = "x = 1\n" * ((1 << 22) // 6 - 1)
    begin = lines + "#" * ((1 << 22) - len(lines) - 20)
    (job.parent / "src/big.py").write_text(f"{begin}\n{'hf' + '_' + MIXED[:34]}\n{'gh' + 'p_' + MIXED[:36]}\n")
    code = launcher.plan(job).code
    assert code is not None
    first = begin.count("\n") + 2
    assert code.secrets == (f"big.py:{first} (Hugging Face token)", f"big.py:{first + 1} (GitHub token)")


KEY = "-----BEGIN {}PRIVATE KEY{}-----"


@pytest.mark.parametrize(
    ("content", "is_refused"),
    [
        (KEY.format("OPENSSH ", "") + "\nb3BlbnNzaC1rZXk\n", True),
        (KEY.format("RSA ", "") + "\r\nProc-Type: 4,ENCRYPTED\r\n", True),
        (KEY.format("PGP ", " BLOCK") + "\n\nlQOYBF\n", True),
        (f'{{"type": "service_account", "private_key": "{KEY.format("", "")}\\nMIIEvQ"}}', True),
        ("\0binary" + KEY.format("EC ", "") + "\nMHcCAQEE", True),
        (f'if "{KEY.format("RSA ", "")}" in text:\n    refuse()\n', False),
        (KEY.format("", "").replace("PRIVATE", "PUBLIC") + "\nMIIB\n", False),
    ],
)
def test_private_key_in_a_file_of_any_name_is_refused(job: Path, content: str, is_refused: bool) -> None:
    (job.parent / "src/notes.txt").write_text(f"#\n{content}")
    if not is_refused:
        assert launcher.plan(job).warnings == ()
        return
    with pytest.raises(
        launcher.SpecError, match=r"code\.directory: notes\.txt:2 \(private key\) would be sent"
    ) as caught:
        launcher.plan(job)
    assert [problem.code for problem in caught.value.problems] == ["code-secret-file"]
    job.write_text(laid_over_base("code: {directory: src, entry_point: train.py, include: [notes.txt]}"))
    (warning,) = launcher.plan(job).warnings
    assert warning.code == "code-secrets"
    assert "notes.txt:2 (private key)" in warning.message


@pytest.mark.parametrize("name", ["home/.ssh/id_ed25519", "home/.ssh", "prod.env", "link"])
def test_dependency_that_holds_secrets_is_sent_only_if_included(job: Path, tmp_path: Path, name: str) -> None:
    for file in ("home/.ssh/id_ed25519", "prod.env"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("x")
    (tmp_path / "link").symlink_to("prod.env")
    code = f"directory: src, entry_point: train.py, dependencies: [{name}]"
    job.write_text(laid_over_base(f"code: {{{code}}}"))
    with pytest.raises(launcher.SpecError, match="usually holds secrets; if it has to be sent, add") as caught:
        launcher.plan(job)
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == (("code", "dependencies", 0), "code-secret-file")
    job.write_text(laid_over_base(f"code: {{{code}, include: [{Path(name).name}]}}"))
    assert launcher.plan(job).code is not None


def test_dependencies_are_sent_beside_the_code_by_base_name(job: Path, tmp_path: Path) -> None:
    for name in (
        "libs/shared/__init__.py",
        "libs/shared/sub/a.py",
        "libs/shared/.env",
        "libs/shared/skip.csv",
        "extra/one.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    code = "{directory: src, entry_point: train.py, exclude: ['*.csv'], dependencies: [libs/shared/, extra/one.py]}"
    job.write_text(laid_over_base(f"code: {code}"))
    plan = launcher.plan(job)
    assert plan.code is not None
    names = {name for name in plan.code.names() if not name.startswith("launcher_bundle")}
    assert names == {"train.py", "shared/__init__.py", "shared/sub/a.py", "one.py"}
    assert plan.code.left_out == ("shared/.env",)
    before = plan.code.digest
    (tmp_path / "extra/one.py").write_text("x = 2\n")
    after = launcher.plan(job).code
    assert after is not None and after.digest != before


def test_dependencies_are_relative_to_the_file_that_names_them(tmp_path: Path, job: Path) -> None:
    (tmp_path / "one.py").write_text("")
    job.write_text(laid_over_base("code: {directory: src, entry_point: train.py, dependencies: [one.py]}"))
    (tmp_path / "below").mkdir()
    (tmp_path / "below/job.yaml").write_text("extends: ../job.yaml\n")
    code = launcher.plan(tmp_path / "below/job.yaml").code
    assert code is not None and "one.py" in code.names()


@pytest.mark.parametrize(
    ("dependencies", "message"),
    [
        (["extra/one.py", "missing"], "missing is neither a file nor a folder"),
        (["extra/one.py", "libsx"], "did you mean libs?"),
        (["extra/one.py", "a" * 300], "is neither a file nor a folder"),
        (
            ["extra/one.py", "libs/train.py"],
            "libs/train.py: would be mixed with {0}/src/train.py, since both are train.py",
        ),
        (["extra/one.py", "libs/sub"], "libs/sub: would be mixed with {0}/src/sub, since both are sub in the code"),
        (["libs/sub", "extra/sub"], "libs/sub, since both are sub in the code; rename one of the two"),
        (["extra/one.py", "libs/launcher_bundle"], "the launcher's own part of the archive has this name"),
        pytest.param(
            ["extra/one.py", "libs/broken"],
            "libs/broken/memory: cannot be read: Input/output error; make it readable",
            marks=pytest.mark.linux,
        ),
    ],
)
def test_dependency_that_cannot_be_sent_is_reported_at_its_item(
    job: Path, tmp_path: Path, dependencies: list[str], message: str
) -> None:
    names = ("libs/train.py", "libs/launcher_bundle/x.py", "libs/sub/a.py", "extra/sub/b.py", "extra/one.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    if "src/sub" in message:
        (tmp_path / "src/sub").mkdir()
        (tmp_path / "src/sub/c.py").write_text("")
    (tmp_path / "libs/broken").mkdir()
    (tmp_path / "libs/broken/memory").symlink_to("/proc/self/mem")  # its first page cannot be read, by root either
    keys = f"directory: src, entry_point: train.py, include: [memory], dependencies: {dependencies}"
    job.write_text(laid_over_base(f"code: {{{keys}}}"))
    with pytest.raises(launcher.SpecError) as caught:
        launcher.plan(job)
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == (("code", "dependencies", 1), "code-unreadable")
    assert problem.location is not None
    assert problem.location.column == problem.location.text.index(
        dependencies[1]
    )  # columns count from 1, and a quote precedes
    assert message.format(tmp_path) in problem.message


def test_dependency_that_is_too_large_is_reported_at_its_item(job: Path, tmp_path: Path) -> None:
    for name, size in (("small.bin", 1), ("weights.bin", MAX_BYTES)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    dependencies = "[small.bin, weights.bin]"
    job.write_text(laid_over_base(f"code: {{directory: src, entry_point: train.py, dependencies: {dependencies}}}"))
    with pytest.raises(launcher.SpecError, match=r"weights\.bin: 250\.0 MB would be sent with the code") as caught:
        launcher.plan(job)
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == (("code", "dependencies", 1), "code-too-large")


def test_tools_are_sent_only_with_the_scripts_that_need_them() -> None:
    bundle = f"{contract.BUNDLE_DIR}/"
    library = f"{bundle}{contract.LIBRARY}/"
    tools = {f"{bundle}{name}" for name in contract.TOOLS}
    names = {
        name: read_code(None, entry_point=name).names() for name in (*contract.TOOLS, "entrypoints/train.py", "a.py")
    }
    for script in contract.TOOLS:
        assert tools <= names[script] and f"{library}tools/__init__.py" in names[script]
    assert names["entrypoints/train.py"] == names["a.py"]
    sent = names["a.py"]
    assert f"{library}contract.py" in sent and f"{bundle}entrypoints/train.py" in sent
    assert not tools & sent and not [name for name in sent if name.startswith(f"{library}tools/")]
