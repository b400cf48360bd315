"""What a measure.json says to the model of advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.advice.facts import Observed
from launcher.errors import InputError
from launcher.survey.observed import read_measured


def way(name: str, seconds: float, **more: Any) -> dict[str, Any]:
    """Return a way that read 1,000 samples of 40 kB in this time."""
    run = {"samples": 1000, "seconds": seconds, **more}
    return {"name": name, "title": name, "row": 1, "error": None, "samples": 1000, "bytes": 40_000_000, "runs": [run]}


def results(*ways: dict[str, Any], form: str = "objects", step: str | None = None) -> dict[str, Any]:
    settings = {"format": form, "batch_size": 4, "num_workers": 4, "rounds": 1, "step": step}
    return {**settings, "machine": {"date": "2026-11-22"}, "ways": list(ways)}


OTHER = "was not written by this version of `launch measure`"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "measure.json"


def test_small_objects_show_the_time_per_object(file: Path) -> None:
    file.write_text(json.dumps(results(way("file", 1), way("fast-file", 20), way("connector-iterable", 2))))
    assert read_measured(file) == Observed(latency_s=0.08, source=f"{file}, measured on 2026-11-22")


def test_shards_show_the_bytes_per_second_of_the_fastest_way(file: Path) -> None:
    file.write_text(json.dumps(results(way("file", 1), way("fast-file", 20), way("connector-tar", 2), form="tar")))
    assert read_measured(file) == Observed(bytes_per_s=2e7, streams=64, source=f"{file}, measured on 2026-11-22")


def test_workers_of_the_fastest_way_are_the_streams(file: Path) -> None:
    file.write_text(json.dumps(results(way("fast-file", 20), form="tar")))
    assert read_measured(file) == Observed(bytes_per_s=2e6, streams=4, source=f"{file}, measured on 2026-11-22")


def test_step_shows_how_fast_the_model_is(file: Path) -> None:
    found = results(way("fast-file", 20, cached_step=0.5), way("file", 10, cached_step=0.5), step="train:step")
    file.write_text(json.dumps(found))
    assert read_measured(file) == Observed(samples_per_s=8, source=f"{file}, measured on 2026-11-22")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file or directory; correct the path"),
        ("[]", OTHER),
        ("{}", OTHER),
        ("time,speed\n", OTHER),
        ("[" * 100_000, OTHER),
        (json.dumps({"ways": [way("fast-file", 1)]}), OTHER),
        (json.dumps(results(way("fast-file", 0))), OTHER),
        (json.dumps(results(way("file", 1))), "no way that reads S3 was measured; measure fast-file"),
    ],
)
def test_other_file_is_refused(file: Path, text: str | None, message: str) -> None:
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_measured(file)
    assert str(caught.value).startswith(f"--measured {file}: {message}")
