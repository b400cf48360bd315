"""The code that is sent with a job: its files, the digest that names it, and the archive that is uploaded.

The archive is reproducible: the same files give the same bytes on any machine, whatever their times and owners. The digest
covers names, modes and contents, not the compressed bytes, which differ between versions of zlib.

No file is held in memory as a whole. Sizes are read by `stat`, so that too large a folder is refused before any file is read;
contents are hashed in pieces for the digest and read again for the archive, which is refused if a file has changed.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from launcher import errors
from launcher.code.files import CodeError, CodeFile, FileRules, unreadable
from launcher.code.secrets import OVERLAP, PRIVATE_KEY, is_secret_path, secrets_in
from launcher.console import counted, human_bytes
from launcher.errors import did_you_mean_path, first_names
from sagemaker_channels import contract

MAX_BYTES = 250_000_000  # before compression; more is data, and would be sent again with every change of the code
MAX_FILES = 20_000
SCRIPTS = Path(__file__).parents[2] / contract.SCRIPTS_DIR  # the bundled ones, in a checkout and in an installed wheel
_PIECE = 1 << 22  # bytes
_SEARCHED = 4 * _PIECE  # bytes of each file that are searched for secrets, which takes three times as long as hashing
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

    def __repr__(self) -> str:
        """The archive in a line, without the hundred files of the library."""
        return f"<CodeArchive of {len(self.files)} files>"

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of all files, boot.py included."""
        sha = hashlib.sha256()
        for file in self.files:
            name = file.name.encode()
            sha.update(b"%d:%b%d%b" % (len(name), name, file.executable, file.sha256.encode()))
        return sha.hexdigest()

    def names(self) -> set[str]:
        """Return the paths in the archive."""
        return {file.name for file in self.files}

    def boot(self) -> bytes:
        """Return the script that starts the container, which is uploaded beside the archive too. Raises CodeError as below."""
        name = f"{_BUNDLE}{contract.SCRIPTS_DIR}/{contract.BOOT_FILE}"
        file = next(file for file in self.files if file.name == name)
        with _opened(file) as opened:
            content = opened.read()
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise file.changed()
        return content

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
                with _opened(file) as opened:
                    content = _Hashed(opened, file)
                    tar.addfile(member, content)  # type: ignore[arg-type]  # addfile calls only read
                    if opened.read(1) or content.sha256.hexdigest() != file.sha256:
                        raise file.changed()

    def described(self) -> str | None:
        """Return the number of the user's files and their bytes before compression, in a line; None if there are none."""
        sizes = [file.size for file in self.files if not file.name.startswith(_BUNDLE)]
        if not sizes:
            return None
        shown = [*self.left_out[:3], *([f"{len(self.left_out) - 3:,} more"] if len(self.left_out) > 3 else [])]
        left_out = f"; left out {', '.join(shown)} (code.include sends them)" if shown else ""
        return f"{counted(len(sizes), 'file')}, {human_bytes(sum(sizes))}{left_out}"


class _Hashed:
    """A file for `tarfile` that hashes what is read. Raises CodeError at an early end."""

    def __init__(self, opened: BinaryIO, file: CodeFile) -> None:
        self._opened, self._file, self.sha256 = opened, file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        content = self._opened.read(size)
        self.sha256.update(content)
        if len(content) < size:
            raise self._file.changed()
        return content


class _Root(NamedTuple):
    """The code folder or a dependency, with its files under their names in the archive."""

    key: errors.SpecPath  # below the spec's `code`
    path: Path
    files: Sequence[CodeFile]
    rules: FileRules | None = None  # None for a single file


def read_code(
    directory: Path | None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    dependencies: Sequence[Path] = (),
    *,
    entry_point: str | None = None,
) -> CodeArchive:
    """Find and hash the files to send: the user's folder with its dependencies, the bundled scripts and the library.

    Args:
        directory: The user's folder; None if only the bundled scripts are sent.
        include: Patterns as in a `.gitignore` for files to send although another rule leaves them out.
        exclude: Patterns for files to leave out.
        dependencies: Files and folders that are put beside the folder's own files, each under its base name.
        entry_point: The script that is run; only `launch measure` and `launch reshard` need their scripts and the library's tools.

    Raises:
        CodeError: The folder or a dependency is missing, too large, or has files that cannot be sent.
    """
    roots = []
    if directory is not None:
        if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises for a path that is too long
            near = did_you_mean_path(directory, Path.is_dir)
            remedy = "write the path of the folder that holds the entry point"
            raise CodeError(f"{directory} is not a folder{near}; {remedy}")
        roots.append(_folder(("directory",), directory, FileRules(directory, include, exclude)))
    for index, path in enumerate(dependencies):
        with _reported_at("dependencies", index) as key:
            roots.append(_dependency(path, include, exclude, key))
    _refuse_clashes(roots)
    _refuse_too_much(roots)
    secrets: list[str] = []
    files: list[CodeFile] = []
    for root in roots:
        with _reported_at(*root.key):
            keys: list[str] = []
            files += [_hashed(file, secrets if file.is_included else keys) for file in root.files]
            _refuse_private_keys(keys)
            secrets += keys
    scripts = {f"{contract.SCRIPTS_DIR}/{path.name}": str(path) for path in SCRIPTS.glob("*.py")}
    has_tools = entry_point in contract.TOOLS
    files += [_bundled(name, path) for name, path in scripts.items() if has_tools or name not in contract.TOOLS]
    library = str(Path(contract.__file__).parent)
    for folder, below, names in os.walk(library):  # pathlib's rglob takes four times as long
        if folder == library and not has_tools:
            below.remove(contract.TOOLS_DIR)
        within = contract.LIBRARY + folder.removeprefix(library)
        files += [_bundled(f"{within}/{name}", f"{folder}/{name}") for name in names if name.endswith(".py")]
    files.sort(key=lambda file: file.name)
    rules = [root.rules for root in roots if root.rules]
    left_out = sorted(chain.from_iterable(each.left_out for each in rules))
    skipped = sorted(chain.from_iterable(each.skipped for each in rules))
    own = None if directory is None else rules[0]
    return CodeArchive(tuple(files), tuple(sorted(secrets)), tuple(left_out), tuple(skipped), own)


