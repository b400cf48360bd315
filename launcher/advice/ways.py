"""The ways in which data can arrive, one card each. A new way is one row of `WAYS`; the model needs to know no more of it.

The names in the fields are those of `launcher.advice.constants`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """How one way reads data, as physics: latency, streams and bandwidth."""

    name: str
    home: tuple[
        str, ...
    ]  # the places that it reads; data elsewhere must be copied there first, if `storage_usd` is known
    latency: str = "s3_latency_s"  # per object or piece
    bandwidth: str = "network_bytes_per_s"  # of an instance
    stream_bandwidth: str = "stream_bytes_per_s"
    most: str = ""  # objects per second; empty: no limit
    streams: str = ""  # objects read at a time; empty: those of the training script
    is_ours: bool = False  # only scripts with our readers: large objects are read in pieces at a time, and ahead
    set_up: str = "mount_s"  # seconds before the script starts; empty: nothing is set up
    copies: bool = False  # all data are on the disk before the script starts
    lists_first: bool = False  # all objects are listed before the script starts
    walk: str = ""  # objects per second that the script lists; empty: not noticeable
    is_sequential: bool = False  # one stream from the first object to the last, on every instance
    needs_vpc: bool = False
    storage_usd: str = ""  # per byte and month; empty: data stay in S3
    least_bytes: str = ""  # of the storage that is paid for
    read_usd: str = ""  # per byte read
    index: str = (
        ""  # objects per second that the storage indexes before it can be read; empty: a job copies the data there
    )
    is_advised: bool = True  # False: nothing is published about it with SageMaker, so it is only shown
    effort: int = 0  # what it asks of people: 0 for a script that opens files in S3, and nothing else to set up

    @property
    def reads_s3(self) -> bool:
        """Whether it reads S3, or a directory bucket."""
        return self.home[0].startswith("S3")


_S3 = ("S3", "S3Express")
WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        Way("File", _S3, "disk_latency_s", "disk_bytes_per_s", "disk_bytes_per_s", copies=True),
        Way("FastFile", _S3, most="requests_per_s", lists_first=True, walk="list_per_s"),
        Way(
            "S3Connector",
            _S3,
            bandwidth="reader_bytes_per_s",
            most="reader_objects_per_s",
            streams="reader_streams",
            set_up="",
            is_ours=True,
            effort=1,
        ),
        Way(
            "Pipe",
            _S3,
            bandwidth="copy_bytes_per_s",
            most="requests_per_s",
            streams="pipe_streams",
            is_sequential=True,
            effort=2,
        ),
        Way(
            "FSxLustre",
            ("FSxLustre",),
            "lustre_latency_s",
            "lustre_bytes_per_s",
            "lustre_bytes_per_s",
            walk="lustre_walk_per_s",
            needs_vpc=True,
            storage_usd="lustre_usd_month",
            least_bytes="lustre_least_bytes",
            index="lustre_import_per_s",
            effort=3,
        ),
        Way(
            "EFS",
            ("EFS",),
            "efs_latency_s",
            "efs_bytes_per_s",
            "efs_bytes_per_s",
            walk="lustre_walk_per_s",
            needs_vpc=True,
            storage_usd="efs_usd_month",
            read_usd="efs_read_usd",
            effort=3,
        ),
        Way(  # FastFile after a copy into a directory bucket
            "S3Express",
            ("S3Express",),
            lists_first=True,
            walk="list_per_s",
            storage_usd="express_usd_month",
            is_advised=False,
            effort=3,
        ),
    )
}
