"""Files that are easy to get wrong in YAML: each is one problem, at its place, with the remedy, or is sent as written."""

from __future__ import annotations

import re
import time
from random import Random

import pytest

import launcher
from launcher import SpecError, bundled, parse_spec
from launcher.errors import MAX_REPORTED
from launcher.rules.examples import BASE as SPEC

E = "environment:\n"  # line 8 of the file
# The text after SPEC, the location of its only problem, and a piece of the message.
TROUBLE: list[tuple[str, str, str]] = [
    # keys
    ("base_name: b\n", "8:1", "first time on line 1"),
    (E + "  A: 1\n  A: 2\n", "10:3", "first time on line 9"),
    (E + "  A: 1\n  'A': 2\n", "10:3", "written twice"),
    ("environment: {A: 1, A: 2}\n", "8:21", "delete one"),
    (E + "  <<: {A: 1, A: 2}\n", "9:14", "written twice"),
    (E + "  <<: {A: 1}\n  <<: {B: 2}\n", "10:3", "<<: [*one, *two]"),
    (E + "  <<: text\n", "9:7", "takes a mapping"),
    (E + "  null: x\n", "9:3", "in quotes if it is null"),
    (E + "  ? [a]\n  : x\n", "9:5", "a list cannot be a key"),
    ("environment: {: x}\n", "8:15", "no value between two signs"),
    ('environment: {"A\\nB": x}\n', "8:15", "a key cannot hold a line break"),
    ('"a\\e[31mb": x\n', "8:1", "control character"),
    (E + "  " + "A" * 2000 + ": x\n", "9:1", "more than 1,024 characters"),
    # colons
    (E + "  A:1\n  B: 2\n", "9:3", "write `A: 1`"),
    (E + "  A:1\n  B:2\n  C: 3\n", "9:3", "write `A: 1`"),
    (E + "  A:1\n", "9:3", "write a space after its ':'"),
    (E + "  B: 2\n  A:1\n", "10:3", "write `A: 1`"),
    (E + "  A:1  # one: two\n  # three: four\n  B: 2\n", "9:3", "write `A: 1`"),
    ("environment: {A:1, B: 2}\n", "8:15", "write `A: 1`"),
    (E + "  A=1\n  B: 2\n", "9:3", "has '=' instead of ': '"),
    (E + "  A：1\n  B: 2\n", "9:3", "wide colon"),
    (E + "  A:\u00a01\n  B: 2\n", "9:3", "U+00A0 after its ':'"),
    (E + "  A: b: c\n", "9:7", "put the whole text in quotes"),
    (E + "  A: “x: y”\n", "9:8", "“ is not a quote to YAML"),
    # indentation, lists, brackets
    (E + "\tA: 1\n", "9:1", "spaces only"),
    (E + "  \tA: 1\n", "9:3", "spaces only"),
    (E + "    A: 1\n  B: 2\n", "10:3", "unlike any line above"),
    (E + "  A: 1\n    B: 2\n", "10:6", "which has a value already"),
    (E + "  A: 1\n  - b\n", "10:3", "a list item among `key: value` lines"),
    ("container_arguments:\n  - a\n  b: c\n", "10:3", "begin it with '- '"),
    ("container_arguments:\n  - a\n    - b\n", "10:5", "continues the text above"),
    ("container_arguments: - a\n", "8:22", "on the next line"),
    ("container_arguments:\n  -a\n  -b\n", "9:3", "write a space after"),
    ("container_arguments:\n  — a\n", "9:3", "list with '- '"),
    ("container_arguments: [a, b\nregion: eu-west-1\n", "8:22", "write ']' at its end"),
    ("environment: {A: 1, B: 2\n", "8:14", "write '}' at its end"),
    ("environment: {A: 1]\n", "8:19", "with ']'; write '}'"),
    ("environment: {A: 1}}\n", "8:20", "one '}' too many"),
    ("environment: {A: 1 B: 2}\n", "8:21", "needs a ','"),
    ("container_arguments: [a,, b]\n", "8:25", "no value between two signs"),
    # quotes and other signs
    (E + "  A: 'x\n  B: y\n", "9:6", "is not closed"),
    (E + "  A: 'it's'\n", "9:10", "write '' for a '"),
    (E + '  A: """"\n', "9:8", 'write \\" for a "'),
    (E + "  A: &a &a x\n", "9:9", "a second anchor after &a"),
    (E + '  A: "\\d+"\n', "9:7", "write \\\\ for a backslash"),
    (E + '  A: "x\\0y"\n', "9:6", "NUL"),
    (E + "  A: “x”\n", "9:6", "not a quote to YAML"),
    (E + "  A: @x\n", "9:6", "put the text in quotes"),
    (E + "  A: *.tar\n", "9:6", "put the text in quotes"),
    (E + "  A: | grep x\n", "9:6", "put the text in quotes"),
    (E + "  A: |\n  text\n", "10:3", "deeper than their key"),
    (E + "  A: #ff0000\n", "9:3", "' #' begins a comment"),
    # characters
    (E + "  A: x\0y\n", "9:7", "U+0000"),
    (E + "  A: x\x1b[31my\n", "9:7", "U+001B"),
    (E + "  A: x\x9by\n", "9:7", "U+009B"),
    (E + "  A: x\u0085y\n", "9:7", "write \\N in double quotes"),
    (E + "  A: 'x\u2028y'\n", "9:8", "write \\L in double quotes"),
    (E + "  A: x\ry\n", "9:7", "carriage return"),
    (E + "  A: \ufeffx\n", "9:6", "byte order mark"),
    (E + "  A: \u00a01\n", "9:6", "no-break space"),
    (E + "  A: x\u200b\n", "9:6", "zero width space"),
    ("\u00a0\u00a0region: eu-west-1\n", "8:1", "no-break space"),
    # tags, aliases, documents
    ("environment: {A: !!python/object/apply:os.system [ls]}\n", "8:18", "!!python/object/apply:os.system"),
    ("environment: {A: !!binary aGVsbG8=}\n", "8:18", "!!binary"),
    ("environment: !!set {A, B}\n", "8:14", "!!set"),
    ("hyperparameters: {A: !!int abc}\n", "8:22", "!!int"),
    ("environment: {A: *nothing}\n", "8:18", "has no anchor above it"),
    ("environment: &e {A: *e}\n", "8:21", "inside the value that it names"),
    ("environment: &e\n  <<: *e\n", "9:7", "inside the value that it names"),
    ("---\nbase_name: b\n", "8:1", "a second document, but a file describes one job; move it to its own file"),
    ("...\nbase_name: b\n", "9:1", "delete lines of '...'"),
    # values
    ("hyperparameters: {a: null}\n", "8:19", "'null' in quotes"),
    ("retry_strategy: {maximum_retry_attempts: 0x1F}\n", "8:18", "write 31"),
    ("retry_strategy: {maximum_retry_attempts: 3.0}\n", "8:18", "write 3 "),
    ("retry_strategy: {maximum_retry_attempts: 12:30}\n", "8:18", "a whole number"),
    ("retry_strategy: {maximum_retry_attempts: " + "1" * 5000 + "}\n", "8:18", "5,000 digits"),
    ("enable_network_isolation: off\n", "8:1", "write false"),
    ("environment: {A: '${HOME'}\n", "8:15", "write $${"),
    ("environment: {A: '${}'}\n", "8:15", "${NAME:-text}"),
    ("environment: {A: '${A:-${B}}'}\n", "8:15", "${NAME:-text}"),
    ("environment: {A: ${HOME}}\n", "8:19", "put such a text in quotes"),
    ("extends: nothing.yaml\n", "8:1", "No such file"),
    ("extends: " + "a/" * 400_000 + "\n", "8:1", "more than 1,000 characters"),
    ("extends: [[a]]\n", "8:11", "a single text belongs here"),
]  # fmt: skip
# Whole files: the content, the location of the problem, and a piece of the message.
FILES: list[tuple[str | bytes, str, str]] = [
    ("", "1:1", "is empty"),
    ("# only\n", "1:1", "is empty"),
    ("---\n", "1:1", "is empty"),
    ("- a\n", "1:1", "is not a mapping"),
    ("hello\n", "1:1", "is not a mapping"),
    ("source:S3\nb: c\n", "1:1", "write `source: S3`"),
    ('{"base_name": "x"\n', "1:1", "write '}' at its end"),
    ("%YAML 2.0\n---\n" + SPEC, "1:1", "delete the line"),
    ("%TAG ! !a/\n---\n" + SPEC, "1:1", "delete the line"),
    (SPEC.encode("utf-16"), "1:1", "is UTF-16"),
    (SPEC.encode("utf-16-be"), "1:1", "is UTF-16"),
    (SPEC.encode("utf-32"), "1:1", "is UTF-32"),
    (f"{SPEC}region: éé".encode() + b"\xe9\n", "8:11", "the byte 0xE9"),
    (SPEC + "#" * 1_000_000, "1:1", "larger than 1,000,000 bytes"),
    ("a: " + "[" * 500, "1:53", "deeper than 50 levels"),
    ("- " * 10_000, "1:101", "deeper than 50 levels"),
    ("a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 400)), "1:10", "deeper than 50"),
    ("a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}}}\n" for i in range(1, 400)), "1:13", "deeper than 50"),
    ("a: [" + "x," * 400_000 + "]", "1:19999", "5,000"),
]  # fmt: skip


