"""Rules on how long a job may run and wait, on spot instances, and on warm pools: machines kept for the next job."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.errors import SpecPath
from launcher.request.view import Draft
from launcher.rules.rule import Mistake, error, warning
from launcher.spec.aws_model import shapes
from sagemaker_channels import contract

_MINUTE = 60  # seconds
_LONGEST = 28 * 24 * 3600  # seconds

_RUNTIME: SpecPath = ("StoppingCondition", "MaxRuntimeInSeconds")
_WAIT: SpecPath = ("StoppingCondition", "MaxWaitTimeInSeconds")
_PENDING: SpecPath = ("StoppingCondition", "MaxPendingTimeInSeconds")


@warning("max-runtime-missing")
def runtime_is_set(draft: Draft) -> Iterator[Mistake]:
    """Without MaxRuntimeInSeconds a job is stopped after one day, finished or not."""
    if draft.get("StoppingCondition.MaxRuntimeInSeconds") is None and not draft.is_serverless:
        yield _RUNTIME, "is missing, so AWS stops the job after 1 day; write how long it may run, such as 12h"


@error("max-runtime-28-days")
def stopping_within_28_days(draft: Draft) -> Iterator[Mistake]:
    """A job can run for 28 days at most."""
    seconds = draft.get("StoppingCondition.MaxRuntimeInSeconds")
    if seconds is not None and seconds > _LONGEST:
        yield _RUNTIME, f"is {seconds}, but AWS stops at 28 days; write {_LONGEST} or less"


@warning("max-runtime-short")
def runtime_is_long_enough(draft: Draft) -> Iterator[Mistake]:
    """No job trains anything within a minute, since downloading data and image takes longer; hours were probably meant."""
    seconds = draft.get("StoppingCondition.MaxRuntimeInSeconds")
    if seconds is not None and 0 < seconds < _MINUTE:
        message = f"is {seconds} seconds, too short to train; write {seconds}h for hours, {seconds}m for minutes"
        yield _RUNTIME, message


@warning("max-pending-needs-accelerators")
def pending_time_needs_accelerators(draft: Draft) -> Iterator[Mistake]:
    """MaxPendingTimeInSeconds takes effect only for jobs on instances with GPUs or other accelerators."""
    accelerated = [found.is_accelerated for _, found in draft.instance_types]
    if (
        draft.get("StoppingCondition.MaxPendingTimeInSeconds") is not None
        and accelerated
        and all(each is False for each in accelerated)
    ):
        yield _PENDING, "has no effect here: it applies only to ml.p, ml.g and ml.trn instances; delete it"


@error("spot-needs-max-wait")
def spot_needs_max_wait(draft: Draft) -> Iterator[Mistake]:
    """Managed spot training needs MaxWaitTimeInSeconds, at least as long as MaxRuntimeInSeconds."""
    wait = draft.get("StoppingCondition.MaxWaitTimeInSeconds")
    runtime = draft.get("StoppingCondition.MaxRuntimeInSeconds")
    if draft.is_spot and wait is None:
        remedy = "write how long to run and wait for capacity together"
        yield ("EnableManagedSpotTraining",), f"needs stopping_condition.max_wait_time_in_seconds; {remedy}"
    if draft.is_spot and wait is not None and runtime is not None and wait < runtime:
        remedy = f"waiting includes running: write {runtime} or more"
        yield _WAIT, f"is {wait}, less than max_runtime_in_seconds ({runtime}); {remedy}"


@error("max-wait-needs-spot")
def max_wait_needs_spot(draft: Draft) -> Iterator[Mistake]:
    """The service refuses MaxWaitTimeInSeconds on a job that is not on spot instances."""
    if draft.get("StoppingCondition.MaxWaitTimeInSeconds") is not None and not draft.is_spot:
        yield _WAIT, "works only with spot instances; delete it or write enable_managed_spot_training: true"


@warning("spot-without-checkpoints")
def spot_needs_checkpoints(draft: Draft) -> Iterator[Mistake]:
    """An interrupted spot job starts from zero if it keeps no checkpoints in S3."""
    if draft.is_spot and draft.get("CheckpointConfig") is None:
        remedy = "add checkpoint_config: {s3_uri: s3://bucket/folder/}"
        yield ("EnableManagedSpotTraining",), f"restarts the training from zero after an interruption; {remedy}"


_KEEP_ALIVE: SpecPath = ("ResourceConfig", "KeepAlivePeriodInSeconds")


def _keep_alive(draft: Draft) -> int:
    return draft.get("ResourceConfig.KeepAlivePeriodInSeconds") or 0


@error("warm-pool-not-on-spot")
def not_on_spot(draft: Draft) -> Iterator[Mistake]:
    """Spot instances cannot be kept warm."""
    if _keep_alive(draft) and draft.is_spot:
        yield _KEEP_ALIVE, "cannot be used with spot instances; delete it, or enable_managed_spot_training"


@error("warm-pool-no-instance-groups")
def not_with_instance_groups(draft: Draft) -> Iterator[Mistake]:
    """A heterogeneous cluster cannot be kept warm."""
    if _keep_alive(draft) and draft.groups:
        yield _KEEP_ALIVE, "cannot be used with instance_groups; delete it, or use one instance_type"


@warning("warm-pool-over-an-hour")
def within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """The developer guide allows keeping machines for an hour, the service model for six."""
    if 3600 < _keep_alive(draft) <= shapes()["KeepAlivePeriodInSeconds"]["max"]:
        what = f"is {_keep_alive(draft)}, but the developer guide allows 3600, so AWS may refuse it"
        yield _KEEP_ALIVE, f"{what}; write 3600 or less"


@warning("warm-pool-cache")
def cache_is_kept(draft: Draft) -> Iterator[Mistake]:
    """Without a warm pool, nothing of its cache directory is kept for the next job."""
    path = f"{contract.BASE_DIR}/{contract.WARM_POOL_DIR}"
    for place, value in draft.settings():
        if not _keep_alive(draft) and (path in value or value == "warm-pool"):
            remedy = "set resource_config.keep_alive_period_in_seconds"
            yield place, f"is a cache for the next job, for which no machine is kept; {remedy}"
