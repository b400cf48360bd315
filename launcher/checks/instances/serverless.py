"""Rules on serverless jobs: fine-tunings and evaluations for which SageMaker chooses machine and image."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Mistake, error, warning
from launcher.request.view import Draft


@error("serverless-volume-size")
def volume_is_chosen(draft: Draft) -> Iterator[Mistake]:
    """SageMaker chooses the volume of a serverless job.

    Source: ResourceConfig.VolumeSizeInGB in the service model ("SageMaker automatically selects the volume size for
    serverless training jobs. You cannot customize this setting.").
    """
    if draft.is_serverless and draft.get("ResourceConfig.VolumeSizeInGB") is not None:
        yield ("resource_config", "volume_size_in_gb"), "cannot be chosen for a serverless job; delete it"


@error("serverless-evaluation-type")
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


@warning("channel-converse-needs-serverless")
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
