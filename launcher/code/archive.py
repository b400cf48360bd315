"""The code that is sent with a job: its files, the digest that names it, and the archive that is uploaded.

The archive is reproducible: the same files give the same bytes on any machine, whatever their times and owners. The digest
covers names, modes and contents, not the compressed bytes, which differ between versions of zlib.

Sizes are read by `stat`, so that too large a folder is refused before any file is read; contents are hashed for the digest and read
again for the archive, which is refused if a file has changed. Of one that grows, the part that was there first is sent.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from launcher import errors
from launcher.bundled import SCRIPTS
from launcher.code.file_rules import CodeError, CodeFile, FileRules, unreadable
from launcher.code.secrets import PRIVATE_KEY, is_secret_path, secrets_in
from launcher.console import counted, human_bytes
from launcher.errors import did_you_mean_path, first_names
from sagemaker_channels import contract

MAX_BYTES = 250_000_000  # before compression; more is data, and would be sent again with every change of the code
MAX_FILES = 20_000
_SEARCHED = 1 << 24  # bytes of each file that are searched for secrets, which takes three times as long as hashing
_BUNDLE = f"{contract.BUNDLE_DIR}/"
_REMEDY = "put data in a channel, and leave it out here with code.exclude, .launchignore or .gitignore"


@dataclass(frozen=True, repr=False)
class CodeArchive:
    """The files of the user's folder, the bundled scripts and the library, sorted by name."""

    files: tuple[CodeFile, ...]
    secrets: tuple[str, ...] = ()
    """Where keys and tokens seem to be in the user's files: `config.py:12 (AWS secret access key)`."""
    left_out: tuple[str, ...] = ()
    """The user's files and folders that were left out since they usually hold secrets."""
    skipped: tuple[str, ...] = ()
    """Names that cannot be sent, with the reason: `data (a broken link)`."""
    rules: FileRules | None = field(default=None, compare=False, repr=False)
    texts: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Of the files that `read_code` was asked for, what is in them, by the given names; as os.fsdecode if it is not UTF-8."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of a job that runs this code: the commit of the folder."""

    def __repr__(self) -> str:
        """The archive in a line, without the hundred files of the library."""
        return f"<CodeArchive of {len(self.files)} files>"

    @cached_property
    def digest(self) -> str:
        sha = hashlib.sha256()
        for file in self.files:
            name = file.name.encode()
            sha.update(b"%d:%b%d%b" % (len(name), name, file.executable, file.sha256.encode()))
        return sha.hexdigest()

    def names(self) -> set[str]:
        return {file.name for file in self.files}

    def boot(self) -> bytes:
        """Return the script that starts the container, which is uploaded beside the archive too. Raises CodeError as below."""
        name = f"{_BUNDLE}{contract.SCRIPTS_DIR}/{contract.BOOT_FILE}"
        return _content(next(file for file in self.files if file.name == name))

    def write_tar_gz(self, target: BinaryIO) -> None:
        """Write the archive. Raises CodeError if a file is not what it was when the digest was made."""
        import gzip  # a dry run needs only the digest
        import tarfile

        with (
            gzip.GzipFile(filename="", fileobj=target, mode="wb", mtime=0, compresslevel=6) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for file in self.files:
                member = tarfile.TarInfo(file.name)
                member.size, member.mode = file.size, 0o755 if file.executable else 0o644
                tar.addfile(member, io.BytesIO(_content(file)))

    def described(self) -> str | None:
        """Return the number of the user's files and their bytes before compression, in a line; None if there are none."""
        sizes = [file.size for file in self.files if not file.name.startswith(_BUNDLE)]
        if not sizes:
            return None
        left_out = f"; left out {first_names(self.left_out, 3)} (code.include sends them)" if self.left_out else ""
        return f"{counted(len(sizes), 'file')}, {human_bytes(sum(sizes))}{left_out}"


class _Root(NamedTuple):
    """The code folder or a dependency, with its files under their names in the archive."""

    key: errors.SpecPath  # below the spec's `code`
    path: Path
    files: Sequence[CodeFile]
    rules: FileRules


def read_code(
    directory: Path | None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    dependencies: Sequence[Path] = (),
    *,
    entry_point: str | None = None,
    texts: Sequence[str | None] = (),
) -> CodeArchive:
    """Find and hash the files to send: the user's folder with its dependencies, the bundled scripts and the library.

    Without a `directory`, only the bundled scripts are sent. `include` has patterns as in a `.gitignore` for files to send although
    another rule leaves them out. `dependencies` are put beside the folder's own files, each under its base name. Only the
    `entry_point` of `launch measure` and `launch reshard` needs their scripts and the library's tools. `texts` names files whose
    texts are needed, as far as they exist. Raises CodeError.
    """
    named: list[tuple[errors.SpecPath, Path]] = [] if directory is None else [(("directory",), directory)]
    roots = []
    for key, path in (*named, *((("dependencies", index), path) for index, path in enumerate(dependencies))):
        with _reported_at(*key):
            roots.append(_root(key, path, include, exclude))
    _refuse_clashes(roots)
    _refuse_too_much(roots)
    secrets: list[str] = []
    files = list(_bundled(has_tools=entry_point in contract.TOOLS))
    for root in roots:
        with _reported_at(*root.key):
            found = [_read(file) for file in root.files]
            files += [file for file, _ in found]
            secrets += [place for _, places in found for place in places]
            _refuse_private_keys([place for file, places in found if not file.is_included for place in places])
    files.sort(key=lambda file: file.name)
    left_out = sorted(name for root in roots for name in root.rules.left_out)
    skipped = sorted(name for root in roots for name in root.rules.skipped)
    own = None if directory is None else roots[0].rules
    asked = {each: file for each in texts for file in files if each and file.name in (each, _BUNDLE + each)}
    read = {each: _content(file)[:_SEARCHED].decode("utf-8-sig", "surrogateescape") for each, file in asked.items()}
    return CodeArchive(tuple(files), tuple(sorted(secrets)), tuple(left_out), tuple(skipped), own, read)


@contextmanager
def _reported_at(*key: str | int) -> Iterator[None]:
    """Let a CodeError about the files of one folder name the key of that folder."""
    try:
        yield
    except CodeError as error:
        error.path = key if error.path == ("directory",) else error.path
        raise


def _root(key: errors.SpecPath, path: Path, include: Sequence[str], exclude: Sequence[str]) -> _Root:
    """Return the files of the code folder, or of a dependency, a file or a folder, under its base name."""
    is_dependency = key[0] == "dependencies"
    is_file = is_dependency and os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a path that is too long
    if not is_file and not os.path.isdir(path):  # noqa: PTH112 - as above
        kind = "is neither a file nor a folder" if is_dependency else "is not a folder"
        raise CodeError(f"{path} {kind}{did_you_mean_path(path)}; correct the path")
    base, end = Path(os.path.abspath(path)).name, "" if is_file else "/"  # noqa: PTH100 - resolves `..`, but not links
    rules = FileRules(path, include, exclude, f"{base}/" if is_dependency else "")
    is_included = is_dependency and rules.includes(base + end)
    if is_dependency and not is_included and any(is_secret_path(each + end) for each in (base, os.path.realpath(path))):
        remedy = f"if it has to be sent, add {base}{end} to code.include too"
        raise CodeError(f"{path}: usually holds secrets; {remedy}", "code-secret-file", key)
    if is_file:
        file = CodeFile(base, str(path), os.access(path, os.X_OK), path.stat().st_size, is_included=is_included)
        return _Root(key, path, [file], rules)
    files = list(islice(rules.walk(), MAX_FILES + 1))
    if rules.outside:
        what = f"{path}: a link would send what is outside of this folder: {first_names(sorted(rules.outside))}"
        remedy = "name it in code.include to follow it, or in code.exclude to leave it out"
        raise CodeError(f"{what}; {remedy}", "code-link-outside", key)
    return _Root(key, path, files, rules)


def _refuse_clashes(roots: Sequence[_Root]) -> None:
    """Refuse two files or folders of one name at the top of the archive: they would be mixed."""
    tops: dict[str, Path] = {}
    for root in roots:
        for top in dict.fromkeys(file.name.partition("/")[0] for file in root.files):
            path = root.path if root.key[0] == "dependencies" else root.path / top
            other = tops.setdefault(top, path)
            if top == contract.BUNDLE_DIR:
                message = "the launcher's own part of the archive has this name; rename it"
                raise CodeError(f"{path}: {message}", path=root.key)
            if other is not path:
                message = f"would be mixed with {other}, since both are {top} in the code; rename one of the two"
                raise CodeError(f"{path}: {message}", path=root.key)


def _refuse_too_much(roots: Sequence[_Root]) -> None:
    found = [file for root in roots for file in root.files]
    total = sum(file.size for file in found)
    if total > MAX_BYTES:
        root = max(roots, key=lambda root: sum(file.size for file in root.files))
        largest = nlargest(5, found, key=attrgetter("size"))
        most = [f"{file.name} ({human_bytes(file.size)})" for file in largest]
        what = f"{human_bytes(total)} would be sent with the code, and the limit is {human_bytes(MAX_BYTES)}; the largest files are"
    elif len(found) > MAX_FILES:
        root = max(roots, key=lambda root: len(root.files))
        fullest = Counter(file.name.rpartition("/")[0] or "." for file in found).most_common(5)
        most = [f"{folder} ({count:,})" for folder, count in fullest]
        what = f"more than {MAX_FILES:,} files would be sent with the code, which is the limit; most of them are in"
    else:
        return
    raise CodeError(f"{root.path}: {what} {', '.join(most)}; {_REMEDY}", "code-too-large", root.key)


def _bundled(*, has_tools: bool) -> Iterator[CodeFile]:
    """Yield the bundled scripts and the library, with or without what only the tools need."""
    library = Path(contract.__file__).parent
    found = {f"{contract.SCRIPTS_DIR}/{path.name}": path for path in SCRIPTS.glob("*.py")}
    found |= {f"{contract.LIBRARY}/{path.relative_to(library).as_posix()}": path for path in library.rglob("*.py")}
    for name, path in found.items():
        if has_tools or (
            name not in contract.TOOLS and not name.startswith(f"{contract.LIBRARY}/{contract.TOOLS_DIR}/")
        ):
            yield _read(CodeFile(_BUNDLE + name, str(path), False, path.stat().st_size))[0]


def _read(file: CodeFile) -> tuple[CodeFile, list[str]]:
    """Return the file with its digest, and the places of secrets in it."""
    content = _content(file)
    places = [f"{file.name}:{line} ({what})" for line, what in secrets_in(content[:_SEARCHED])]
    return file._replace(sha256=hashlib.sha256(content).hexdigest()), places


def _refuse_private_keys(places: Sequence[str]) -> None:
    if keys := [each for each in places if each.endswith(f"({PRIVATE_KEY})")]:
        remedy = "move it elsewhere, leave its file out with code.exclude, or name the file in code.include"
        raise CodeError(f"{first_names(keys)} would be sent with the code; {remedy}", "code-secret-file")


def _content(file: CodeFile) -> bytes:
    """Return a file's content, without what has been appended since its size was read, as to a log.

    Raises CodeError if it has changed otherwise since its size, or its digest, was read.
    """
    try:
        with Path(file.path).open("rb") as opened:
            content = opened.read(file.size + 1)[: file.size]
    except OSError as error:
        raise unreadable(file.path, error) from None
    if len(content) != file.size or file.sha256 not in ("", hashlib.sha256(content).hexdigest()):
        raise CodeError(f"{file.path}: has changed since it was first read; start again when nothing writes to it")
    return content
