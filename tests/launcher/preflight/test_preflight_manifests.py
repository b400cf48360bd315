"""What preflight asks of manifests: broken ones, each found, named and given its remedy."""

from __future__ import annotations

import pytest

import aws_stand_in
from launcher.preflight.s3 import manifests
from preflight_data import (
    AUGMENTED,
    MANIFEST,
    TRAIN,
    Broken,
    checked,
    judge,
    only,
    put,
    put_lines,
    put_manifest,
    with_data,
)

BROKEN = (
    Broken(
        "manifest missing",
        lambda s3: put(s3, "trains.manifest"),
        MANIFEST,
        "manifest-missing",
        TRAIN,
        ("did you mean trains.manifest?",),
    ),
    Broken(
        "manifest without a prefix",
        lambda s3: put(s3, "train.manifest", body=b'["1.tar"]'),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ('{"prefix": "s3://',),
    ),
    Broken(
        "manifest of whole URIs",
        lambda s3: put_manifest(s3, "s3://data/train/1.tar"),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("whole URI", "one bucket"),
    ),
    Broken(
        "manifest that is no JSON",
        lambda s3: put(s3, "train.manifest", body=b"1.tar\n2.tar\n"),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("a JSON list that begins with",),
    ),
    Broken(
        "manifest of lists in lists",
        lambda s3: put(s3, "train.manifest", body=b"[" * 100_000),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("nested too deeply", "write ["),
    ),
    Broken(
        "augmented manifest of lists in lists",
        lambda s3: put(s3, "train.jsonl", body=b"[" * 100_000 + b"\n"),
        AUGMENTED,
        "manifest-form",
        TRAIN,
        ("line 1", "no JSON"),
    ),
    Broken(
        "manifest in no encoding",
        lambda s3: put(s3, "train.manifest", body=b"\xff\xfe["),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("no JSON",),
    ),
    Broken(
        "manifest of nothing",
        lambda s3: put_manifest(s3),
        MANIFEST,
        "manifest-form",
        TRAIN,
        ("names no objects",),
    ),
    Broken(
        "manifest of objects that are not there",
        lambda s3: put_manifest(s3, "1.tar", "7.tar", "8.tar"),
        MANIFEST,
        "manifest-keys-missing",
        TRAIN,
        ("2 of the 3 objects", "s3://data/train/7.tar"),
    ),
    Broken(
        "manifest of fewer objects than hosts",
        lambda s3: put_manifest(s3, "1.tar"),
        MANIFEST.replace("}}", ", s3_data_distribution_type: ShardedByS3Key}}"),
        "share-empty",
        "channels.train.s3_data_distribution_type",
        ("1 object for 2 hosts",),
    ),
    Broken(
        "augmented manifest, cut JSON",
        lambda s3: put(s3, "train.jsonl", body=b'{"source-ref": "s3://data/train/1.tar"\n'),
        AUGMENTED,
        "manifest-form",
        TRAIN,
        ("line 1", "no JSON"),
    ),
    Broken(
        "augmented manifest, empty",
        lambda s3: put(s3, "train.jsonl", body=b""),
        AUGMENTED,
        "manifest-form",
        TRAIN,
        ("no lines",),
    ),
    Broken(
        "augmented manifest, attribute of another name",
        lambda s3: put_lines(s3, {"source-ref": "s3://data/train/1.tar", "klass": 1}),
        AUGMENTED,
        "manifest-attribute",
        "channels.train.attribute_names",
        ("'class'", "did you mean klass?"),
    ),
    Broken(
        "augmented manifest, attribute missing in a line",
        lambda s3: put_lines(
            s3, {"source-ref": "s3://data/train/1.tar", "class": 1}, {"source-ref": "s3://data/train/1.tar"}
        ),
        AUGMENTED,
        "manifest-attribute-gaps",
        "channels.train.attribute_names",
        ("1 of the manifest's first 2 lines", "line 2"),
    ),
    Broken(
        "augmented manifest, reference to nothing",
        lambda s3: put_lines(s3, {"source-ref": "s3://data/train/9.tar", "class": 1}),
        AUGMENTED,
        "manifest-keys-missing",
        TRAIN,
        ("s3://data/train/9.tar",),
    ),
    Broken(
        "augmented manifest, reference that is no URI",
        lambda s3: put_lines(s3, {"source-ref": "train/1.tar", "class": 1}),
        AUGMENTED,
        "manifest-form",
        TRAIN,
        ("no S3 URI",),
    ),
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_environment_is_found(aws: aws_stand_in.StandIn, broken: Broken) -> None:
    judge(aws, broken)


def test_of_many_keys_in_a_manifest_some_are_looked_at(aws: aws_stand_in.StandIn) -> None:
    s3 = with_data(aws)
    put_manifest(s3, "1.tar", *(f"{number}.tar" for number in range(100, 400)))
    aws.clear_calls()
    message = only(checked(MANIFEST))[2]
    assert "99 of the 100 looked at (of 301) objects" in message
    assert len(aws.calls("s3:HeadObject")) == 101
    assert "300 of the 301 objects" in only(checked(MANIFEST, deadline=None))[2]


def test_every_code_is_provoked() -> None:
    codes = set(manifests.CHECK.codes)
    assert codes - {"objects-archived"} <= {broken.code for broken in BROKEN}  # that is in test_preflight_s3
