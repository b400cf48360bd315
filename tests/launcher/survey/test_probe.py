"""Probes of the local S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.advice.facts import Observed
from launcher.aws.account import Account
from launcher.errors import RefusedError
from launcher.local.channels.objects import RemoteObjects
from launcher.s3.uri import S3Location
from launcher.survey.inventory import Sampled
from launcher.survey.observed import probe
from served_bucket import served_bucket

SECONDS = 0.1
LARGE = 2 << 20


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Sampled]]:
    with served_bucket(tmp_path, monkeypatch) as folder:
        (folder / "a").write_bytes(bytes(LARGE))
        yield [Sampled(S3Location("bucket", "a"), LARGE)]


def test_probe_sees_latency_and_rates(sample: list[Sampled]) -> None:
    before = Observed(samples_per_s=7.0, source="a measurement")
    found = probe(RemoteObjects(Account().client("s3")), sample, SECONDS, before)
    assert found.latency_s and found.requests_per_s and found.stream_bytes_per_s and found.bytes_per_s
    assert found.samples_per_s == 7.0
    assert found.source.startswith("a measurement; a probe of ")
    assert "from this machine, which is not the job's instance" in found.source


def test_probe_of_small_objects_leaves_bandwidth_unknown(sample: list[Sampled]) -> None:
    small = [Sampled(sample[0].place, 1000)]
    found = probe(RemoteObjects(Account().client("s3")), small, SECONDS, Observed())
    assert found.latency_s
    assert (found.stream_bytes_per_s, found.bytes_per_s) == (None, None)


def test_probe_of_a_vanished_object_is_refused(sample: list[Sampled]) -> None:
    gone = [Sampled(S3Location("bucket", "b"), LARGE)]
    with pytest.raises(RefusedError, match=r"s3://bucket/b at .*: there is no such object"):
        probe(RemoteObjects(Account().client("s3")), gone, SECONDS, Observed())
