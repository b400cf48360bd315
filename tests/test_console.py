"""What reaches a terminal: the job's colours and ours, where they are wanted, and nothing else."""

from __future__ import annotations

import tempfile

import pytest

from launcher.console import rich_console, without_orders


def test_a_jobs_lines_give_a_terminal_no_orders() -> None:
    said = "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07 \x1b[1;1Hup\x9b2J\tat\x08 10%\r 20%\x1bc\x00 Straße\x1b"
    assert without_orders(said) == "\x1b[31mred\x1b[0m up\tat 10%  20% Straße"


def test_no_colour_is_no_style_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for colour, styled in ((False, False), (None, True)):
        monkeypatch.setattr("launcher.console.COLOUR", colour)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        with tempfile.TemporaryFile("w+") as file:
            file.isatty = lambda: True  # type: ignore[method-assign]
            rich_console(file).print("[bold red]title[/]")
            file.seek(0)
            assert ("\x1b[" in file.read()) is styled
