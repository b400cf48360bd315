"""Content types that are misspelt, or short names of formats: which are reported, and with which remedy."""

from __future__ import annotations

import mimetypes

import pytest

from launcher import parse_spec
from launcher.rules import find_problems
from launcher.rules.channels.content_types import MIME_TYPES
from launcher.rules.examples import laid_over_base

CODE = "code: {entry_point: %s}\n"
BUNDLED = CODE % "entrypoints/read_channels.py"


def train(keys: str) -> str:
    return f"channels: {{train: {{s3_uri: s3://bucket/train/, {keys}}}}}"


def problems(overlay: str) -> dict[str, str]:
    """Return the message of each problem by its code."""
    return {problem.code: problem.message for problem in find_problems(parse_spec(laid_over_base(overlay)))}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("application/tar", "application/x-tar"),
        ("text/cvs", "text/csv"),
        ("application/csv", "text/csv"),
        ("text/x-csv; header=present", "text/csv"),
        ("application/jsonl", "application/jsonlines"),
        ("application/x-ndjson", "application/jsonlines"),
        ("application/vnd.apache.parquet", "application/x-parquet"),
        ("application/tfrecords", "application/x-tfrecord"),
        ("application/x-record-io", "application/x-recordio"),
        ("image/jpg", "image/jpeg"),
    ],
)
def test_misspelt_content_type_is_a_warning_with_the_nearest(written: str, meant: str) -> None:
    overlay = train(f"content_type: {written}")
    assert problems(overlay)["channel-content-type"].endswith(f"is not a known content type; did you mean {meant}?")
    connector = overlay.replace("s3_uri", "source: S3Connector, s3_uri")
    assert problems(connector).keys() == {"channel-content-type"}


@pytest.mark.parametrize(
    "written",
    [
        *("application/json", "text/libsvm", "text/tsv", "application/x-image", "application/x-sagemaker-model", "csv"),
        *("application/x-npy", "application/x-hdf5", "application/geo+json", "application/gzip", "application/avro"),
        *(kind for kind in mimetypes.types_map.values() if kind.startswith(("image/", "audio/", "video/"))),
    ],
)
def test_other_content_type_is_allowed(written: str) -> None:
    assert not problems(train(f"content_type: {written}"))


@pytest.mark.parametrize("name", MIME_TYPES)
def test_short_name_is_a_warning_with_the_content_type(name: str) -> None:
    message = problems(CODE % "train.py" + train(f"content_type: {name}"))["channel-content-type"]
    assert f"write {MIME_TYPES[name]}" in message and f"format={name!r}" in message


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("text/csv; header=present", "csv; header=present"),
        ("text/csv;charset=utf-8; Delimiter=tab", "csv; delimiter=tab"),
        ("csv; header=present", "csv; header=present"),
    ],
)
def test_options_of_csv_are_a_warning_with_the_format_to_write(written: str, form: str) -> None:
    overlay = train(f'content_type: "{written}"')
    assert f"open_channel(..., format={form!r})" in problems(CODE % "train.py" + overlay)["channel-content-type"]
    assert not problems(overlay)  # of an image that may read them


def test_misspelt_short_name_is_a_warning_with_the_nearest_content_type() -> None:
    assert "did you mean text/csv?" in problems(BUNDLED + train("content_type: cvs"))["channel-content-type"]


@pytest.mark.parametrize("name", MIME_TYPES)
def test_short_name_in_a_pipe_is_treated_as_the_reader_does(name: str) -> None:
    """The bundled reader accepts short names, so only formats that cannot be found in a stream are errors."""
    unbounded = {"pipe-without-boundaries"} if name in ("zip", "parquet", "objects") else set()
    found = problems(BUNDLED + train(f"input_mode: Pipe, content_type: {name}"))
    assert found.keys() == unbounded
