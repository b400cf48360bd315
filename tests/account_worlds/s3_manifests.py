"""Manifests that name the wrong objects or are not well-formed, and data that is archived."""

from __future__ import annotations

import json
from typing import Any

from account_data import AUGMENTED, MANIFEST, TRAIN, Broken, put, put_lines, put_manifest


def archive(s3: Any, kind: str) -> None:
    """An object that is archived, beside one that is not."""
    s3.put_object(Bucket="data", Key="old/1.tar", Body=b"data", StorageClass=kind)
    put(s3, "old/2.tar")


def archive_and_name(s3: Any) -> None:
    archive(s3, "GLACIER")
    put(s3, "train.manifest", body=json.dumps([{"prefix": "s3://data/old/"}, "1.tar", "2.tar"]).encode())


BROKEN = {
    "manifest missing": Broken(
        lambda s3: put(s3, "trains.manifest"),
        MANIFEST,
        [("manifest-missing", TRAIN)],
        ("did you mean trains.manifest?",),
    ),
    "manifest without a prefix": Broken(
        lambda s3: put(s3, "train.manifest", body=b'["1.tar"]'),
        MANIFEST,
        [("manifest-form", TRAIN)],
        ('{"prefix": "s3://',),
    ),
    "manifest of whole URIs": Broken(
        lambda s3: put_manifest(s3, "s3://data/train/1.tar"),
        MANIFEST,
        [("manifest-form", TRAIN)],
        ("whole URI", "one bucket"),
    ),
    "manifest that is not JSON": Broken(
        lambda s3: put(s3, "train.manifest", body=b"1.tar\n2.tar\n"),
        MANIFEST,
        [("manifest-form", TRAIN)],
        ("a JSON list that begins with",),
    ),
    "manifest that is not UTF-8": Broken(
        lambda s3: put(s3, "train.manifest", body=b"\xff\xfe["),
        MANIFEST,
        [("manifest-form", TRAIN)],
        ("not JSON",),
    ),
    "manifest without entries": Broken(
        lambda s3: put_manifest(s3),
        MANIFEST,
        [("manifest-form", TRAIN)],
        ("names no objects",),
    ),
    "manifest of missing objects": Broken(
        lambda s3: put_manifest(s3, "1.tar", "7.tar", "8.tar"),
        MANIFEST,
        [("manifest-keys-missing", TRAIN)],
        ("2 of the 3 objects", "s3://data/train/7.tar"),
    ),
    "manifest of fewer objects than hosts": Broken(
        lambda s3: put_manifest(s3, "1.tar"),
        MANIFEST.replace("}}", ", s3_data_distribution_type: ShardedByS3Key}}"),
        [("share-empty", "channels.train.s3_data_distribution_type")],
        ("1 object for 2 hosts",),
    ),
    "augmented manifest, cut JSON": Broken(
        lambda s3: put(s3, "train.jsonl", body=b'{"source-ref": "s3://data/train/1.tar"\n'),
        AUGMENTED,
        [("manifest-form", TRAIN)],
        ("line 1", "not JSON"),
    ),
    "augmented manifest, empty": Broken(
        lambda s3: put(s3, "train.jsonl", body=b""),
        AUGMENTED,
        [("manifest-form", TRAIN)],
        ("no lines",),
    ),
    "augmented manifest, attribute of another name": Broken(
        lambda s3: put_lines(s3, {"source-ref": "s3://data/train/1.tar", "klass": 1}),
        AUGMENTED,
        [("manifest-form", TRAIN)],
        ("line 1 has no attribute 'class' (it has source-ref, klass)",),
    ),
    "augmented manifest, attribute missing in a line": Broken(
        lambda s3: put_lines(
            s3, {"source-ref": "s3://data/train/1.tar", "class": 1}, {"source-ref": "s3://data/train/2.tar"}
        ),
        AUGMENTED,
        [("manifest-form", TRAIN)],
        ("line 2 has no attribute 'class'",),
    ),
    "augmented manifest, reference to a missing object": Broken(
        lambda s3: put_lines(s3, {"source-ref": "s3://data/train/9.tar", "class": 1}),
        AUGMENTED,
        [("manifest-keys-missing", TRAIN)],
        ("s3://data/train/9.tar",),
    ),
    "augmented manifest, reference that is not a URI": Broken(
        lambda s3: put_lines(s3, {"source-ref": "train/1.tar", "class": 1}),
        AUGMENTED,
        [("manifest-form", TRAIN)],
        ("not an S3 URI",),
    ),
    "data in GLACIER": Broken(
        lambda s3: archive(s3, "GLACIER"),
        "channels: {train: s3://data/old/}",
        [("objects-archived", TRAIN)],
        ("1 of 2 objects are archived (GLACIER)", "'old/1.tar'", "restore-object"),
    ),
    "a connector's data in DEEP_ARCHIVE": Broken(
        lambda s3: archive(s3, "DEEP_ARCHIVE"),
        "channels: {train: {source: S3Connector, s3_uri: s3://data/old/}}",
        [("objects-archived", TRAIN)],
        ("(DEEP_ARCHIVE)",),
    ),
    "a manifest that names an archived object": Broken(
        archive_and_name,
        "channels: {train: {s3_uri: s3://data/train.manifest, s3_data_type: ManifestFile}}",
        [("objects-archived", TRAIN)],
        ("1 of the objects", "s3://data/old/1.tar"),
    ),
}
