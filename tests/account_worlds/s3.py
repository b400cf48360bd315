"""Data in S3, and the job that reads it, each broken in one way."""

from __future__ import annotations

from account_data import CHANNEL, TRAIN, Broken, put

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
TAR = bytes(257) + b"ustar\0" + bytes(249)

BROKEN = {
    "input bucket misspelt": Broken(
        lambda s3: None,
        "channels: {train: s3://dota/train/}",
        [("bucket-missing", TRAIN)],
        ("'dota'", "did you mean data?"),
    ),
    "output bucket missing, named three times": Broken(
        lambda s3: None,
        f"output_data_config: {{s3_output_path: s3://results/}}\n"
        f"checkpoint_config: {{s3_uri: s3://results/checkpoints/}}\n"
        f"debug_hook_config: {{s3_output_path: s3://results/debug/}}\n{CHANNEL}",
        [("bucket-missing", "output_data_config.s3_output_path")],
        ("aws s3 mb s3://results", "also checkpoint_config.s3_uri, debug_hook_config.s3_output_path"),
    ),
    "output bucket missing, to which the code is uploaded": Broken(
        lambda s3: None,
        f"output_data_config: {{s3_output_path: s3://results/}}\ncode: {{entry_point: entrypoints/train.py}}\n{CHANNEL}",
        [("bucket-missing", "output_data_config.s3_output_path")],
        ("'results'", "(also code)"),
    ),
    "connector's bucket missing": Broken(
        lambda s3: None,
        "channels: {train: {source: S3Connector, s3_uri: s3://datasets/train/}}",
        [("bucket-missing", TRAIN)],
        ("'datasets'",),
    ),
    "a bucket of another account": Broken(
        lambda s3: None,
        "tensor_board_output_config: {s3_output_path: s3://theirs/boards/}",
        [("bucket-forbidden", "tensor_board_output_config.s3_output_path")],
        ("another account", "bucket policy"),
    ),
    "output in a bucket of another account": Broken(
        lambda s3: None,
        "output_data_config: {s3_output_path: s3://shared/out/}\ncheckpoint_config: {s3_uri: s3://shared/checkpoints/}",
        [("bucket-owner", "output_data_config.s3_output_path")],
        ("123456789012", "bucket_owners: {shared: ACCOUNT}", "also checkpoint_config.s3_uri"),
    ),
    "input of an account that is not the named one": Broken(
        lambda s3: None,
        "channels: {train: s3://data/train/}\nbucket_owners: {data: 210987654321}",
        [("bucket-owner", TRAIN)],
        ("210987654321",),
    ),
    "input in another region": Broken(
        lambda s3: None,
        "channels: {train: s3://west/train/}",
        [("bucket-region", TRAIN)],
        ("eu-west-1", "us-east-1", "copy the data"),
    ),
    "output in another region": Broken(
        lambda s3: None,
        "output_data_config: {s3_output_path: s3://west/out/}",
        [("bucket-region", "output_data_config.s3_output_path")],
        ("eu-west-1", "us-east-1"),
    ),
    "connector reads in another region": Broken(
        lambda s3: None,
        "channels: {train: {source: S3Connector, s3_uri: s3://west/train/}}",
        [("bucket-region-connector", TRAIN)],
        ("eu-west-1", "billed"),
    ),
    "prefix misspelt": Broken(
        lambda s3: None,
        "channels: {train: s3://data/trian/}",
        [("prefix-empty", TRAIN)],
        ("s3://data/trian/", "did you mean train/?"),
    ),
    "objects of 0 bytes": Broken(
        lambda s3: put(s3, "train/7.tar", "train/8.tar", "train/_SUCCESS", body=b""),
        CHANNEL,
        [("prefix-empty-objects", TRAIN)],
        ("2 of 6 objects are empty (0 bytes), such as 'train/7.tar', 'train/8.tar'", "upload them again"),
    ),
    "files of macOS and Windows": Broken(
        lambda s3: put(s3, "train/.DS_Store", "train/a/._1.tar", "train/a/Thumbs.db"),
        CHANNEL,
        [("prefix-clutter", TRAIN)],
        ("3 of 7 objects are files of macOS or Windows, such as 'train/.DS_Store', 'train/a/._1.tar',", "delete them"),
    ),
    "images by the content type of tar": Broken(
        lambda s3: put(s3, "photos/.DS_Store", "photos/1.png", body=PNG),
        "channels: {train: {s3_uri: s3://data/photos/, content_type: application/x-tar}}",
        [("prefix-clutter", TRAIN), ("content-type-other", "channels.train.content_type")],
        ("s3://data/photos/1.png is a PNG image, but by content_type 'application/x-tar' it is tar; delete",),
    ),
    "shards without a content type, for a bundled script": Broken(
        lambda s3: put(s3, "shards/1.tar", body=TAR),
        "channels: {train: {source: S3Connector, s3_uri: s3://data/shards/}}\ncode: {entry_point: entrypoints/train.py}",
        [("content-type-other", TRAIN)],
        ("1.tar is a tar, but without a content_type each object is one sample; set", "to application/x-tar"),
    ),
    "prefix of folders only": Broken(
        lambda s3: put(s3, "new/", "new/a/", body=b""),
        "channels: {train: s3://data/new/}",
        [("prefix-only-folders", TRAIN)],
        ("upload the data",),
    ),
    "prefix of Hadoop's markers only": Broken(
        lambda s3: put(s3, "new/_SUCCESS", "new/part_$folder$", body=b""),
        "channels: {train: s3://data/new/}",
        [("prefix-only-folders", TRAIN)],
        ("_SUCCESS", "upload the data"),
    ),
    "connector's prefix empty": Broken(
        lambda s3: None,
        "channels: {train: {source: S3Connector, s3_uri: s3://data/nothing/}}",
        [("connector-empty", TRAIN)],
        ("no object begins with",),
    ),
    "sibling folder": Broken(
        lambda s3: put(s3, "train_old/1.tar"),
        "channels: {train: s3://data/train}",
        [("prefix-siblings", TRAIN)],
        ("also matches train_old/", "write s3://data/train/"),
    ),
    "sibling object": Broken(
        lambda s3: put(s3, "one.csv", "one.csv.bak"),
        "channels: {train: s3://data/one.csv}",
        [("prefix-siblings", TRAIN)],
        ("also matches one.csv.bak", "manifest"),
    ),
    "sibling whose name holds control characters": Broken(
        lambda s3: put(s3, "one.csv", "one.csv\x1b[2J"),
        "channels: {train: s3://data/one.csv}",
        [("prefix-siblings", TRAIN)],
        ("also matches one.csv\\x1b[2J",),
    ),
    "fewer objects than hosts": Broken(
        lambda s3: put(s3, "small/1.tar"),
        "channels: {train: {s3_uri: s3://data/small/, s3_data_distribution_type: ShardedByS3Key}}",
        [("share-empty", "channels.train.s3_data_distribution_type")],
        ("1 object for 2 hosts", "FullyReplicated"),
    ),
    "an older job's checkpoints": Broken(
        lambda s3: put(s3, "checkpoints/model.pt", "checkpoints/optimizer.pt", bucket="out"),
        f"checkpoint_config: {{s3_uri: s3://out/checkpoints}}\n{CHANNEL}",
        [("checkpoints-exist", "checkpoint_config.s3_uri")],
        ("2 objects", "the newest of 20", "/opt/ml/checkpoints", "s3://out/checkpoints/digits-1/"),
    ),
    "a bucket named under request:": Broken(
        lambda s3: None,
        "request: {OutputDataConfig: {S3OutputPath: 's3://results/'}}",
        [("bucket-missing", "request.OutputDataConfig.S3OutputPath")],
        ("'results'",),
    ),
}
