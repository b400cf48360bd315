"""Rules on the job itself: its name, image or algorithm, settings, metrics and local paths."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from itertools import islice

from launcher.errors import SpecPath
from launcher.masking import holds_secret
from launcher.request.view import IMAGE, Draft
from launcher.rules.job.code import code_by_toolkit
from launcher.rules.rule import Mistake, error, warning
from launcher.spec.names import MAX_BASE, beginning
from sagemaker_channels import contract
from sagemaker_channels.start.references import references_in

_MANY_METRICS = 50  # AWS allows 40
_LONGEST_REGEX = 500  # characters that AWS allows; the service model's own check reports longer ones
# In the documentation of SubmitServiceJob; the service model has no bounds.
_HIGHEST_PRIORITY, _MOST_ATTEMPTS = 9999, 10
_IN_EVERY_DIALECT = ("missing )", "unbalanced parenthesis", "unterminated character set", "nothing to repeat")


@error("job-name")
def name_given_once(draft: Draft) -> Iterator[Mistake]:
    """A job's name is `training_job_name` as it is, or `base_name` with the time and random characters added."""
    if draft.spec.training_job_name is not None and draft.spec.base_name is not None:
        yield ("base_name",), "names the job a second time; keep either training_job_name (used as it is) or base_name"
    if draft.spec.training_job_name is None and draft.spec.base_name is None and not draft.is_named:
        yield ("base_name",), "is missing; write the beginning of the job's name, such as base_name: digits"


@warning("base-name-room")
def base_name_has_room(draft: Draft) -> Iterator[Mistake]:
    """A job's name has room for 42 characters of its base name, before the time and the random characters."""
    base = draft.spec.base_name or ""
    if len(beginning(base)) < len(base.rstrip("-")) and draft.spec.training_job_name is None and not draft.is_named:
        message = f"has {len(base):,} characters, but a job's name has room for {MAX_BASE} of them; write a shorter one"
        yield ("base_name",), message


@error("image-or-algorithm")
def one_of_image_and_algorithm(draft: Draft) -> Iterator[Mistake]:
    """The service accepts exactly one of TrainingImage and AlgorithmName, and refuses both or neither."""
    image, algorithm = map(draft.get, ("AlgorithmSpecification.TrainingImage", "AlgorithmSpecification.AlgorithmName"))
    if image is None and algorithm is None and not draft.is_serverless:
        yield IMAGE, "is missing; write the container image to train in, or algorithm_name"
    elif image is not None and algorithm is not None:
        message = "cannot be used with image, since AWS accepts only one of them; delete one"
        yield ("AlgorithmSpecification", "AlgorithmName"), message


@error("queue-settings")
def queue_is_whole(draft: Draft) -> Iterator[Mistake]:
    """A queue needs a name, accepts one kind of share, and has priorities from 0 to 9999 and 1 to 10 attempts."""
    queue = draft.spec.queue
    if queue is None:
        return
    if not queue.name:
        yield ("queue", "name"), "is missing; write the name of an AWS Batch queue of the type SAGEMAKER_TRAINING"
    if queue.share is not None and queue.quota_share is not None:
        yield ("queue", "quota_share"), "excludes share, since a queue has one scheduling policy; delete one of them"
    if queue.priority is not None and not 0 <= queue.priority <= _HIGHEST_PRIORITY:
        yield ("queue", "priority"), f"is {queue.priority}; write a whole number from 0 to {_HIGHEST_PRIORITY}"
    if queue.attempts is not None and not 1 <= queue.attempts <= _MOST_ATTEMPTS:
        yield ("queue", "attempts"), f"is {queue.attempts}; write a whole number from 1 to {_MOST_ATTEMPTS}"


@warning("metric-regex-group")
def metrics_have_a_group(draft: Draft) -> Iterator[Mistake]:
    """A metric's value is the match of the first group of its regular expression; without a group it has no value."""
    for path, regex in _regexes(draft):
        if regex and _regex_error(regex) is None and not re.search(r"(?<!\\)\((?!\?[:=!<])|\(\?<[A-Za-z]", regex):
            message = "has no group, so no value can be read; put the number's pattern in parentheses: loss=([0-9.]+)"
            yield path, message


