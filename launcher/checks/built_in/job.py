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
    """A built-in algorithm fails without the hyperparameters that its page marks as required.

    Source: developer guide, the pages of each algorithm's hyperparameters. It is a warning, since newer versions of some
    algorithms infer what older ones required.
    """
    given = draft.request.get("HyperParameters", {})
    several = draft.built_in == "xgboost" and str(given.get("objective")).startswith("multi:")
    needed = (*facts(draft).hyperparameters, *(["num_class"] if several else []))
    for name in [name for name in needed if name not in given]:
        yield ("hyperparameters", name), f"is missing, and {draft.built_in} requires it; add it"


@warning("built-in-hyperparameter-quotes")
def hyperparameters_are_plain(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm reads hyperparameters as they are; JSON's quotes, which script mode sends, would be part of them.

    Source: aws/sagemaker-python-sdk: estimators of frameworks send JSON, those of algorithms send plain strings.
    """
    if facts(draft).needs:
        for name, value in draft.request.get("HyperParameters", {}).items():
            if len(value) >= 2 and value[0] == value[-1] == '"':
                message = f"has quotes inside, which {draft.built_in} does not remove; delete them"
                yield ("hyperparameters", name), message


@warning("built-in-metrics")
def metrics_are_its_own(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm has its own metrics, which a job cannot redefine.

    The service answers: "You can't override the metric definitions for Amazon SageMaker algorithms. Please retry the request
    without specifying metric definitions". It decides by the image, so a script in XGBoost's image is refused, too. It is a
    warning, since DescribeTrainingJob returns the algorithm's own, which requests made from its responses then contain.
    Source: awslabs/mlspace PR 52, which catches this message; developer guide, training-metrics.
    """
    algorithm = built_in_algorithm(draft.image)
    if algorithm and draft.get("AlgorithmSpecification.MetricDefinitions"):
        yield ("metric_definitions",), f"are refused for {algorithm}, which has its own; delete them"


@error("built-in-instance-type")
def machines_that_it_runs_on(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms train on GPUs only, LDA on a CPU only.

    Image classification, object detection, semantic segmentation and seq2seq need a GPU (P2, P3, G4dn, G5).
    Source: developer guide, common-info-all-im-models, image-classification, semantic-segmentation, seq-2-seq, lda.
    """
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
    """Some built-in algorithms train on one instance only: LDA, Object2Vec, semantic segmentation and seq2seq.

    Source: developer guide, common-info-all-im-models, lda, object2vec, semantic-segmentation, seq-2-seq.
    """
    count = draft.instance_count or 0
    if facts(draft).one_instance and count > 1:
        yield ("resource_config", "instance_count"), f"is {count}, but {draft.built_in} trains on one instance; write 1"


@error("built-in-spot-wait")
def spot_wait_within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm that keeps no checkpoints may wait for spot capacity, and run, for an hour at most.

    Those that keep checkpoints are image classification, object detection, semantic segmentation and XGBoost.
    Source: developer guide, model-managed-spot-training and model-checkpoints ("SageMaker does not allow a maximum wait time
    greater than an hour").
    """
    known, wait = facts(draft), draft.get("StoppingCondition.MaxWaitTimeInSeconds") or 0
    if known.needs and not known.keeps_checkpoints and draft.is_spot and wait > _HOUR:
        what = f"is {wait}, but AWS allows {_HOUR} on spot for {draft.built_in}, which keeps no checkpoints"
        yield ("stopping_condition", "max_wait_time_in_seconds"), f"{what}; write {_HOUR}"


@warning("marketplace-spot-wait")
def marketplace_wait_within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """An algorithm of AWS Marketplace may wait for spot capacity for an hour at most, unless it keeps checkpoints.

    Whether it does is not known offline, so this is a warning.
    Source: developer guide, model-managed-spot-training.
    """
    wait = draft.get("StoppingCondition.MaxWaitTimeInSeconds") or 0
    if is_of_marketplace(draft) and draft.is_spot and wait > _HOUR:
        what = f"is {wait}, but AWS allows algorithms of AWS Marketplace without checkpoints {_HOUR}"
        yield ("stopping_condition", "max_wait_time_in_seconds"), f"{what}; write {_HOUR} if it keeps none"