def the_one_problem(data: str | bytes) -> launcher.Problem:
    begun = time.process_time()
    with pytest.raises(SpecError) as caught:
        launcher.plan(parse_spec(data, "job.yaml", environ={"HOME": "/"}), name="one")
    assert time.process_time() - begun < 5  # 0.4 on a busy machine
    assert len(caught.value.problems) == 1, caught.value
    return caught.value.problems[0]


@pytest.mark.parametrize(("text", "place", "words"), TROUBLE)
def test_mistake_is_one_problem_at_its_place(text: str, place: str, words: str) -> None:
    problem = the_one_problem(SPEC + text)
    assert str(problem).startswith(f"job.yaml:{place}: ")
    assert words in problem.message + " "
    assert str(problem).isprintable()
    assert problem.location is not None
    assert problem.location.quoted().endswith("^")


@pytest.mark.parametrize(("data", "place", "words"), FILES)
def test_invalid_file_is_one_problem(data: str | bytes, place: str, words: str) -> None:
    problem = the_one_problem(data)
    assert str(problem).startswith(f"job.yaml:{place}: ")
    assert words in problem.message


@pytest.mark.parametrize(
    "data",
    [
        SPEC.encode("utf-8-sig"),
        SPEC.replace("\n", "\r\n"),
        SPEC.replace("\n", "\r"),
        "%YAML 1.1\n---\n" + SPEC + "...\n",
        SPEC.rstrip(),
    ],
)
def test_harmless_file_is_accepted(data: str | bytes) -> None:
    assert launcher.plan(parse_spec(data), name="one").request == launcher.plan(parse_spec(SPEC), name="one").request


