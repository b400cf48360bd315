"""Output on a terminal: the job's colours and ours unless they are off, and no other controls."""

from __future__ import annotations

import io
import sys
import tempfile

import pytest

from launcher.console import Console, last_state, rich_console, without_controls


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
