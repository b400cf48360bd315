"""The account, region and name that the job gets, and whether its image exists. A name is free again only if its job is deleted.

Registries of ECR in other accounts, AWS's own included, answer only those they allow. A repository that one of them does not know
may only be hidden, so only a missing tag or digest in a repository that answers is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.account.check import Subject
from launcher.account.quota import alternatives
from launcher.aws.account import AwsError
from launcher.aws.ecr import EcrImage, ecr_image, read_config, read_manifest
from launcher.errors import Problem, SpecPath, did_you_mean, first_names
from launcher.jobs.lookup import name_taken
from launcher.request.instance_types import instance_type
from launcher.spec.names import place_of_name


def account(subject: Subject) -> Iterator[Problem]:
    """Which account and region is the job for?"""
    subject.note((), f"account {subject.own_account}, region {subject.account.region}")
    yield from ()


def job_name(subject: Subject) -> Iterator[Problem]:
    """Is the job's name free?"""
    name = subject.draft.request["TrainingJobName"]
    job = subject.find("sagemaker", "describe_training_job", TrainingJobName=name)
    if job is not None:
        path, location = place_of_name(name, subject.draft.spec)
        message = name_taken(job, subject.account.region, is_in_spec=bool(path))
        yield Problem(path, message, "name-taken", location=location)


def training_image(subject: Subject) -> EcrImage | None:
    """Return the job's own image, if SageMaker pulls it from ECR and not from a registry in the VPC."""
    config = "AlgorithmSpecification.TrainingImageConfig"
    in_vpc = subject.draft.get(f"{config}.TrainingRepositoryAccessMode") == "Vpc"
    return None if in_vpc else ecr_image(subject.draft.image)


def images(subject: Subject) -> list[tuple[SpecPath, EcrImage]]:
    """Return the training image, if it is in ECR."""
    image = training_image(subject)
    return [(("image",), image)] if image else []


def image(subject: Subject, path: SpecPath, image: EcrImage) -> Iterator[Problem]:
    """Does the image in ECR exist?"""
    here = subject.account.region
    if image.region != here:
        if subject.draft.spec.region is None:  # else the rule image-region reports it
            message = f"is in {image.region}, but the job runs in {here}; use an image in {here}"
            yield Problem(path, message, "image-elsewhere")
        return
    try:
        subject.ask("ecr", "describe_images", **image.in_repository, imageIds=[image.identity])
    except AwsError as error:
        if error.code == "RepositoryNotFoundException" and image.account == subject.own_account:
            known = subject.try_to_ask("ecr", "describe_repositories").get("repositories", ())
            hint = did_you_mean(image.repository, [each["repositoryName"] for each in known]) or "; push the image"
            wrong = f"the registry has no repository {image.repository!r} in {here}{hint}"
        elif error.code != "ImageNotFoundException":
            raise
        else:
            answer = subject.try_to_ask("ecr", "list_images", **image.in_repository, filter={"tagStatus": "TAGGED"})
            tags = [each["imageTag"] for each in answer.get("imageIds", ()) if "imageTag" in each]
            wanted, has = image.digest or image.tag, f"; it has {', '.join(tags[:5])}" if tags else "; push the image"
            wrong = f"the repository {image.repository!r} has no image {wanted!r}{did_you_mean(wanted, tags) or has}"
        yield Problem(path, wrong, "image-missing")


def image_architecture(subject: Subject) -> Iterator[Problem]:
    """Is the image built for the processors of the instances?"""
    image = training_image(subject)
    names = {each.instance_type for choice in alternatives(subject.draft) for each in choice}
    needed = {name: facts for name in sorted(names) if (facts := instance_type(name).architecture)}
    if image is None or image.region != subject.account.region or not needed:
        return
    built = _architectures(subject, image)
    for name, architecture in needed.items():
        if built and architecture not in built:
            message = (
                f"is built for {first_names(sorted(built))}, but {name} is {architecture}, where its programs end with 'exec format"
                f" error'; build it with docker build --platform linux/{architecture}"
            )
            yield Problem(("image",), message, "image-architecture")
            return


def _architectures(subject: Subject, image: EcrImage) -> set[str]:
    """Return what an image has been built for, such as amd64; empty if that is not known. Raises AwsError."""
    manifest = read_manifest(subject.try_to_ask, image)
    if "manifests" in manifest:
        return {each.get("platform", {}).get("architecture", "unknown") for each in manifest["manifests"]} - {"unknown"}
    return {str(read_config(subject.try_to_ask, image, manifest).get("architecture", ""))} - {""}
