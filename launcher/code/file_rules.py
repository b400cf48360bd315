"""The choice of files of a code folder that are sent with the job, by names and `stat`, before any content is read.

Caches, files that hold secrets by their names (`secrets`), and files that `code.exclude`, a `.launchignore` or a `.gitignore`
matches are left out. A `.gitignore` counts if the folder is in a git work tree, from the tree's root down. As in git, the file
nearest to a name decides, and a `.launchignore` outranks every `.gitignore`; unlike in git, a file that is tracked although
it is ignored is left out. `code.include` outranks all of these.

Links are followed, and the rules apply to the names on both of their sides. One that leads out of the folder could send any
file of the machine, so it is refused, unless `code.include` names it or leads through it.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from launcher import errors
from launcher.bundled import SCHEMA_FILE
from launcher.code.secrets import is_secret_path

_CACHES = (
    *("__pycache__", "*.pyc", ".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".launch", SCHEMA_FILE, ".#*"),
    *(".ipynb_checkpoints", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".DS_Store", "*.egg-info", ".env*"),
)
_BY_RULES, _INCLUDED = "", "included"  # fates of files that are sent
_SECRET = "is left out by default, since it usually holds secrets"


class CodeError(errors.RefusedError):
    """The code cannot be sent as it is; `path`, below the spec's `code`, is the key to correct."""

    def __init__(self, message: str, code: str = "code-unreadable", path: errors.SpecPath = ("directory",)) -> None:
        super().__init__(message)
        self.code, self.path = code, path


class CodeFile(NamedTuple):
    """A file to send, with facts from `stat`."""

    name: str  # below the code folder, with slashes
    path: str
    executable: bool
    size: int  # bytes
    sha256: str = ""  # in hex, once the content is read
    is_included: bool = False  # whether `code.include` asks to send it


class _Patterns:
    """The patterns of one .gitignore file, or of one key of a spec, matched against single entries while their folders are walked.

    `pathspec` compiles the lines, but it matches whole paths: a pattern that matches a folder also matches everything below it,
    which git leaves to the walk. Only such a match fills the one group of its expressions.
    """

    def __init__(self, lines: Sequence[str], root: str, file: Path | None = None) -> None:
        """Compile the lines, which hold below the folder `root`; lines that are not patterns match nothing, and are in `wrong`."""
        self._root, self.file, self.wrong = root, file, list[str]()
        self._patterns = []
        for line in (line for line in map(str.rstrip, lines) if line and not line.startswith("#")):
            from pathspec import GitIgnoreSpec  # takes 20 ms, and most folders have no patterns

            bare = line[:-1] if line.endswith("/") and line.strip("!/") else line
            try:
                self._patterns.append((line, bare, GitIgnoreSpec.from_lines([bare]).patterns[0]))
            except ValueError:
                self.wrong.append(line)

    def verdict(self, path: str) -> tuple[bool | None, str]:
        """Return whether `path`, with a final slash for a folder, is matched itself (None: by no line), and the deciding line."""
        inner = path.removeprefix(self._root)
        name = inner.rstrip("/")
        for line, bare, pattern in reversed(self._patterns) if name and inner != path else ():
            if (line == bare or name != inner) and (found := pattern.match_file(name)) and not found.match.lastindex:
                return pattern.include, line
        return None, ""


def _ignored(path: str, ignoring: Sequence[_Patterns]) -> str:
    """Return why ignore files, the first to decide first, leave a path out; an empty text if they do not."""
    for patterns in ignoring:
        ignored, line = patterns.verdict(path)
        if ignored is not None:
            return f"is left out by {line!r} in {patterns.file}" if ignored else ""
    return ""


