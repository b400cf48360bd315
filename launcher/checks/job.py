"""Rules on the job itself: its name, what it runs, where it writes, how long."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Draft, Found, Rule


def name_given_once(draft: Draft) -> Iterator[Found]:
    """A job is named by `training_job_name`, used as it is, or by `base_name`, to which the launcher adds time and chance."""
    if draft.spec.training_job_name is not None and draft.spec.base_name is not None:
        yield ("base_name",), "names the job a second time; keep training_job_name (used as it is) or base_name"
    if draft.spec.training_job_name is None and draft.spec.base_name is None:
        yield ("base_name",), "is missing; write the beginning of the job's name, such as base_name: digits"


def one_of_image_and_algorithm(draft: Draft) -> Iterator[Found]:
    """The service takes exactly one of TrainingImage and AlgorithmName, and answers both or neither with an error."""
    image, algorithm = (
        draft.get("AlgorithmSpecification.TrainingImage"),
        draft.get("AlgorithmSpecification.AlgorithmName"),
    )
    if image is None and algorithm is None:
        yield ("image",), "is missing; write the container image to train in, or algorithm_name"
    elif image is not None and algorithm is not None:
        yield ("algorithm_name",), "stands beside image, but AWS takes only one of them; delete one"


def stopping_within_28_days(draft: Draft) -> Iterator[Found]:
    """StoppingCondition.MaxRuntimeInSeconds: the documentation's 28 days, which the model's shape does not hold."""
    seconds = draft.get("StoppingCondition.MaxRuntimeInSeconds")
    if seconds is not None and seconds > 28 * 24 * 3600:
        yield (
            ("stopping_condition", "max_runtime_in_seconds"),
            f"is {seconds}, but AWS stops at 28 days; write 2419200 or less",
        )


def spot_needs_max_wait(draft: Draft) -> Iterator[Found]:
    """Managed spot training needs MaxWaitTimeInSeconds, at least as long as MaxRuntimeInSeconds (developer guide)."""
    wait = draft.get("StoppingCondition.MaxWaitTimeInSeconds")
    runtime = draft.get("StoppingCondition.MaxRuntimeInSeconds")
    if draft.get("EnableManagedSpotTraining") and wait is None:
        yield (
            ("enable_managed_spot_training",),
            "needs stopping_condition.max_wait_time_in_seconds: how long to run and wait for capacity together",
        )
    if draft.get("EnableManagedSpotTraining") and wait is not None and runtime is not None and wait < runtime:
        yield (
            ("stopping_condition", "max_wait_time_in_seconds"),
            f"is {wait}, less than max_runtime_in_seconds ({runtime}); waiting includes running: write {runtime} or more",
        )


def max_wait_needs_spot(draft: Draft) -> Iterator[Found]:
    """The service refuses MaxWaitTimeInSeconds on a job that is not on spot instances."""
    if draft.get("StoppingCondition.MaxWaitTimeInSeconds") is not None and not draft.get("EnableManagedSpotTraining"):
        yield (
            ("stopping_condition", "max_wait_time_in_seconds"),
            "works only with spot instances; delete it or write enable_managed_spot_training: true",
        )


def spot_wants_checkpoints(draft: Draft) -> Iterator[Found]:
    """An interrupted spot job starts from zero where it keeps no checkpoints in S3 (developer guide)."""
    if draft.get("EnableManagedSpotTraining") and draft.get("CheckpointConfig") is None:
        yield (
            ("enable_managed_spot_training",),
            "without checkpoint_config, an interruption starts the training from zero",
        )


_SPOT = "enable_managed_spot_training: true\ncheckpoint_config: {s3_uri: s3://bucket/checkpoints/}\n"

RULES = (
    Rule("job-name", "error", name_given_once, wrong="training_job_name: other", right="base_name: mine"),
    Rule(
        "image-or-algorithm", "error", one_of_image_and_algorithm, wrong="algorithm_name: mine", right="image: mine:1"
    ),
    Rule(
        "max-runtime-28-days",
        "error",
        stopping_within_28_days,
        wrong="stopping_condition: {max_runtime_in_seconds: 2419201}",
        right="stopping_condition: {max_runtime_in_seconds: 2419200}",
    ),
    Rule(
        "spot-needs-max-wait",
        "error",
        spot_needs_max_wait,
        wrong=_SPOT + "stopping_condition: {max_runtime_in_seconds: 3600}",
        right=_SPOT + "stopping_condition: {max_runtime_in_seconds: 3600, max_wait_time_in_seconds: 3600}",
    ),
    Rule(
        "max-wait-needs-spot",
        "error",
        max_wait_needs_spot,
        wrong="stopping_condition: {max_runtime_in_seconds: 3600, max_wait_time_in_seconds: 3600}",
        right=_SPOT + "stopping_condition: {max_runtime_in_seconds: 3600, max_wait_time_in_seconds: 7200}",
    ),
    Rule(
        "spot-without-checkpoints",
        "warning",
        spot_wants_checkpoints,
        wrong="enable_managed_spot_training: true\nstopping_condition: {max_wait_time_in_seconds: 7200}",
        right=_SPOT + "stopping_condition: {max_wait_time_in_seconds: 7200}",
    ),
)
