"""Rules on a machine's storage: a volume of the requested size, or its own disks."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Mistake, error, warning
from launcher.errors import SpecPath
from launcher.request.instance_types import Storage
from launcher.request.view import Draft

_MAX_GIGABYTES = 16384  # of one EBS volume

_BYTES = 2**30  # bytes of a gigabyte
_SIZE: SpecPath = ("resource_config", "volume_size_in_gb")


@error("volume-size-missing")
def types_without_disks_have_a_volume(draft: Draft) -> Iterator[Mistake]:
    """An instance type without its own disks needs a volume of at least 1 GB.

    Source: ResourceConfig.VolumeSizeInGB in the service model ("you must define the size of EBS volume"); older models
    required it and had a minimum of 1, today's has 0 for types that have their own.
    """
    size, names = draft.get("ResourceConfig.VolumeSizeInGB"), _with_storage(draft, "EBS")
    if not size and names:
        what = "is missing" if size is None else "is 0"
        yield _SIZE, f"{what}, but {names[0]} has no disk of its own; write how many GB it needs, such as 50"


@warning("volume-size-has-no-effect")
def types_with_disks_need_no_volume(draft: Draft) -> Iterator[Mistake]:
    """On an instance type with its own NVMe disks the volume's size has no effect: the storage is that of the disks.

    The service accepts it, and published notebooks send it, so it is a warning.
    Source: ResourceConfig.VolumeSizeInGB in the service model ("Available storage is fixed to the NVMe-type instance's
    storage capacity"); `volume_size_supported` of the SageMaker Python SDK.
    """
    names = _with_storage(draft, "NVMe")
    if draft.get("ResourceConfig.VolumeSizeInGB") and names and len(names) == len(draft.instance_types):
        yield _SIZE, f"has no effect, since {names[0]} has its own disks of a fixed size; delete it"


@warning("volume-size-over-16-tb")
def volume_within_bounds(draft: Draft) -> Iterator[Mistake]:
    """A volume holds 16 TB at most; larger data has to be streamed, or stored on a file system.

    Source: EBS user guide, volume constraints (16 TiB for General Purpose); ProcessingVolumeSizeInGB and
    NotebookInstanceVolumeSizeInGB in the service model (at most 16384). Training's shape has no maximum.
    """
    size = draft.get("ResourceConfig.VolumeSizeInGB")
    if size is not None and size >= _BYTES:
        yield _SIZE, f"is {size} GB, probably meant in bytes; write {max(1, round(size / _BYTES))}"
    elif size is not None and size > _MAX_GIGABYTES:
        yield _SIZE, f"is {size}, but a volume holds {_MAX_GIGABYTES} GB; stream the data by FastFile or Pipe instead"


@error("volume-kms-key-on-local-disks")
def own_disks_take_no_key(draft: Draft) -> Iterator[Mistake]:
    """An instance's own disks are encrypted by its hardware, so no key can be given for them.

    Source: ResourceConfig.VolumeKmsKeyId in the service model ("You can't request a VolumeKmsKeyId when using an instance type
    with local storage"); aws/sagemaker-python-sdk issue 3677; awslabs/mlspace PR 205.
    """
    names = _with_storage(draft, "NVMe")
    if draft.get("ResourceConfig.VolumeKmsKeyId") and names:
        message = f"cannot be used on {names[0]}, whose own disks are encrypted by its hardware; delete it"
        yield ("resource_config", "volume_kms_key_id"), message


def _with_storage(draft: Draft, storage: Storage) -> list[str]:
    return [found.name for _, found in draft.instance_types if found.storage == storage]
