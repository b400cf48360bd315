"""Images in ECR: whether repository and tag exist, if the registry answers this account.

Other accounts' registries, AWS's own included, answer only those they allow. A repository that one of them does not know may
only be hidden, so only a missing tag or digest in a repository that answers is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from launcher.aws.account import AwsError
from launcher.errors import SpecPath, did_you_mean
from launcher.preflight.check import Check, Finding, Subject
from launcher.preflight.quota.machines import RULE_LISTS
from launcher.request.images import image_region


class EcrImage(NamedTuple):
    """The parts of `ACCOUNT.dkr.ecr.REGION.amazonaws.com/repository:tag`."""

    account: str
    region: str
    repository: str
    tag: str
    digest: str


def ecr_image(uri: str) -> EcrImage | None:
    """Return the parts of an image in ECR; None for other registries."""
    region = image_region(uri)
    if region is None:
        return None
    name, _, digest = uri.partition("/")[2].partition("@")
    repository, _, tag = name.partition(":")
    return EcrImage(uri[:12], region, repository, tag if tag or digest else "latest", digest)


def images_exist(subject: Subject) -> Iterator[Finding]:
    """Ask ECR about the training image and the images of the debugger's and profiler's rules."""
    draft = subject.draft
    if draft.get("AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode") == "Vpc":
        named: list[tuple[SpecPath, str]] = []
    else:
        named = [(("image",), draft.image)]
    for key, member in RULE_LISTS:
        for index, rule in enumerate(draft.request.get(member, ())):
            named.append(((key, index, "rule_evaluator_image"), rule.get("RuleEvaluatorImage", "")))
    images = [(path, image) for path, uri in named if (image := ecr_image(uri)) is not None]
    yield from subject.each(images, lambda path, image: _look(subject, path, image))


def _look(subject: Subject, path: SpecPath, image: EcrImage) -> Iterator[Finding]:
    here = subject.account.region
    if image.region != here:
        if subject.draft.spec.region is None:  # else the rule image-region reports it
            yield path, "image-elsewhere", f"is in {image.region}, but the job runs in {here}; use an image in {here}"
        return
    is_own = image.account == subject.own_account
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
        return f"the repository {image.repository!r} has no image {image.digest[:19]}...; push the image, or correct the digest"
    tags = _tags(subject, image)
    hint = did_you_mean(image.tag, tags) or (f"; it has {', '.join(tags[:5])}" if tags else "; push the image")
    return f"the repository {image.repository!r} has no tag {image.tag!r}{hint}"


def _tags(subject: Subject, image: EcrImage) -> list[str]:
    """Return some of a repository's tags; none if you may not list them."""
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
    """Return some of the account's repositories; none if you may not list them."""
    try:
        return [each["repositoryName"] for each in subject.ask("ecr", "describe_repositories").get("repositories", ())]
    except AwsError:
        return []


CHECK = Check(
    "image",
    "Do the images in ECR exist?",
    images_exist,
    {
        "image-elsewhere": ("error", "The image is in another region, from which the job cannot pull it."),
        "image-missing": (
            "error",
            "The image's repository, tag or digest does not exist; the job ends before it starts.",
        ),
    },
)
