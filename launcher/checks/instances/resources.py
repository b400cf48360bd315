"""Rules on the machines: their types, counts and groups, each given in one way."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Mistake, error, repeated
from launcher.request.view import Draft
from launcher.spec.model import aws_name


@error("resource-alternatives")
def machines_given_once(draft: Draft) -> Iterator[Mistake]:
    """A job needs exactly one of: a type and count, instance groups, or instance preferences.

    For type and count with groups the service answers: "InstanceType or InstanceCount cannot be specified with
    InstanceGroups". The service model requires none of the three, nor ResourceConfig itself, since serverless jobs have no
    machines.
    Source: aws/sagemaker-python-sdk PR 5564; developer guide, train-heterogeneous-cluster; ResourceConfig in the service
    model (which required InstanceType and InstanceCount before there were groups).
    """
    resources = draft.get("ResourceConfig")
    if draft.is_serverless or (resources and resources.get("InstancePreferences")):
        return
    if resources is None:
        message = "is missing; write {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}"
        yield ("resource_config",), message
        return
    missing = [key for key in ("instance_type", "instance_count") if aws_name(key) not in resources]
    if draft.groups and len(missing) < 2:
        message = "cannot be used with instance_type or instance_count; delete one or the other"
        yield ("resource_config", "instance_groups"), message
    if not draft.groups and missing:
        yield ("resource_config", missing[0]), f"is missing; write {' and '.join(missing)}, or instance_groups"


@error("instance-count-positive")
def counts_are_positive(draft: Draft) -> Iterator[Mistake]:
    """A job, and each of its instance groups and placements, has at least one instance.

    Source: TrainingInstanceCount in the service model had a minimum of 1, and has 0 since botocore 1.27; a job with none
    never runs. PlacementSpecification.InstanceCount states it ("Minimum value of 1").
    """
    counted = ("", "InstanceGroups.", "InstancePreferences.", "InstancePlacementConfig.PlacementSpecifications.")
    for path, count in draft.each(*(f"ResourceConfig.{place}InstanceCount" for place in counted)):
        if count == 0:
            yield path, "is 0, but a job needs an instance; write at least 1"


@error("instance-group-names")
def group_names_differ(draft: Draft) -> Iterator[Mistake]:
    """Channels and scripts refer to instance groups by name, so each needs a unique name.

    Source: developer guide, train-heterogeneous-cluster: groups are referred to by name.
    """
    for path, name in repeated(draft.each("ResourceConfig.InstanceGroups.InstanceGroupName")):
        yield path, f"{name!r} is the name of an earlier group, too; rename one"


@error("placement-needs-ultra-servers")
def placement_needs_ultra_servers(draft: Draft) -> Iterator[Mistake]:
    """Instances can be placed only on UltraServers, such as those of ml.p6e-gb200.

    Source: ResourceConfig.InstancePlacementConfig in the service model ("Only applicable for UltraServer capacity").
    """
    others = [found.name for _, found in draft.instance_types if found.is_ultra_server is False]
    if others and draft.get("ResourceConfig.InstancePlacementConfig"):
        message = f"is for UltraServers (ml.p6e-gb200), and {others[0]} is not one; delete it"
        yield ("resource_config", "instance_placement_config"), message


@error("read-only-member")
def read_only_members_are_absent(draft: Draft) -> Iterator[Mistake]:
    """Some members are only returned by DescribeTrainingJob and cannot be requested.

    Source: ResourceConfig.SelectedInstanceType and .SelectedInstanceCount in the service model ("This field is read-only
    and isn't accepted in CreateTrainingJob requests").
    """
    for member in ("SelectedInstanceType", "SelectedInstanceCount"):
        if draft.get(f"ResourceConfig.{member}") is not None:
            place = ("request", "ResourceConfig", member)
            yield place, "is read-only: AWS returns it but does not accept it; delete it"


@error("instance-preferences-alone")
def preferences_replace_types(draft: Draft) -> Iterator[Mistake]:
    """Instance preferences exclude a type, groups, placement and spot instances.

    Source: ResourceConfig.InstancePreferences in the service model ("mutually exclusive with InstanceType, InstanceGroups,
    InstancePlacementConfig, and EnableManagedSpotTraining").
    """
    resources = draft.get("ResourceConfig") or {}
    if not resources.get("InstancePreferences"):
        return
    for key in ("instance_type", "instance_groups", "instance_placement_config"):
        if resources.get(aws_name(key)):
            yield ("resource_config", key), "cannot be used with instance_preferences, which replace it; delete one"
    if draft.is_spot:
        message = "cannot be used with instance_preferences, which use on-demand capacity and training plans; delete it"
        yield ("enable_managed_spot_training",), message


@error("instance-preferences-count")
def count_given_in_one_place(draft: Draft) -> Iterator[Mistake]:
    """With instance preferences the count is given once for all or for each of them; never for some, both or neither.

    Source: InstancePreference.InstanceCount in the service model ("SageMaker rejects requests that set InstanceCount on only
    some preferences, that set it both per preference and in ResourceConfig, or that omit it in both places").
    """
    resources = draft.get("ResourceConfig") or {}
    preferences = resources.get("InstancePreferences") or ()
    without = [index for index, each in enumerate(preferences) if each.get("InstanceCount") is None]
    count = resources.get("InstanceCount")
    if not preferences:
        return
    if len(without) == len(preferences) and count is None:
        yield ("resource_config", "instance_count"), "is missing; write it here, or in each of instance_preferences"
    elif len(without) < len(preferences) and count is not None:
        yield ("resource_config", "instance_count"), "is written in instance_preferences, too; delete one of them"
    elif without and count is None:
        message = "is missing here but not in others; write it in all of them, or once in resource_config"
        yield ("resource_config", "instance_preferences", without[0], "instance_count"), message


@error("instance-preferences-differ")
def preferences_differ(draft: Draft) -> Iterator[Mistake]:
    """An instance type may occur once in the preferences.

    Source: InstancePreference.InstanceType in the service model ("can appear only once in an InstancePreferences list").
    """
    for path, name in repeated(draft.each("ResourceConfig.InstancePreferences.InstanceType")):
        yield path, f"{name} is earlier in the list, too; delete one"


@error("training-plan-once")
def training_plans_in_one_place(draft: Draft) -> Iterator[Mistake]:
    """Training plans are given for each instance preference or for the job, not for both.

    Source: InstancePreference.TrainingPlanArns in the service model ("mutually exclusive with the job-level TrainingPlanArn").
    """
    if draft.get("ResourceConfig.TrainingPlanArn"):
        for path, each in draft.each("ResourceConfig.InstancePreferences"):
            if each.get("TrainingPlanArns"):
                message = "cannot be used with resource_config.training_plan_arn; delete one or the other"
                yield (*path, "training_plan_arns"), message
