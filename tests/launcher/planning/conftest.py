"""A job with code in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import launcher
from launcher import SpecError
from launcher.rules.examples import laid_over_base


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return the path of a spec whose code is one script."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('training')\n")
    (tmp_path / "job.yaml").write_text(laid_over_base("code: {directory: src, entry_point: train.py}"))
    return tmp_path / "job.yaml"


@pytest.fixture
def problems_of(job: Path) -> Callable[..., list[str]]:
    """Return a function: the overlay of a job that cannot be planned -> its problems, without the file's name."""

    def problems(overlay: str, name: str | None = "one", **variables: str) -> list[str]:
        job.write_text(laid_over_base(overlay))
        with pytest.raises(SpecError) as caught:
            launcher.plan(launcher.load(job, environ=variables), name=name)
        return [str(problem).replace(f"{job}:", "") for problem in caught.value.problems]

    return problems
