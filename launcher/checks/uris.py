"""Rules on S3 URIs, wherever they stand: the service's pattern takes much that names no place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.checks.rule import Draft, Found, Rule
from launcher.errors import Path


def uris(draft: Draft) -> Iterator[tuple[Path, str]]:
    """Every S3 URI of the request, with its place in the spec."""
    said: list[tuple[Path, str | None]] = [(entry.path("s3_uri"), entry.get("S3Uri")) for entry in draft.entries]
    for key, member, name in (
        ("output_data_config", "OutputDataConfig", "S3OutputPath"),
        ("checkpoint_config", "CheckpointConfig", "S3Uri"),
        ("debug_hook_config", "DebugHookConfig", "S3OutputPath"),
        ("tensor_board_output_config", "TensorBoardOutputConfig", "S3OutputPath"),
        ("profiler_config", "ProfilerConfig", "S3OutputPath"),
    ):
        said.append(((key, "s3_uri" if name == "S3Uri" else "s3_output_path"), draft.get(f"{member}.{name}")))
    for key, member in (
        ("debug_rule_configurations", "DebugRuleConfigurations"),
        ("profiler_rule_configurations", "ProfilerRuleConfigurations"),
    ):
        for index, rule in enumerate(draft.request.get(member, ())):
            said.append(((key, index, "s3_output_path"), rule.get("S3OutputPath")))
    yield from ((path, uri) for path, uri in said if uri)


def bucket(uri: str) -> str:
    """`bucket` of `s3://bucket/key`; the host of an https URI."""
    return uri.partition("://")[2].partition("/")[0]


def object_key(uri: str) -> str:
    """What follows the bucket in `s3://bucket/key`."""
    return uri.partition("://")[2].partition("/")[2]


def uri_names_a_place(draft: Draft) -> Iterator[Found]:
    """A URI with its scheme twice, or of a page of the console, names no place in S3.

    The pattern of S3Uri takes any text after `s3://` or `https://`: `s3://s3://bucket/` has `s3:` for its bucket, and the
    address of a page of AWS's console is no bucket's.
    Source: S3DataSource.S3Uri in the service model.
    """
    for path, uri in uris(draft):
        twice = re.match(r"s3://(s3://.*)", uri, re.DOTALL)
        if twice:
            yield path, f"{uri!r} begins with s3:// twice; write {twice[1]!r}"
        elif bucket(uri).endswith("console.aws.amazon.com"):
            yield path, f"{uri!r} is a page of the console; write the place itself, such as s3://bucket/folder/"


def bucket_has_a_legal_name(draft: Draft) -> Iterator[Found]:
    """A bucket's name has letters, digits, dots and hyphens; a placeholder that was not filled in has others.

    Underscores and capitals were legal once and are taken. It is a warning, since a text can be filled in later.
    Source: S3 user guide, bucketnamingrules.
    """
    for path, uri in uris(draft):
        name = bucket(uri)
        if uri.startswith("s3://") and name != "s3:" and not re.fullmatch(r"[A-Za-z0-9._-]+|arn:aws.*", name):
            yield path, f"{name!r} is no bucket's name; fill in the one that is meant"


_OUT = "output_data_config: {s3_output_path: '%s'}"

RULES = (
    Rule(
        "s3-uri-place",
        "error",
        uri_names_a_place,
        wrong=_OUT % "s3://s3://bucket/out/",
        right=_OUT % "https://s3.eu-west-1.amazonaws.com/bucket/out/",
    ),
    Rule(
        "s3-bucket-name",
        "warning",
        bucket_has_a_legal_name,
        wrong=_OUT % "s3://<your-bucket>/out/",
        right=_OUT % "s3://your-bucket/out/",
    ),
)
