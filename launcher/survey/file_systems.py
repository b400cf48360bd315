"""What EFS and FSx say about a file system, whose files cannot be listed from here."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.aws.account import Account, AwsError
from launcher.console import human_bytes
from launcher.preflight.check import why_not
from launcher.spec.channels import KINDS
from launcher.survey.channels import Channel


def known_of(account: Account, channel: Channel) -> Iterator[str]:
    """Yield what is known of a channel's file system, and how to find out more.

    Raises:
        AwsError: The credentials have expired.
    """
    name = channel.place.bucket
    try:
        if channel.storage == "EFS":
            (found,) = account.call("efs", "describe_file_systems", FileSystemId=name)["FileSystems"]
            used = human_bytes(found["SizeInBytes"]["Value"])
            yield f"there: {used} on the whole file system, {found['PerformanceMode']}, {found.get('ThroughputMode')}"
        else:
            (found,) = account.call("fsx", "describe_file_systems", FileSystemIds=[name])["FileSystems"]
            lustre, size = found.get("LustreConfiguration", {}), human_bytes(found.get("StorageCapacity", 0) * 2**30)
            speed = lustre.get("PerUnitStorageThroughput")
            yield f"there: space for {size}, {lustre.get('DeploymentType')}" + f", {speed} MB/s per TiB" * bool(speed)
    except AwsError as error:
        if error.is_expired:
            raise
        yield f"unknown: {why_not(error)}"
    folder = f"DIR/{KINDS[channel.storage].data_folder()}/{name}"
    yield f"unknown: its files; mount it on a machine as {folder} and run this there with --local --data DIR"
