"""`launch lst` as a function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher import cli


class Launch:
    """`launch lst` in this process: its exit code and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str | Path, code: int = 0) -> str:
        with pytest.raises(SystemExit) as end:
            cli.main(["lst", *map(str, words)])
        printed = self._capsys.readouterr()
        assert end.value.code == code, printed
        return printed.err if code == 2 else printed.out + printed.err

    def json(self, *words: str | Path, code: int = 0) -> Any:
        with pytest.raises(SystemExit) as end:
            cli.main(["lst", *map(str, words), "--json"])
        assert end.value.code == code
        return json.loads(self._capsys.readouterr().out)
