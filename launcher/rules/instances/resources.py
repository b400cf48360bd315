"""Rules on the machines: their types, counts and groups, each given in one way; their storage; and serverless jobs."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.errors import SpecPath
from launcher.request.instance_types import Storage
from launcher.request.view import Draft
from launcher.rules.rule import Mistake, error, repeated, warning
from launcher.spec.aws_model import READ_ONLY
from launcher.spec.model import spec_name


@error("resource-alternatives")
def machines_given_once(draft: Draft) -> Iterator[Mistake]:
    """A job needs exactly one of: a type and count, instance groups, or instance preferences."""
    if draft.is_serverless or draft.get("ResourceConfig.InstancePreferences"):
        return
    if draft.get("ResourceConfig") is None:
        message = "is missing; write {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}"
        yield ("ResourceConfig",), message
        return
    missing = [member for member in ("InstanceType", "InstanceCount") if draft.get(f"ResourceConfig.{member}") is None]
    if draft.groups and len(missing) < 2:
        message = "cannot be used with instance_type or instance_count; delete one or the other"
        yield ("ResourceConfig", "InstanceGroups"), message
    if not draft.groups and missing:
        keys = " and ".join(map(spec_name, missing))
        yield ("ResourceConfig", missing[0]), f"is missing; write {keys}, or instance_groups"


@error("instance-count-positive")
def counts_are_positive(draft: Draft) -> Iterator[Mistake]:
    """A job, and each of its instance groups and placements, has at least one instance."""
    counted = ("", "InstanceGroups.", "InstancePreferences.", "InstancePlacementConfig.PlacementSpecifications.")
    for path, count in draft.each(*(f"ResourceConfig.{place}InstanceCount" for place in counted)):
        if count == 0:
            yield path, "is 0, but a job needs an instance; write at least 1"


@error("instance-group-names")
def group_names_differ(draft: Draft) -> Iterator[Mistake]:
    """Channels and scripts refer to instance groups by name, so each needs a unique name."""
    for path, name in repeated(draft.each("ResourceConfig.InstanceGroups.InstanceGroupName")):
        yield path, f"{name!r} is the name of an earlier group, too; rename one"


@error("placement-needs-ultra-servers")
def placement_needs_ultra_servers(draft: Draft) -> Iterator[Mistake]:
    """Instances can be placed only on UltraServers, such as those of ml.p6e-gb200."""
    others = [found.name for _, found in draft.instance_types if found.is_ultra_server is False]
    if others and draft.get("ResourceConfig.InstancePlacementConfig"):
        message = f"is for UltraServers (ml.p6e-gb200), and {others[0]} is not one; delete it"
        yield ("ResourceConfig", "InstancePlacementConfig"), message


@error("read-only-member")
def read_only_members_are_absent(draft: Draft) -> Iterator[Mistake]:
    """Some members are only returned by DescribeTrainingJob and cannot be requested."""
    for member in READ_ONLY:
        if draft.get(f"ResourceConfig.{member}") is not None:
            yield ("ResourceConfig", member), "is read-only: AWS returns it but does not accept it; delete it"


@error("instance-preferences-alone")
def preferences_replace_types(draft: Draft) -> Iterator[Mistake]:
    """Instance preferences exclude a type, groups, placement and spot instances."""
    if not draft.get("ResourceConfig.InstancePreferences"):
        return
    for member in ("InstanceType", "InstanceGroups", "InstancePlacementConfig"):
        if draft.get(f"ResourceConfig.{member}"):
            yield ("ResourceConfig", member), "cannot be used with instance_preferences, which replace it; delete one"
    if draft.is_spot:
        message = "cannot be used with instance_preferences, which use on-demand capacity and training plans; delete it"
        yield ("EnableManagedSpotTraining",), message


@error("instance-preferences-count")
def count_given_in_one_place(draft: Draft) -> Iterator[Mistake]:
    """With instance preferences the count is given once for all or for each of them; never for some, both or neither."""
    preferences = draft.get("ResourceConfig.InstancePreferences") or ()
    counted = {path[2] for path, _ in draft.each("ResourceConfig.InstancePreferences.InstanceCount")}
    without = [index for index, _ in enumerate(preferences) if index not in counted]
    count = draft.get("ResourceConfig.InstanceCount")
    if not preferences:
        return
    if len(without) == len(preferences) and count is None:
        yield ("ResourceConfig", "InstanceCount"), "is missing; write it here, or in each of instance_preferences"
    elif len(without) < len(preferences) and count is not None:
        yield ("ResourceConfig", "InstanceCount"), "is written in instance_preferences, too; delete one of them"
    elif without and count is None:
        message = "is missing here but not in others; write it in all of them, or once in resource_config"
        yield ("ResourceConfig", "InstancePreferences", without[0], "InstanceCount"), message


@error("instance-preferences-differ")
def preferences_differ(draft: Draft) -> Iterator[Mistake]:
    """An instance type may occur once in the preferences."""
    for path, name in repeated(draft.each("ResourceConfig.InstancePreferences.InstanceType")):
        yield path, f"{name} is earlier in the list, too; delete one"


@error("training-plan-once")
def training_plans_in_one_place(draft: Draft) -> Iterator[Mistake]:
    """Training plans are given for each instance preference or for the job, not for both."""
    if draft.get("ResourceConfig.TrainingPlanArn"):
        for path, each in draft.each("ResourceConfig.InstancePreferences"):
            if each.get("TrainingPlanArns"):
                message = "cannot be used with resource_config.training_plan_arn; delete one or the other"
                yield (*path, "TrainingPlanArns"), message


_MAX_GIGABYTES = 16384  # of one EBS volume

_BYTES = 2**30  # bytes of a gigabyte
_SIZE: SpecPath = ("ResourceConfig", "VolumeSizeInGB")


@error("volume-size-missing")
def types_without_disks_have_a_volume(draft: Draft) -> Iterator[Mistake]:
    """An instance type without its own disks needs a volume of at least 1 GB."""
    size, names = draft.get("ResourceConfig.VolumeSizeInGB"), _with_storage(draft, "EBS")
    if not size and names:
        what = "is missing" if size is None else "is 0"
        yield _SIZE, f"{what}, but {names[0]} has no disk of its own; write how many GB it needs, such as 50"


@warning("volume-size-has-no-effect")
def types_with_disks_need_no_volume(draft: Draft) -> Iterator[Mistake]:
    """On an instance type with its own NVMe disks the volume's size has no effect: the storage is that of the disks."""
    names = _with_storage(draft, "NVMe")
    if draft.get("ResourceConfig.VolumeSizeInGB") and names and len(names) == len(draft.instance_types):
        yield _SIZE, f"has no effect, since {names[0]} has its own disks of a fixed size; delete it"