class FileRules:
    """The rules that decide which files of one code folder are sent.

    After the walk, `left_out` has the names that look like secrets, `skipped` those that are not regular files, and `outside` the
    links that lead out of the folder and are not in `code.include`.
    """

    def __init__(
        self, directory: Path, include: Sequence[str] = (), exclude: Sequence[str] = (), prefix: str = ""
    ) -> None:
        """Read the spec's patterns; the folder's files are sent with `prefix` before their names.

        Raises CodeError for a wrong pattern.
        """
        self._directory, self._prefix, self._include_lines = str(directory), prefix, include
        self._root = f"{Path(os.path.realpath(directory)).as_posix().rstrip('/')}/"  # git's slashes, on Windows, too
        self._include, self._exclude = (
            _spec_patterns(key, lines, self._root) for key, lines in (("include", include), ("exclude", exclude))
        )
        self._why: dict[str, str] = {}  # file or folder that the walk has met and left out -> the reason
        self._ignore_files = {".launchignore"}
        self.left_out: list[str] = []
        self.skipped: list[str] = []
        self.outside: list[str] = []

    def walk(self) -> Iterator[CodeFile]:
        """Yield every file to send, in no particular order. Links into a folder that is being walked are not followed.

        Raises CodeError for a file that cannot be sent.
        """
        ignoring = self._ignore_files_above()
        return self._below(self._directory, "", _BY_RULES, os.path.realpath(self._directory), ignoring)

    def _below(
        self, folder: str, name: str, fate: str, root: str, ignoring: tuple[_Patterns, ...], above: tuple[str, ...] = ()
    ) -> Iterator[CodeFile]:
        """Yield the files to send of a folder, whose `fate` is known and whose links may not leave `root`."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise unreadable(folder, error) from None
        if (real_folder := os.path.realpath(folder)) in above:
            return
        files = [Path(entry.path) for entry in entries if entry.name in self._ignore_files and entry.is_file()]
        found = [*(_Patterns(_lines(file), self._root + name, file) for file in files), *ignoring]
        # A .launchignore decides before a .gitignore, and else the nearest file.
        ignoring = tuple(sorted(found, key=lambda each: str(each.file).endswith(".gitignore")))
        for entry in entries:
            status = _status(entry)
            is_folder = status is not None and stat.S_ISDIR(status.st_mode)
            path, inner_root, real = f"{name}{entry.name}{'/' * is_folder}", root, f"{real_folder}/{entry.name}"
            own = self._fate(path, fate, ignoring)
            if entry.is_symlink():
                real = os.path.realpath(entry.path)
                if status is not None and not Path(real).is_relative_to(root):
                    inner_root, own = real, self._fate_of_link_out(path, real, own, is_folder)
            if own == _BY_RULES and is_secret_path(real + "/" * is_folder):
                own = _SECRET
            if not (is_sent := own in (_BY_RULES, _INCLUDED)):
                self._why[path.rstrip("/")] = own
            shown = self._prefix + path
            if is_folder and (is_sent or self._leads_below(path)):
                yield from self._below(entry.path, path, own, inner_root, ignoring, (*above, real_folder))
            elif is_sent and status is not None and stat.S_ISREG(status.st_mode):
                if not path.isprintable():
                    raise CodeError(f"{path!r} in {folder}: a file of this name cannot be sent; rename it")
                is_executable, is_included = bool(status.st_mode & 0o100), own == _INCLUDED
                yield CodeFile(shown, entry.path, is_executable, status.st_size, is_included=is_included)
            elif is_sent:
                what = "not a regular file" if status else "a broken link"
                self.skipped.append(f"{shown if path.isprintable() else repr(shown)} ({what})")
            elif own == _SECRET:
                self.left_out.append(shown)

    def includes(self, name: str) -> bool:
        """Return whether a pattern of `code.include` matches a file, or a folder if `name` ends in a slash."""
        return bool(self._include.verdict(self._root + name)[0])

    def _leads_below(self, folder: str) -> bool:
        return any(_may_match_below(pattern, folder) for pattern in self._include_lines)

    def _fate_of_link_out(self, path: str, real: str, fate: str, is_folder: bool) -> str:
        """Return the fate of a link that leads out of the folder, and note it if it is refused.

        The rules hold again below a folder that `code.include` names: an included folder may have secrets beside its code.
        """
        if fate not in (_BY_RULES, _INCLUDED):
            return fate
        if self.includes(path):
            return _BY_RULES if is_folder else _INCLUDED
        if not (is_folder and self._leads_below(path)):
            self.outside.append(f"{self._prefix}{path.rstrip('/')} -> {real}")
        return "is behind a link that leads out of the folder"

    def why_left_out(self, name: str) -> str | None:
        """Return why a file of the code folder has not been sent, or the folder that it is in; None if no rule left it out."""
        return next((self._why[each] for each in (name, *map(str, Path(name).parents)) if each in self._why), None)

    def _fate(self, path: str, above: str, ignoring: Sequence[_Patterns]) -> str:
        """Return the fate of a file, or of a folder if `path` ends in a slash: `_BY_RULES`, `_INCLUDED`, or why it is left out.

        `above` is the fate of the folder around it.
        """
        included, line = self._include.verdict(self._root + path)
        if included or (above == _INCLUDED and included is None):
            return _INCLUDED
        if above:
            return f"is left out by {line!r} in code.include" if above == _INCLUDED else above
        if is_secret_path(path):
            return _SECRET
        if any(fnmatch.fnmatchcase(path.rstrip("/").rpartition("/")[2], pattern) for pattern in _CACHES):
            return "is left out by default"
        if self._exclude.verdict(self._root + path)[0]:
            return "is left out by code.exclude"
        return _ignored(self._root + path, ignoring) or _BY_RULES

    def _ignore_files_above(self) -> tuple[_Patterns, ...]:
        """Return the .gitignore files above the folder in its git work tree, if it is in one, the nearest first.

        If they ignore the folder itself, none of them counts, since the spec asks to send it.
        """
        folder = Path(self._root)
        root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), None)
        if root is None:
            return ()
        self._ignore_files.add(".gitignore")
        parents = [each for each in folder.parents if each.is_relative_to(root)]
        files = [each / ".gitignore" for each in parents if (each / ".gitignore").is_file()]
        found = tuple(_Patterns(_lines(file), file.as_posix().removesuffix(file.name), file) for file in files)
        return () if any(_ignored(f"{each.as_posix()}/", found) for each in (folder, *parents[:-1])) else found


def _may_match_below(pattern: str, folder: str) -> bool:
    """Return whether a pattern of `code.include` can match a file in a folder that is left out.

    A pattern without a folder, such as `*.json`, does not: every cache would be searched.
    """
    steps, parts = pattern.strip("/").split("/"), folder.rstrip("/").split("/")
    for step, part in zip(steps, parts, strict=False):
        if step == "**":
            return steps[0] != "**"
        if not fnmatch.fnmatchcase(part, step):
            return False
    return len(steps) > len(parts)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError as error:
        if entry.is_symlink() or isinstance(error, FileNotFoundError):  # a broken link, or removed meanwhile
            return None
        raise unreadable(entry.path, error) from None


def unreadable(path: str, error: OSError) -> CodeError:
    return CodeError(f"{path}: cannot be read: {error.strerror}; make it readable, or leave it out with code.exclude")


def _spec_patterns(key: str, lines: Sequence[str], root: str) -> _Patterns:
    patterns = _Patterns(lines, root)
    if wrong := [line for line in lines if not line or line.rstrip() in patterns.wrong]:
        raise CodeError(f"{wrong[0]!r} is not a pattern as in .gitignore; correct it", "invalid-value", (key,))
    return patterns


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8-sig", "surrogateescape").split("\n")
    except OSError as error:
        raise unreadable(str(file), error) from None
