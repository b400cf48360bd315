"""How a content type or a short name finds its format, and that the launcher knows the same formats."""

from __future__ import annotations

import pytest

from launcher.rules.channels.content_types import BOUNDED, MIME_TYPES, READ_FROM_END
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.formats import CONTENT_TYPES, SHORT_NAMES, format_of, objects, tar


@pytest.mark.parametrize("name", CONTENT_TYPES)
def test_content_type_is_recognised_in_any_case_and_with_parameters(name: str) -> None:
    assert format_of(f" {name.upper()} ; charset=utf-8;label_size=1") is CONTENT_TYPES[name]


@pytest.mark.parametrize(
    "content_type", [None, "", " ", "image/png", "application/x-unknown", "application/x-image; a=b"]
)
def test_unknown_content_type_means_whole_objects(content_type: str | None) -> None:
    assert format_of(content_type) is objects.FORMAT


def test_short_name_is_recognised_and_a_misspelt_one_refused() -> None:
    assert format_of("Tar") is tar.FORMAT
    with pytest.raises(ChannelError, match=r"format 'tra' is neither a content type nor one of .*; did you mean 'tar'"):
        format_of("tra")


CHOSEN = [
    "csv; header=present",
    'csv; header=present; delimiter=";"',
    'csv; delimiter="\t"',
    'csv; delimiter="\\\\"',
    "parquet; columns=a,b.c",
    'parquet; columns="a b,ü"',
    "augmented; attributes=source-ref,class",
    "recordio-protobuf; batch=7",
]


@pytest.mark.parametrize("name", [*SHORT_NAMES, *CHOSEN])
def test_string_of_a_format_names_it(name: str) -> None:
    assert format_of(str(format_of(name))) == format_of(name)
    assert str(format_of(name)).replace('"', "") == name.replace('"', "")


@pytest.mark.parametrize(("text", "name"), [("text/csv", "lines"), ("csv; header=absent", "csv"), (None, "objects")])
def test_content_types_are_called_by_their_formats_short_name(text: str | None, name: str) -> None:
    assert str(format_of(text)) == name


@pytest.mark.parametrize("name", [*SHORT_NAMES, *CONTENT_TYPES])
def test_launcher_knows_what_a_pipe_can_carry(name: str) -> None:
    """The launcher's own table of formats, in `launcher.rules.channels.content_types`, is this package's."""
    form = format_of(name)
    known = MIME_TYPES if name in SHORT_NAMES else MIME_TYPES.values()
    assert name in known, (
        "add it to MIME_TYPES in launcher/rules/channels/content_types.py, which has one type of each format"
    )
    assert (name in BOUNDED, name in READ_FROM_END) == (
        form.boundaries,
        not form.boundaries and form is not objects.FORMAT,
    )


def test_launcher_knows_no_other_formats() -> None:
    assert MIME_TYPES.keys() ^ SHORT_NAMES.keys() == set(), "MIME_TYPES is in launcher/rules/channels/content_types.py"
