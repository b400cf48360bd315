"""Rules on the hyperparameters, metrics and machines of AWS's built-in algorithms. The image shows which one runs."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.built_in.facts import facts
from launcher.checks.job.network import is_of_marketplace
from launcher.checks.rule import Mistake, error, warning
from launcher.request.image_uris import built_in_algorithm
from launcher.request.view import Draft

_HOUR = 3600  # seconds


@warning("built-in-hyperparameter-missing")
def hyperparameters_that_it_needs(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm fails without the hyperparameters that its page marks as required."""
    given = draft.request.get("HyperParameters", {})
    several = draft.built_in == "xgboost" and str(given.get("objective")).startswith("multi:")
    needed = (*facts(draft).hyperparameters, *(["num_class"] if several else []))
    for name in [name for name in needed if name not in given]:
        yield ("hyperparameters", name), f"is missing, and {draft.built_in} requires it; add it"


@warning("built-in-hyperparameter-quotes")
def hyperparameters_are_plain(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm reads hyperparameters as they are; JSON's quotes, which script mode sends, would be part of them."""
    if facts(draft).needs:
        for name, value in draft.request.get("HyperParameters", {}).items():
            if len(value) >= 2 and value[0] == value[-1] == '"':
                message = f"has quotes inside, which {draft.built_in} does not remove; delete them"
                yield ("hyperparameters", name), message


@warning("built-in-metrics")
def metrics_are_its_own(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm has its own metrics, which a job cannot redefine."""
    algorithm = built_in_algorithm(draft.image)
    if algorithm and draft.get("AlgorithmSpecification.MetricDefinitions"):
        yield ("metric_definitions",), f"are refused for {algorithm}, which has its own; delete them"


@error("built-in-instance-type")
def machines_that_it_runs_on(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms train on GPUs only, LDA on a CPU only."""
    known = facts(draft)
    for path, found in draft.instance_types:
        if known.gpu_only and found.has_gpu is False:
            what = f"{found.name} has no GPU, and {draft.built_in} trains on GPUs only"
            yield path, f"{what}; write one such as ml.g5.xlarge"
        elif known.cpu_only and found.is_accelerated:
            what = f"{found.name} is not for {draft.built_in}, which trains on CPUs only"
            yield path, f"{what}; write one such as ml.m5.xlarge"


@error("built-in-one-instance")
def instances_that_it_takes(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms train on one instance only: LDA, Object2Vec, semantic segmentation and seq2seq."""
    count = draft.instance_count or 0
    if facts(draft).one_instance and count > 1:
        yield ("resource_config", "instance_count"), f"is {count}, but {draft.built_in} trains on one instance; write 1"


@error("built-in-spot-wait")
def spot_wait_within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm that keeps no checkpoints may wait for spot capacity, and run, for an hour at most."""
    known, wait = facts(draft), draft.get("StoppingCondition.MaxWaitTimeInSeconds") or 0
    if known.needs and not known.keeps_checkpoints and draft.is_spot and wait > _HOUR:
        what = f"is {wait}, but AWS allows {_HOUR} on spot for {draft.built_in}, which keeps no checkpoints"
        yield ("stopping_condition", "max_wait_time_in_seconds"), f"{what}; write {_HOUR}"


@warning("marketplace-spot-wait")
def marketplace_wait_within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """An algorithm of AWS Marketplace may wait for spot capacity for an hour at most, unless it keeps checkpoints."""
    wait = draft.get("StoppingCondition.MaxWaitTimeInSeconds") or 0
    if is_of_marketplace(draft) and draft.is_spot and wait > _HOUR:
        what = f"is {wait}, but AWS allows algorithms of AWS Marketplace without checkpoints {_HOUR}"
        yield ("stopping_condition", "max_wait_time_in_seconds"), f"{what}; write {_HOUR} if it keeps none"
