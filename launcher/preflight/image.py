"""Images in ECR: whether repository and tag exist, where the registry answers this account.

Registries of others, AWS's own among them, answer whom they allow. Where theirs knows no such repository, that can mean that
it is hidden, so only a missing tag or digest of a repository that answers is taken for wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from launcher.aws.account import AwsError
from launcher.errors import SpecPath
from launcher.nearest import did_you_mean
from launcher.preflight.asking import each, own_account
from launcher.preflight.check import Check, Found, Subject
from launcher.request.images import image_region

_LISTS = (
    ("debug_rule_configurations", "DebugRuleConfigurations"),
    ("profiler_rule_configurations", "ProfilerRuleConfigurations"),
)


class EcrImage(NamedTuple):
    """An image's parts: of `ACCOUNT.dkr.ecr.REGION.amazonaws.com/repository:tag`."""

    account: str
    region: str
    repository: str
    tag: str
    digest: str


def ecr_image(uri: str) -> EcrImage | None:
    """The parts of an image of ECR; None for other registries."""
    region = image_region(uri)
    if region is None:
        return None
    name, _, digest = uri.partition("/")[2].partition("@")
    repository, _, tag = name.partition(":")
    return EcrImage(uri[:12], region, repository, tag if tag or digest else "latest", digest)


def images_exist(subject: Subject) -> Iterator[Found]:
    """Ask ECR about the training image, and about those of the debugger's and profiler's rules."""
    draft = subject.draft
    if draft.get("AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode") == "Vpc":
        named: list[tuple[SpecPath, str]] = []
    else:
        named = [(("image",), draft.image)]
    for key, member in _LISTS:
        for index, rule in enumerate(draft.request.get(member, ())):
            named.append(((key, index, "rule_evaluator_image"), rule.get("RuleEvaluatorImage", "")))
    images = [(path, image) for path, uri in named if (image := ecr_image(uri)) is not None]
    yield from each(subject, images, lambda path, image: _look(subject, path, image))


def _look(subject: Subject, path: SpecPath, image: EcrImage) -> Iterator[Found]:
    here = subject.account.region
    if image.region != here:
        if subject.plan.spec.region is None:  # else the rule image-region has told
            yield path, "image-elsewhere", f"lies in {image.region}, but the job runs in {here}; use an image of {here}"
        return
    is_own = image.account == own_account(subject)
    wanted = {"imageDigest": image.digest} if image.digest else {"imageTag": image.tag}
    try:
        subject.ask(
            "ecr", "describe_images", registryId=image.account, repositoryName=image.repository, imageIds=[wanted]
        )
    except AwsError as error:
        if error.code == "RepositoryNotFoundException" and is_own:
            hint = did_you_mean(image.repository, _repositories(subject))
            yield (
                path,
                "image-missing",
                f"the registry has no repository {image.repository!r} in {here}{hint or '; push the image'}",
            )
        elif error.code == "ImageNotFoundException":
            yield path, "image-missing", _no_such_image(subject, image)
        else:
            raise


def _no_such_image(subject: Subject, image: EcrImage) -> str:
    if image.digest:
        return (
            f"the repository {image.repository!r} has no image {image.digest[:19]}...; it was deleted, or never pushed"
        )
    tags = _tags(subject, image)
    said = did_you_mean(image.tag, tags) or (f"; it has {', '.join(tags[:5])}" if tags else "; push the image")
    return f"the repository {image.repository!r} has no tag {image.tag!r}{said}"


def _tags(subject: Subject, image: EcrImage) -> list[str]:
    """Some of a repository's tags; none where they may not be listed."""
    try:
        answer = subject.ask(
            "ecr",
            "list_images",
            registryId=image.account,
            repositoryName=image.repository,
            filter={"tagStatus": "TAGGED"},
        )
    except AwsError:
        return []
    return [each["imageTag"] for each in answer.get("imageIds", ()) if "imageTag" in each]


def _repositories(subject: Subject) -> list[str]:
    """Some of the own registry's repositories; none where they may not be listed."""
    try:
        return [each["repositoryName"] for each in subject.ask("ecr", "describe_repositories").get("repositories", ())]
    except AwsError:
        return []


CHECK = Check(
    "image",
    images_exist,
    {
        "image-elsewhere": ("error", "The image lies in another region than the job's, which cannot pull it."),
        "image-missing": (
            "error",
            "The image's repository, tag or digest does not exist; the job ends before it starts.",
        ),
    },
)
