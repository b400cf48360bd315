"""Rules on the job itself: its name, what it runs, what it is told and what is read from its log."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from entrypoints import contract
from launcher.checks.rule import Found, Rule
from launcher.request.view import Draft
from launcher.spec.names import MAX_BASE, beginning

_MANY_METRICS = 50  # AWS takes 40
_LONGEST_REGEX = 500  # that AWS takes; one that is longer has been told of
_IN_EVERY_DIALECT = ("missing )", "unbalanced parenthesis", "unterminated character set", "nothing to repeat")


def name_given_once(draft: Draft) -> Iterator[Found]:
    """A job is named by `training_job_name`, used as it is, or by `base_name`, to which the launcher adds time and chance.

    A job's name is never free again within an account and region (CreateTrainingJobRequest.TrainingJobName), so a name of
    one's own serves once. That is why there are two keys, and why only one of them can stand.
    """
    if draft.spec.training_job_name is not None and draft.spec.base_name is not None:
        yield ("base_name",), "names the job a second time; keep training_job_name (used as it is) or base_name"
    if draft.spec.training_job_name is None and draft.spec.base_name is None and not draft.is_named:
        yield ("base_name",), "is missing; write the beginning of the job's name, such as base_name: digits"


def base_name_has_room(draft: Draft) -> Iterator[Found]:
    """A job's name has room for 42 characters of its base name, before the time and the random characters.

    Names have 63 characters at most (TrainingJobName in the service model). Jobs whose base names differ only behind the 42nd
    would look alike.
    """
    base = draft.spec.base_name or ""
    if len(beginning(base)) < len(base.rstrip("-")) and draft.spec.training_job_name is None and not draft.is_named:
        yield (
            ("base_name",),
            f"has {len(base):,} characters, but a job's name takes over {MAX_BASE} of them; write a shorter one",
        )


def one_of_image_and_algorithm(draft: Draft) -> Iterator[Found]:
    """The service takes exactly one of TrainingImage and AlgorithmName, and answers both or neither with an error.

    The service model requires neither, since serverless jobs have no use for them, so botocore sends a job without both.
    Source: AlgorithmSpecification.AlgorithmName in the service model ("mutually exclusive"; neither gives a null error).
    """
    image, algorithm = (
        draft.get("AlgorithmSpecification.TrainingImage"),
        draft.get("AlgorithmSpecification.AlgorithmName"),
    )
    if image is None and algorithm is None and not draft.is_serverless:
        yield ("image",), "is missing; write the container image to train in, or algorithm_name"
    elif image is not None and algorithm is not None:
        yield ("algorithm_name",), "stands beside image, but AWS takes only one of them; delete one"


def metrics_have_a_group(draft: Draft) -> Iterator[Found]:
    """A metric's value is what the first group of its regular expression matches; without a group there is none.

    Source: developer guide, training-metrics: the expression is searched in the log, and the text inside its parentheses
    becomes the value.
    """
    for index, metric in enumerate(_metrics(draft)):
        regex = metric.get("Regex")
        if regex and _broken(regex) is None and not re.search(r"(?<!\\)\((?!\?[:=!<])|\(\?<[A-Za-z]", regex):
            yield (
                ("metric_definitions", index, "regex"),
                "has no group, so no value can be read; put what matches the number in parentheses: loss=([0-9.]+)",
            )


def metrics_compile(draft: Draft) -> Iterator[Found]:
    """A metric's regular expression has its brackets in pairs; one that has not matches nothing.

    Only what is wrong in every dialect is looked for, since the service's is not Python's.
    Source: developer guide, training-metrics; MetricDefinition.Regex in the service model takes any text.
    """
    for index, metric in enumerate(_metrics(draft)):
        if broken := _broken(metric.get("Regex") or ""):
            message = f"is no regular expression: {broken}; mend it, or put a backslash before what stands for itself"
            yield ("metric_definitions", index, "regex"), message


def _metrics(draft: Draft) -> Sequence[Mapping[str, Any]]:
    """The metrics of a job, not more than can be meant: a file of 1 MB can hold thousands."""
    return (draft.get("AlgorithmSpecification.MetricDefinitions") or ())[:_MANY_METRICS]


def _broken(regex: str) -> str | None:
    """What is wrong with a regular expression in any dialect; None where nothing is known to be."""
    if len(regex) > _LONGEST_REGEX:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(regex)
    except re.error as error:
        said = str(error)
        return said if said.startswith(_IN_EVERY_DIALECT) else None
    except (OverflowError, RecursionError):
        return None
    return None


def keys_stay_out(draft: Draft) -> Iterator[Found]:
    """AWS keys have no business in a job: its role gives it credentials, and settings can be read by whoever may list jobs.

    Source: CreateTrainingJobRequest.Environment and .HyperParameters in the service model ("Do not include any
    security-sensitive information including account access IDs, secrets, or tokens").
    """
    for key, member in (("environment", "Environment"), ("hyperparameters", "HyperParameters")):
        for name in draft.request.get(member, ()):
            if name.lower() in ("aws_secret_access_key", "aws_session_token"):
                yield (
                    (key, name),
                    "is a secret that DescribeTrainingJob shows; delete it: the job has its role's credentials",
                )


def tensor_board_path_is_free(draft: Draft) -> Iterator[Found]:
    """TensorBoard's files cannot be written where SageMaker, the system or the GPU driver has its own.

    The service has answered: "LocalPath" of "TensorBoardOutputConfig" cannot start with the following reserved path:
    [/opt/ml, /tmp, /usr/local/nvidia]. It is a warning, since the API reference names a default inside of the first.
    Source: aws/amazon-sagemaker-examples issue 3620.
    """
    path = draft.get("TensorBoardOutputConfig.LocalPath") or ""
    if path.rstrip("/") == f"{contract.BASE_DIR}/output/tensorboard":  # the default, written out
        return
    for reserved in (contract.BASE_DIR, "/tmp", "/usr/local/nvidia"):
        if path == reserved or path.startswith(f"{reserved}/"):
            yield (
                ("tensor_board_output_config", "local_path"),
                f"{path!r} is below {reserved}, which AWS has refused as reserved; write another such as /tensorboard",
            )


def local_paths_are_absolute(draft: Draft) -> Iterator[Found]:
    """A path in the container that SageMaker copies from or to is a full path; relative to what would be unknown.

    Source: CheckpointConfig, DebugHookConfig and TensorBoardOutputConfig in the service model, whose defaults are all full
    paths; the model's pattern takes anything.
    """
    for key, member in (
        ("checkpoint_config", "CheckpointConfig"),
        ("debug_hook_config", "DebugHookConfig"),
        ("tensor_board_output_config", "TensorBoardOutputConfig"),
    ):
        path = draft.get(f"{member}.LocalPath")
        if path and not path.startswith("/"):
            yield (key, "local_path"), f"{path!r} is not a full path in the container; begin it with /"


_TENSOR_BOARD = "tensor_board_output_config: {s3_output_path: s3://bucket/tensorboard/, local_path: "
_IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine:1"
_METRIC = 'metric_definitions: [{name: loss, regex: "loss=%s"}]'

RULES = (
    Rule("job-name", "error", name_given_once, wrong="training_job_name: other", right="base_name: mine"),
    Rule(
        "base-name-room", "warning", base_name_has_room, wrong=f"base_name: {'a' * 43}", right=f"base_name: {'a' * 42}"
    ),
    Rule(
        "image-or-algorithm",
        "error",
        one_of_image_and_algorithm,
        wrong="algorithm_name: mine",
        right=f"image: {_IMAGE}",
    ),
    Rule("metric-regex-group", "warning", metrics_have_a_group, wrong=_METRIC % "[0-9.]+", right=_METRIC % "([0-9.]+)"),
    Rule("metric-regex", "warning", metrics_compile, wrong=_METRIC % "([0-9.]+", right=_METRIC % "([0-9.]+)"),
    Rule(
        "credentials-in-settings",
        "warning",
        keys_stay_out,
        wrong="environment: {AWS_SECRET_ACCESS_KEY: secret}",
        right="environment: {AWS_REGION: eu-west-1}",
    ),
    Rule(
        "tensor-board-path",
        "warning",
        tensor_board_path_is_free,
        wrong=_TENSOR_BOARD + "/opt/ml/checkpoints/tb}",
        right=_TENSOR_BOARD + "/tensorboard}",
    ),
    Rule(
        "local-path-absolute",
        "warning",
        local_paths_are_absolute,
        wrong="checkpoint_config: {s3_uri: s3://bucket/checkpoints/, local_path: checkpoints}",
        right="checkpoint_config: {s3_uri: s3://bucket/checkpoints/, local_path: /checkpoints}",
    ),
)