def test_texts_are_sent_as_written() -> None:
    written = [
        "1_000",
        "012",
        "0o12",
        "0x1F",
        "1e-3",
        "12:30",
        "no",
        "y",
        ".inf",
        ".nan",
        "+1",
        "1.",
        "2024-13-45",
        "=",
    ]
    texts = {f"k{index}": each for index, each in enumerate(written)}
    lines = "".join(f"  {key}: {each}\t# said so\n" for key, each in texts.items())
    assert parse_spec(f"{SPEC}hyperparameters:\n{lines}").hyperparameters == texts
    spec = parse_spec(f"{SPEC}environment: {{yes: a#b, B: 50%, C: !!str 012, D: '$${{X}}', E: 'x “y”', F: \"\\L\"}}")
    assert spec.environment == {"yes": "a#b", "B": "50%", "C": "012", "D": "${X}", "E": "x “y”", "F": "\u2028"}


def test_thousands_of_problems_are_cut_to_a_hundred() -> None:
    begun = time.process_time()
    with pytest.raises(SpecError) as caught:
        parse_spec(SPEC + "".join(f"base_nam{index}: x\n" for index in range(4000)))
    assert time.process_time() - begun < 5  # 0.4 on a busy machine
    assert len(caught.value.problems) == MAX_REPORTED
    assert "3,900 more problems are not shown" in caught.value.problems[-1].message


PIECES = [
    ": ",
    "- ",
    "\n",
    "  ",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "<<: ",
    "? ",
    "'",
    '"',
    "#",
    "!",
    "!!str ",
]
PIECES += [
    "%",
    "@",
    "\\",
    "\r",
    "\xa0",
    "“",
    "\u2028",
    "\0",
    "---\n",
    "${",
    "${A}",
    "~",
    "extends: ",
    "request: ",
    "：",
    "😀",
]
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@pytest.mark.parametrize("seed", range(4))
def test_any_change_to_a_spec_yields_a_plan_or_problems(seed: int) -> None:
    """Bytes and pieces of YAML are inserted, removed and doubled; each result is a plan or problems that can be printed."""
    chance, planned = Random(seed), 0
    specs = [bundled.spec_path(name).read_bytes() for name in bundled.spec_names()]
    for _ in range(250):
        data = chance.choice(specs)
        for _ in range(chance.choice((1, 1, 2, 5))):
            at, other = chance.randrange(len(data)), chance.randrange(len(data))
            piece = chance.choice([chance.choice(PIECES).encode(), bytes([chance.randrange(256)]), data[other:][:40]])
            data = data[:at] + piece + data[at + chance.choice((0, 0, 1, 3)) :]
        try:
            planned += bool(launcher.plan(parse_spec(data, "job.yaml", environ={"A": "x"}), name="one"))
        except SpecError as error:
            assert error.problems
            for problem in error.problems:
                assert problem.location is not None
                assert not CONTROL.search(str(problem)), problem
                problem.location.quoted()
    assert planned  # otherwise the changes are too large to prove anything