@warning("metric-regex")
def metrics_compile(draft: Draft) -> Iterator[Mistake]:
    """A metric's regular expression must be valid: with an unpaired bracket, for example, it matches nothing."""
    for path, regex in _regexes(draft):
        if broken := _regex_error(regex):
            remedy = "fix it, or put a backslash before a literal character"
            yield path, f"is not a valid regular expression: {broken}; {remedy}"


def _regexes(draft: Draft) -> Iterator[tuple[SpecPath, str]]:
    """Return a job's first regular expressions, somewhat more than AWS allows: a file of 1 MB can have thousands."""
    return islice(draft.each("AlgorithmSpecification.MetricDefinitions.Regex"), _MANY_METRICS)


def _regex_error(regex: str) -> str | None:
    """Return the error of a regular expression that is invalid in any dialect; None if none is known."""
    if len(regex) > _LONGEST_REGEX:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(regex)
    except re.error as error:
        reason = str(error)
        return reason if reason.startswith(_IN_EVERY_DIALECT) else None
    except (OverflowError, RecursionError):
        return None
    return None


@warning("credentials-in-settings")
def settings_hold_no_credentials(draft: Draft) -> Iterator[Mistake]:
    """A job gets credentials from its role; keys in its settings can be read by everyone who may describe the job."""
    for path, value in draft.settings():
        name = str(path[-1])
        if name.lower() in ("aws_secret_access_key", "aws_session_token"):
            yield path, "is a secret that DescribeTrainingJob shows; delete it: the job has its role's credentials"
        elif holds_secret(name, value):
            place = "in its place" if path[0] == "Environment" else "in environment instead"
            remedy = f"write ${{secretsmanager:ID}} or ${{ssm:NAME}} {place}, which the job's role reads"
            remedy = remedy if draft.spec.code else "let the program read it from Secrets Manager, by the job's role"
            yield path, f"seems to be a secret, and DescribeTrainingJob shows it; store it, and {remedy}"


@error("secret-not-readable")
def secrets_can_be_read(draft: Draft) -> Iterator[Mistake]:
    """What a job's settings name as `${secretsmanager:ID}` or `${ssm:NAME}` is read by our start of its code, over the network."""
    for path, value in draft.settings():
        if not (references := references_in([value])):
            continue
        if draft.spec.code is None:
            why = "is read only by jobs with code:, at its start; let the program of the image read it"
        elif code_by_toolkit(draft):
            why = "is not read if the toolkit starts the code; write code.delivery: channel, with a channel free"
        elif draft.get("EnableNetworkIsolation"):
            why = "cannot be read with enable_network_isolation; delete that, or pass the data by a channel"
        else:
            continue
        yield path, f"{references[0]} {why}"


@warning("secret-argument")
def secrets_are_not_arguments(draft: Draft) -> Iterator[Mistake]:
    """A program's arguments are recorded by process lists, errors and experiment trackers, so a secret belongs in `environment`."""
    code = draft.spec.code
    for path, value in draft.settings() if code and code.arguments != "none" else ():
        if path[0] == "HyperParameters" and (references := references_in([value])):
            what = (
                f"{references[0]} becomes an argument of the program, which process lists, errors and trackers record"
            )
            yield path, f"the value of {what}; write it in environment, or pass no arguments: code.arguments: none"


@warning("tensor-board-path")
def tensor_board_path_is_free(draft: Draft) -> Iterator[Mistake]:
    """TensorBoard's files cannot be written to folders of SageMaker, the system or the GPU driver."""
    path = draft.get("TensorBoardOutputConfig.LocalPath") or ""
    if path.rstrip("/") == f"{contract.BASE_DIR}/output/tensorboard":  # the default, written out
        return
    for reserved in (contract.BASE_DIR, "/tmp", "/usr/local/nvidia"):
        if path == reserved or path.startswith(f"{reserved}/"):
            what = f"{path!r} is below {reserved}, which AWS has refused as reserved"
            yield ("TensorBoardOutputConfig", "LocalPath"), f"{what}; write another such as /tensorboard"


@warning("local-path-absolute")
def local_paths_are_absolute(draft: Draft) -> Iterator[Mistake]:
    """A path in the container that SageMaker copies from or to is a full path; no folder is defined to start from."""
    places = ("CheckpointConfig.LocalPath", "DebugHookConfig.LocalPath", "TensorBoardOutputConfig.LocalPath")
    for path, folder in draft.each(*places):
        if folder and not folder.startswith("/"):
            yield path, f"{folder!r} is not a full path in the container; begin it with /"