@warning("volume-size-over-16-tb")
def volume_within_bounds(draft: Draft) -> Iterator[Mistake]:
    """A volume holds 16 TB at most; larger data has to be streamed, or stored on a file system."""
    size = draft.get("ResourceConfig.VolumeSizeInGB")
    if size is not None and size >= _BYTES:
        yield _SIZE, f"is {size} GB, probably meant in bytes; write {round(size / _BYTES)}"
    elif size is not None and size > _MAX_GIGABYTES:
        yield _SIZE, f"is {size}, but a volume holds {_MAX_GIGABYTES} GB; stream the data by FastFile or Pipe instead"


@error("volume-kms-key-on-local-disks")
def own_disks_take_no_key(draft: Draft) -> Iterator[Mistake]:
    """An instance's own disks are encrypted by its hardware, so no key can be given for them."""
    names = _with_storage(draft, "NVMe")
    if draft.get("ResourceConfig.VolumeKmsKeyId") and names:
        message = f"cannot be used on {names[0]}, whose own disks are encrypted by its hardware; delete it"
        yield ("ResourceConfig", "VolumeKmsKeyId"), message


def _with_storage(draft: Draft, storage: Storage) -> list[str]:
    return [found.name for _, found in draft.instance_types if found.storage == storage]


@error("serverless-volume-size")
def volume_is_chosen(draft: Draft) -> Iterator[Mistake]:
    """SageMaker chooses the volume of a serverless job."""
    if draft.is_serverless and draft.get("ResourceConfig.VolumeSizeInGB") is not None:
        yield ("ResourceConfig", "VolumeSizeInGB"), "cannot be chosen for a serverless job; delete it"


@error("serverless-evaluation-type")
def evaluations_have_a_type(draft: Draft) -> Iterator[Mistake]:
    """A serverless evaluation needs its type."""
    if draft.get("ServerlessJobConfig.JobType") == "Evaluation" and not draft.get("ServerlessJobConfig.EvaluationType"):
        yield (
            ("ServerlessJobConfig", "EvaluationType"),
            "is missing, and job_type Evaluation needs it; write BenchmarkEvaluation, CustomScorerEvaluation or"
            " LLMAJEvaluation",
        )


@warning("channel-converse-needs-serverless")
def conversations_are_for_fine_tuning(draft: Draft) -> Iterator[Mistake]:
    """Conversations are data for fine-tunings that SageMaker runs itself; other images may not know their files."""
    if not draft.is_serverless:
        for entry in draft.entries:
            if entry.get("S3DataType") == "Converse":
                message = "'Converse' is for serverless jobs; write S3Prefix, or serverless_job_config"
                yield entry.path("S3DataType"), message
