"""Output on a terminal: the job's colours and ours unless they are off, and no other controls."""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from typing import Literal

import pytest

from launcher.console import (
    Console,
    json_text,
    last_state,
    plain,
    print_line,
    rich_console,
    say,
    show_problems,
    without_controls,
)
from launcher.errors import Location, Problem

EVIL = "\x1b]0;title\x07a\x1b[2J\x9b2J\x9d0;title\x9cb\x1bc\x08\x1b[8mc"


class Terminal(io.StringIO):
    """A terminal that counts its writes."""

    writes = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[Console, Terminal]:
    found = Terminal()  # in the test itself: pytest sets both streams again after the fixtures
    monkeypatch.setattr(sys, "stdout", found)
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr("launcher.console.COLOUR", False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    return Console(), found


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows after a text; a cleared line is written again from its start."""
    return [line.rpartition("\r\x1b[K")[2] for line in text.split("\n")]


def test_lines_of_a_host_are_printed_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    console, terminal = on_a_terminal(monkeypatch)
    console.log("algo-1 |", [f"line {number}" for number in range(1000)], "cyan")
    assert terminal.writes == 1
    assert terminal.getvalue().count("\n") == 1000


def test_progress_bar_is_one_updating_line_below_others(monkeypatch: pytest.MonkeyPatch) -> None:
    console, terminal = on_a_terminal(monkeypatch)
    console.log("algo-1 |", ["start"], "cyan", state="10%")
    console.log("algo-1 |", [], "cyan", state="20% " + "#" * 50)
    assert screen(terminal.getvalue()) == ["algo-1 | start", "algo-1 | 20% ################"]
    console.log("algo-2 |", ["hello"], "cyan")
    console.say("stopping")
    assert screen(terminal.getvalue())[1:] == ["algo-2 | hello", "stopping", "algo-1 | 20% ################"]
    console.log("algo-1 |", ["100%"], "cyan")
    assert screen(terminal.getvalue())[1:] == ["algo-2 | hello", "stopping", "algo-1 | 100%", ""]


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (b"a\r b\rc", b"c"),
        (b"100%\r", b"100%"),
        (b"50%\r   \r", b"50%"),
        (b"plain", b"plain"),
        (b"\r", b""),
        (b"", b""),
    ],
)
def test_last_state_is_the_last_part_that_is_not_blank(line: bytes, state: bytes) -> None:
    assert last_state(line) == state


def test_terminal_controls_are_removed_from_lines() -> None:
    said = "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07 \x1b[1;1Hup\x9b2J\tat\x08 10%\r 20%\x1bc\x00 Straße\x1b"
    assert without_controls(said) == "\x1b[31mred\x1b[0m up\tat 10%  20% Straße"
    assert plain(f"{said}\r\nnext") == "red up\tat 10%  20% Straße \nnext"


def test_terminal_string_without_an_end_does_not_hide_the_rest() -> None:
    assert plain("a\x1b]0;b\nc\x9d0;d") == "a0;b\nc0;d"


def test_colours_end_with_their_line() -> None:
    for red in ("\x1b[31mred", "\x1b[0m\x1b[1;31mred"):
        assert without_controls(red) == f"{red}\x1b[0m"
    for ended in ("\x1b[31mred\x1b[0m.", "\x1b[31mred\x1b[m.", "no colour"):
        assert without_controls(ended) == ended


def test_removing_controls_takes_time_by_length() -> None:
    """Each of a million parts begins a sequence: searching the rest for the end of each would take days."""
    for begun in ("\x9d", "\x1b]a", "\x1b[1", "\x9b", "\x1b "):
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", plain(begun * 1_000_000))


def test_messages_and_results_have_no_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    console, terminal = on_a_terminal(monkeypatch)
    monkeypatch.setattr("launcher.console.COLOUR", True)
    console.say(EVIL, "red")
    console.warn(EVIL)
    say(EVIL)
    print_line(EVIL)
    red, yellow, reset = "\x1b[31m", "\x1b[33m", "\x1b[0m"
    expected = [f"{red}abc{reset}", f"{yellow}warning: abc{reset}", "abc", "abc", ""]
    assert terminal.getvalue().split("\n") == expected
    console.log(EVIL, [EVIL], "red", state=EVIL)
    prefix, line, state = f"{red}abc{reset}", f"ab\x1b[8mc{reset}", "abc"
    assert terminal.getvalue().split("\n")[-2:] == [f"{prefix} {line}", f"{prefix} {state}"]


def test_json_keeps_letters_and_escapes_controls() -> None:
    text = json_text({"line": f"Straße {EVIL}"})
    assert "Straße" in text
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", text)
    assert json.loads(text) == {"line": f"Straße {EVIL}"}


def test_output_without_colours_has_no_style(monkeypatch: pytest.MonkeyPatch) -> None:
    for colour, styled in ((False, False), (None, True)):
        monkeypatch.setattr("launcher.console.COLOUR", colour)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        with tempfile.TemporaryFile("w+") as file:
            file.isatty = lambda: True  # type: ignore[method-assign]
            rich_console(file).print("[bold red]title[/]")
            file.seek(0)
            assert ("\x1b[" in file.read()) is styled


def test_of_many_equal_warnings_three_are_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    def problem(number: int, code: str, severity: Literal["warning", "error"] = "warning") -> Problem:
        line = Location("job.yaml", number, 3, f"  h{number}: 1")
        return Problem(("hyperparameters", f"h{number}"), "is odd; delete it", code, severity, line)

    show_problems([problem(number, "odd-value") for number in range(1, 99)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "warning: job.yaml:1:3: hyperparameters.h1: is odd; delete it [odd-value]",
        "    1 |   h1: 1",
        "      |   ^",
    ]
    assert len(lines) == 10
    keys = ", ".join(f"hyperparameters.h{number}" for number in range(4, 12))
    assert lines[9] == f"warning: 95 more at {keys} and 87 more; `launch --explain odd-value` explains them [odd-value]"
    show_problems(
        [problem(1, "one-code"), problem(2, "other-code"), problem(3, "third-code"), problem(4, "fourth-code")]
    )
    assert len(capsys.readouterr().err.splitlines()) == 12
    show_problems([problem(number, "wrong-value", "error") for number in range(1, 99)])
    assert len(capsys.readouterr().err.splitlines()) == 3 * 98  # each is to be corrected
