"""The prose of the code: docstrings, comments and YAML files use few of the words that readers stumble over.

The limits are per 1,000 words, as measured in well-written projects (botocore, httpx, s3torchconnector). Code is not
counted, nor are strings, so a word that a limit leaves some room for can still be right.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("launcher", "entrypoints", "tests", "channel_specs")
WORDS = {  # what is searched for: how often it may occur in 1,000 words, and what to write instead
    r"\b(tell|tells|told|telling)\b": (0.15, "report, log, warn, return, raise; pass, state"),
    r"\bwhere (it|there|no|none|nothing)\b": (1.4, "if, unless it is about a place"),
    r"\b(whoever|nobody|somebody)\b": (0.1, "the caller, the reader, the user, another process, no process"),
    r"\b(brings|lies|stands)\b(?! for\b)": (0.3, "yields, returns, sends; is stored, is at"),
    r"\b(mend|mends|mended|anew|thereby)\b": (0.0, "fix; again; so"),
    r"\bis none of\b|\btakes? it for\b": (0.0, "is not one of; treats it as"),
}


def prose(source: str, *, is_code: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line; of code, only of docstrings, attributes' docstrings and comments."""
    if not is_code:
        yield from enumerate(source.split("\n"), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from enumerate(node.value.value.split("\n"), node.lineno)


def files() -> Iterator[Path]:
    """Yield the Python and YAML files, without this one, which has to name the words."""
    for path in sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*")):
        if path.suffix in (".py", ".yaml") and path != Path(__file__):
            yield path


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, str]]:
    """Return each line of prose in lower case, with its place as `file:line`."""
    return [
        (f"{path.relative_to(ROOT)}:{number}", line.lower())
        for path in files()
        for number, line in prose(path.read_text(), is_code=path.suffix == ".py")
    ]


@pytest.mark.parametrize("pattern", WORDS)
def test_words_readers_stumble_over_stay_rare(pattern: str, lines: list[tuple[str, str]]) -> None:
    limit, instead = WORDS[pattern]
    found = [f"{place}: {line.strip()}" for place, line in lines if re.search(pattern, line)]
    words = sum(len(re.findall(r"[a-z']+", line)) for _, line in lines)
    allowed = int(limit * words / 1000)
    assert len(found) <= allowed, "\n".join(
        [f"{len(found)} lines with {pattern!r} in {words:,} words, at most {allowed}; write: {instead}", *found]
    )


def test_no_variable_is_called_told() -> None:
    """A name says what the value is: settings, message, log, answer."""
    assert [str(path) for path in files() if re.search(r"(?<!\\)\btold\b", path.read_text())] == []


def test_messages_name_no_file_that_only_a_checkout_has() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in files()
        if path.suffix == ".py" and path.name != "bundled.py" and "tests" not in path.relative_to(ROOT).parts
        for parent in ast.walk(ast.parse(path.read_text()))
        if not isinstance(parent, ast.Expr)  # a docstring
        for node in ast.iter_child_nodes(parent)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"\b(docs|tests|channel_specs)/\w|`make ", node.value)
    ]
    assert found == []


def test_prose_is_comments_and_docstrings_and_no_other_text() -> None:
    source = (
        '"""A module."""\nx = "told"  # mend it\n\n\nclass C:\n    y = 1\n    """Where it lies,\n    nobody knows."""\n'
    )
    assert sorted(prose(source)) == [
        (1, "A module."),
        (2, "# mend it"),
        (7, "Where it lies,"),
        (8, "    nobody knows."),
    ]
