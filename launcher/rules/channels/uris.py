"""Rules on all S3 URIs of a spec: the service's pattern allows many that name no place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from launcher.errors import SpecPath
from launcher.request.view import Draft
from launcher.rules.rule import Mistake, error, warning
from launcher.spec.aws_model import shown
from sagemaker_channels import contract

_LONGEST = 1024  # characters of S3Uri in the service model, whose own check reports longer ones
_PLACES = (
    *("OutputDataConfig.S3OutputPath", "CheckpointConfig.S3Uri", "DebugHookConfig.S3OutputPath"),
    *("TensorBoardOutputConfig.S3OutputPath", "ProfilerConfig.S3OutputPath"),
    *("DebugRuleConfigurations.S3OutputPath", "ProfilerRuleConfigurations.S3OutputPath"),
)
# Hosts of S3: s3.REGION, s3-REGION, s3.dualstack..., s3-fips..., BUCKET.s3..., and those of VPC endpoints.
_S3_HOST = re.compile(
    r"(?:(?P<bucket>.+)\.)?s3[.-](?:[a-z0-9.-]+\.)?amazonaws\.com(?:\.cn)?|(?:.+\.)?s3\.[a-z0-9.-]*vpce.*"
)


def uris(draft: Draft) -> Iterator[tuple[SpecPath, str]]:
    """Yield every S3 URI of the request and of the connector, with its place in the spec.

    URIs that are longer than the service model allows are skipped.
    """
    found: list[tuple[SpecPath, str | None]] = [(entry.path("S3Uri"), entry.get("S3Uri")) for entry in draft.entries]
    found += draft.each(*_PLACES)
    for channel, settings in draft.spec.all_channels.items():
        uri = (settings.connector(channel) or {}).get(contract.CONNECTOR_S3_URI, "")
        if uri.startswith("s3://"):  # connector-s3-uri reports the others
            found.append((("channels", channel, "s3_uri"), uri))
    yield from ((path, uri) for path, uri in found if uri and len(uri) <= _LONGEST)


def bucket(uri: str) -> str:
    """Return `bucket` of `s3://bucket/key`, or the host of an https URI."""
    return uri.partition("://")[2].partition("/")[0]


def object_key(uri: str) -> str:
    return uri.partition("://")[2].partition("/")[2]


@error("s3-uri-place")
def uri_names_a_place(draft: Draft) -> Iterator[Mistake]:
    """A URI that repeats its scheme, contains an ARN, or is that of a web page names no place in S3."""
    for path, uri in uris(draft):
        twice = re.match(r"s3://+(s3:/+|arn:aws[a-z-]*:s3:::)([^/].*)", uri, re.DOTALL)
        host = bucket(uri)
        if twice:
            what = "contains an ARN" if twice[1].startswith("arn") else "begins with s3:// twice"
            yield path, f"{uri!r} {what}; write {'s3://' + twice[2]!r}"
        elif host.endswith("console.aws.amazon.com"):
            yield path, f"{uri!r} is a page of the console; write {_shown_in_console(uri)}"
        elif uri.startswith("https://") and re.fullmatch(r"[A-Za-z0-9.:-]+", host) and not _s3_host(uri):
            yield path, f"{uri!r} is not in S3; copy it there, and write s3://bucket/folder/"


def _shown_in_console(uri: str) -> str:
    """Return the S3 URI of the page that the console shows, as far as its address contains it."""
    page = urlsplit(uri)
    name = re.fullmatch(r"/s3/(?:buckets|object)/([^/]+)/?", page.path)
    prefix = parse_qs(page.query).get("prefix", [""])[0]
    return f"s3://{name[1]}/{prefix}" if name else "the place itself, such as s3://bucket/folder/"


@warning("s3-bucket-name")
def bucket_has_a_legal_name(draft: Draft) -> Iterator[Mistake]:
    """A bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens; it begins and ends with a letter or digit."""
    for path, uri in uris(draft):
        name = bucket(uri)
        if not uri.startswith("s3://") or not name or name == "s3:" or name.startswith("arn:aws"):
            continue
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            yield path, f"{name!r} is not a bucket's name; write your bucket's name"
        elif not re.fullmatch(r"[a-z0-9][a-z0-9.-]+[a-z0-9]", name) or ".." in name or len(name) > 63:
            better = re.sub(r"[_.-]+", "-", name.lower()).strip("-")
            hint = f", such as {better}" if 3 <= len(better) < 64 else ""
            remedy = f"write 3 to 63 lower-case letters, digits, dots and hyphens{hint}"
            yield path, f"{shown(name)} cannot be a bucket's name; {remedy}"


@warning("debugger-s3-uri")
def debugger_knows_no_https(draft: Draft) -> Iterator[Mistake]:
    """The debugger treats the host of an https URI as the bucket."""
    uri = draft.get("DebugHookConfig.S3OutputPath") or ""
    if uri.startswith("https://") and _s3_host(uri):
        yield ("DebugHookConfig", "S3OutputPath"), f"{uri!r} is not understood by the debugger; write {_plain(uri)}"


@warning("s3-uri-https")
def uri_has_the_scheme_s3(draft: Draft) -> Iterator[Mistake]:
    """A place in S3 is written as s3://bucket/key; the host of an https address may be treated as the bucket's name."""
    for path, uri in uris(draft):
        if uri.startswith("https://") and _s3_host(uri) and path[0] != "DebugHookConfig":
            yield path, f"{uri!r} may be read as a bucket named {bucket(uri)}; write {_plain(uri)!r}"


def _s3_host(uri: str) -> re.Match[str] | None:
    """Match the host of an https URI if it is one of S3's; a host's name has at most 255 characters."""
    return _S3_HOST.fullmatch(bucket(uri)) if len(bucket(uri)) <= 255 else None


def _plain(uri: str) -> str:
    """Return `s3://bucket/key` for an https URI of S3."""
    host, key = _s3_host(uri), object_key(uri)
    return f"s3://{host['bucket']}/{key}" if host and host["bucket"] else f"s3://{key}"


@warning("s3-uri-literal")
def uri_is_no_pattern(draft: Draft) -> Iterator[Mistake]:
    """S3Uri is a literal prefix of keys: `*` is not a pattern, and a space at its end is part of it."""
    for path, uri in uris(draft):
        if uri != uri.strip():
            yield path, f"{uri!r} begins or ends with a space, which would be part of it; delete the space"
        elif re.search(r"/[^/]*\*", uri) and path[0] in ("InputDataConfig", "channels"):
            folder = uri[: uri.index("*")].rpartition("/")[0]
            what = f"{uri!r} has a '*', which is a plain character in S3, not a pattern"
            yield path, f"{what}; write the folder, {folder + '/'!r}"
