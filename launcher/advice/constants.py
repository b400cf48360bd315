"""The constants of the model, each with its unit, source and date.

"Derived" constants were fitted by hand to AWS's benchmark (12 jobs on one instance type with one model), so the benchmark
cannot confirm them; each has a physical meaning, and `tests/launcher/advice` shows how well all together reproduce the jobs. The
others come from sources that are independent of it. Prices are those of us-east-1.
"""

from __future__ import annotations

from typing import NamedTuple


class Constant(NamedTuple):
    """One constant; its meaning is part of its unit."""

    value: float
    unit: str
    source: str
    date: str  # of the source, or on which an undated page was read

    @property
    def is_derived(self) -> bool:
        """Whether it was derived from AWS's benchmark."""
        return self.source == BENCHMARK


BENCHMARK = "derived from github.com/aws-samples/sagemaker-bencher (ml.p3.2xlarge, ResNet-50)"
_S3_DESIGN = "docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-design-patterns.html"
_GUIDE = "docs.aws.amazon.com/sagemaker/latest/dg/model-access-training-data.html"
_EFS = "docs.aws.amazon.com/efs/latest/ug/performance.html"
_OURS = "entrypoints.fetching, its defaults"
_RESULTS = "tests/benchmarks/results.json"
_REQUESTS = "c3x.dev/blog/s3-request-fees-explained (S3 Standard)"
_EXPRESS = "aws.amazon.com/s3/faqs, example of S3 Express One Zone"
_READ = "2026-11-22"

CONSTANTS: dict[str, Constant] = {
    "instance_s": Constant(55, "s until a cold instance can fetch image and data", BENCHMARK, "2021-12"),
    "image_s": Constant(150, "s to fetch the image, while File copies the data", BENCHMARK, "2021-12"),
    "warm_up_s": Constant(20, "s from the script's start to steady batches", BENCHMARK, "2021-12"),
    "mount_s": Constant(15, "s to set up a copy or a mount", BENCHMARK, "2021-12"),
    "list_per_s": Constant(10_000, "objects listed in S3 per s, by FastFile or a script", BENCHMARK, "2021-12"),
    "lustre_walk_per_s": Constant(6_500, "files listed in Lustre per s", BENCHMARK, "2021-12"),
    "s3_latency_s": Constant(0.048, "s per small object on one of 8 streams of FastFile", BENCHMARK, "2021-12"),
    "copy_streams": Constant(6.24, "objects that File copies at a time: 130 per s", BENCHMARK, "2021-12"),
    "pipe_streams": Constant(
        6.24, "objects that Pipe reads at a time", "no figure is published: taken to be File's", _READ
    ),
    "copy_bytes_per_s": Constant(155e6, "bytes per s that File copies", BENCHMARK, "2021-12"),
    "disk_bytes_per_s": Constant(
        155e6, "bytes per s of the disk, at least: the copy wrote so fast", BENCHMARK, "2021-12"
    ),
    "streams": Constant(8, "objects read at a time if nothing is known", "the vCPUs of ml.p3.2xlarge", "2021-12"),
    "stream_bytes_per_s": Constant(85e6, "bytes per s of one request to S3", _S3_DESIGN, _READ),
    "network_bytes_per_s": Constant(1.25e9, "bytes per s of an instance: AWS's example of 10 Gb/s", _S3_DESIGN, _READ),
    "requests_per_s": Constant(5_500, "GET requests per s and prefix", _S3_DESIGN, _READ),
    "express_latency_s": Constant(0.009, "s per request: the upper end of 'single-digit ms'", _EXPRESS, _READ),
    "lustre_latency_s": Constant(
        0.001, "s per file: the upper end of 'sub-millisecond'", "aws.amazon.com/fsx/lustre/faqs", _READ
    ),
    "lustre_bytes_per_s": Constant(
        200e6, "bytes per s and TiB of SCRATCH_2", "docs.aws.amazon.com/fsx/latest/LustreGuide/performance.html", _READ
    ),
    "lustre_import_per_s": Constant(2e6 / 3600, "objects of S3 indexed per s", _GUIDE, _READ),
    "lustre_least_bytes": Constant(
        1200 * 2**30,
        "bytes of the smallest file system",
        "docs.aws.amazon.com/sagemaker/latest/APIReference/API_FSxLustreConfig.html",
        _READ,
    ),
    "efs_latency_s": Constant(0.00075, "s per file: open, read, close at 'as low as 250 us'", _EFS, _READ),
    "efs_bytes_per_s": Constant(500 * 2**20, "bytes per s and instance", _EFS, _READ),
    "disk_latency_s": Constant(2e-5, "s per file: a plain loop, page cache", _RESULTS, _READ),
    "reader_streams": Constant(64, "requests at a time of S3Connector", _OURS, _READ),
    "reader_piece_bytes": Constant(8 << 20, "bytes of one request of S3Connector", _OURS, _READ),
    "reader_ahead_bytes": Constant(64 << 20, "bytes that S3Connector reads ahead", _OURS, _READ),
    "memory_bytes_per_s": Constant(2.1e9, "bytes per s: a DataLoader, page cache", _RESULTS, _READ),
    "reader_objects_per_s": Constant(2_100, "objects per s of one process of S3Connector", _RESULTS, _READ),
    "reader_bytes_per_s": Constant(510e6, "bytes per s of one process of S3Connector", _RESULTS, _READ),
    "small_bytes": Constant(50e6, "bytes: smaller objects are worth resharding", _GUIDE, _READ),
    "shard_least_bytes": Constant(100e6, "bytes of the smallest shards", _GUIDE, _READ),
    "shard_most_bytes": Constant(1e9, "bytes of the largest shards", _GUIDE, _READ),
    "usd_per_hour": Constant(
        1.408, "$: ml.g5.xlarge, if the price of the instances is unknown", "launcher/data/prices.json", "2026-09-25"
    ),
    "s3_get_usd": Constant(0.0004 / 1000, "$ per GET", _REQUESTS, _READ),
    "s3_list_usd": Constant(0.005 / 1000, "$ per LIST of 1,000 objects, and per PUT", _REQUESTS, _READ),
    "s3_read_usd": Constant(0, "$ per byte read within a region", _REQUESTS, _READ),
    "express_get_usd": Constant(0.00003 / 1000, "$ per GET", _EXPRESS, _READ),
    "express_list_usd": Constant(0.00113 / 1000, "$ per PUT, taken for LIST as well", _EXPRESS, _READ),
    "express_read_usd": Constant(0.0006 / 1e9, "$ per byte read", _EXPRESS, _READ),
    "express_usd_month": Constant(0.11 / 1e9, "$ per byte and month", _EXPRESS, _READ),
    "lustre_usd_month": Constant(
        0.145 / 2**30,
        "$ per byte and month of SSD at 125 MB/s/TiB",
        "c3x.dev/resources/aws/aws_fsx_lustre_file_system",
        _READ,
    ),
    "efs_usd_month": Constant(
        0.30 / 1e9,
        "$ per byte and month",
        "factualminds.com/blog/amazon-efs-pricing-throughput-modes-storage-classes",
        "2026-06-13",
    ),
    "efs_read_usd": Constant(
        0.03 / 1e9,
        "$ per byte read with elastic throughput",
        "factualminds.com/blog/amazon-efs-pricing-throughput-modes-storage-classes",
        "2026-06-13",
    ),
}

VALUES: dict[str, float] = {name: each.value for name, each in CONSTANTS.items()}
