"""Rules on serverless jobs: fine-tunings and evaluations for which SageMaker chooses machine and image."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Mistake, error, warning
from launcher.request.view import Draft

_MODEL = "'arn:aws:sagemaker:eu-west-1:aws:hub-content/SageMakerPublicHub/Model/a/1.0.0'"
_JOB = "image: null\nresource_config: %s\nserverless_job_config: {base_model_arn: " + _MODEL + ", job_type: %s}\n"
_CONVERSE = "channels: {train: {s3_uri: s3://bucket/train/, s3_data_type: Converse}}\n"


@error("serverless-volume-size", _JOB % ("%s", "FineTuning"), wrong="{volume_size_in_gb: 50}", right="null")
def volume_is_chosen(draft: Draft) -> Iterator[Mistake]:
    """SageMaker chooses the volume of a serverless job.

    Source: ResourceConfig.VolumeSizeInGB in the service model ("SageMaker automatically selects the volume size for
    serverless training jobs. You cannot customize this setting.").
    """
    if draft.is_serverless and draft.get("ResourceConfig.VolumeSizeInGB") is not None:
        yield ("resource_config", "volume_size_in_gb"), "cannot be chosen for a serverless job; delete it"


@error("serverless-evaluation-type", _JOB % ("null", "Evaluation%s"), right=", evaluation_type: BenchmarkEvaluation")
def evaluations_have_a_type(draft: Draft) -> Iterator[Mistake]:
    """A serverless evaluation needs its type.

    Source: ServerlessJobConfig.EvaluationType in the service model ("Required when serverless job type is Evaluation").
    """
    if draft.get("ServerlessJobConfig.JobType") == "Evaluation" and not draft.get("ServerlessJobConfig.EvaluationType"):
        yield (
            ("serverless_job_config", "evaluation_type"),
            "is missing, and job_type Evaluation needs it; write BenchmarkEvaluation, CustomScorerEvaluation or"
            " LLMAJEvaluation",
        )


@warning("channel-converse-needs-serverless", _CONVERSE + "%s", right=_JOB % ("null", "FineTuning"))
def conversations_are_for_fine_tuning(draft: Draft) -> Iterator[Mistake]:
    """Conversations are data for fine-tunings that SageMaker runs itself; other images may not know their files.

    Source: S3DataSource.S3DataType in the service model (Converse: "conversational messages ... used for training and
    fine-tuning foundational models").
    """
    if not draft.is_serverless:
        for entry in draft.entries:
            if entry.get("S3DataType") == "Converse":
                message = "'Converse' is for serverless jobs; write S3Prefix, or serverless_job_config"
                yield entry.path("s3_data_type"), message


RULES = (volume_is_chosen, evaluations_have_a_type, conversations_are_for_fine_tuning)