@contextmanager
def _reported_at(*key: str | int) -> Iterator[errors.SpecPath]:
    """Let a CodeError about the files of one folder name the key of that folder."""
    try:
        yield key
    except CodeError as error:
        error.path = key if error.path == ("directory",) else error.path
        raise


def _folder(key: errors.SpecPath, path: Path, rules: FileRules) -> _Root:
    files = list(islice(rules.walk(), MAX_FILES + 1))
    if rules.outside:
        what = f"{path}: a link would send what is outside of this folder: {first_names(sorted(rules.outside))}"
        remedy = "name it in code.include to follow it, or in code.exclude to leave it out"
        raise CodeError(f"{what}; {remedy}", "code-link-outside", key)
    return _Root(key, path, files, rules)


def _dependency(path: Path, include: Sequence[str], exclude: Sequence[str], key: errors.SpecPath) -> _Root:
    """Return a file, or the files of a folder, under the base name of `path`."""
    base = Path(os.path.abspath(path)).name  # noqa: PTH100 - resolves `..`, but not links
    is_file = os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a path that is too long
    if not is_file and not os.path.isdir(path):  # noqa: PTH112 - as above
        near = did_you_mean_path(path)
        raise CodeError(f"{path}: is neither a file nor a folder{near}; correct the path")
    end = "" if is_file else "/"
    rules = FileRules(path, include, exclude, f"{base}/")
    is_included = rules.includes(base + end)
    if not is_included and any(is_secret_path(f"{each}{end}") for each in (base, os.path.realpath(path))):
        remedy = f"if it has to be sent, add {base}{end} to code.include too"
        raise CodeError(f"{path}: usually holds secrets; {remedy}", "code-secret-file", key)
    if not is_file:
        return _folder(key, path, rules)
    file = CodeFile(base, str(path), os.access(path, os.X_OK), path.stat().st_size, is_included=is_included)
    return _Root(key, path, [file])


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


def _bundled(name: str, path: str) -> CodeFile:
    return _hashed(CodeFile(_BUNDLE + name, path, False, os.stat(path).st_size), None)  # noqa: PTH116 - as above


def _hashed(found: CodeFile, secrets: list[str] | None) -> CodeFile:
    """Return the file with its digest, and add the places of secrets in it to `secrets`."""
    sha, size, line, before = hashlib.sha256(), 0, 0, b""
    places: dict[str, None] = {}  # each once, since pieces overlap
    with _opened(found) as opened:
        while piece := _read(opened, found):
            if secrets is not None and size < _SEARCHED:
                text = before + piece
                places |= {f"{found.name}:{line + at} ({what})": None for at, what in secrets_in(text)}
                before = text[-OVERLAP:]
                line += text.count(b"\n", 0, len(text) - len(before))
            sha.update(piece)
            size += len(piece)
            if size > found.size:  # it is growing, perhaps endlessly
                break
    if size != found.size:
        raise found.changed()
    if secrets is not None:
        secrets += places
    return found._replace(sha256=sha.hexdigest())


def _refuse_private_keys(secrets: Sequence[str]) -> None:
    if keys := [each for each in secrets if each.endswith(f"({PRIVATE_KEY})")]:
        message = (
            f"{first_names(keys)} would be sent with the code; move it elsewhere, leave its file out with code.exclude"
        )
        raise CodeError(f"{message}, or name the file in code.include", "code-secret-file")


def _opened(file: CodeFile) -> BinaryIO:
    try:
        return open(file.path, "rb", buffering=0)  # noqa: PTH123 - a Path takes as long as the reading
    except OSError as error:
        raise unreadable(file.path, error) from None


def _read(opened: BinaryIO, file: CodeFile) -> bytes:
    try:
        return opened.read(_PIECE)
    except OSError as error:
        raise unreadable(file.path, error) from None
