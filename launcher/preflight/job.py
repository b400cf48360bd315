"""The account, region and name that the job gets, and whether its images exist. A name is free again only if its job is deleted.

Registries of ECR in other accounts, AWS's own included, answer only those they allow. A repository that one of them does not know
may only be hidden, so only a missing tag or digest in a repository that answers is reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.request import urlopen

from launcher.aws.account import AwsError
from launcher.errors import SpecPath, did_you_mean
from launcher.jobs.lookup import name_taken
from launcher.preflight.check import Check, Finding, Subject, joined
from launcher.preflight.quota.machines import alternatives
from launcher.request.image_uris import image_region
from launcher.request.instance_types import instance_type
from launcher.request.view import RULE_LISTS
from launcher.spec.names import place_of_name


def _account(subject: Subject) -> list[Finding]:
    subject.note((), f"account {subject.own_account}, region {subject.account.region}")
    return []


ACCOUNT = Check("account", _account)


def _name(subject: Subject) -> Iterator[Finding]:
    name = subject.draft.request["TrainingJobName"]
    job = subject.find("sagemaker", "describe_training_job", TrainingJobName=name)
    if job is not None:
        path, _ = place_of_name(name, subject.draft.spec)
        yield path, "name-taken", name_taken(job, subject.account.region, is_in_spec=bool(path))


NAME = Check("job name", _name)


class _EcrImage(NamedTuple):
    """The parts of `ACCOUNT.dkr.ecr.REGION.amazonaws.com/repository:tag`."""

    account: str
    region: str
    repository: str
    tag: str
    digest: str


def _ecr_image(uri: str) -> _EcrImage | None:
    """Return the parts of an image in ECR; None for other registries."""
    region = image_region(uri)
    if region is None:
        return None
    name, _, digest = uri.partition("/")[2].partition("@")
    repository, _, tag = name.partition(":")
    return _EcrImage(uri[:12], region, repository, tag if tag or digest else "latest", digest)


def training_image(subject: Subject) -> _EcrImage | None:
    """Return the job's own image, if SageMaker pulls it from ECR and not from a registry in the VPC."""
    config = "AlgorithmSpecification.TrainingImageConfig"
    in_vpc = subject.draft.get(f"{config}.TrainingRepositoryAccessMode") == "Vpc"
    return None if in_vpc else _ecr_image(subject.draft.image)


def _images(subject: Subject) -> Iterator[tuple[SpecPath, _EcrImage]]:
    """Yield the training image and the images of the debugger's and profiler's rules."""
    if image := training_image(subject):
        yield ("image",), image
    for path, uri in subject.draft.each(*(f"{rules}.RuleEvaluatorImage" for rules in RULE_LISTS)):
        if image := _ecr_image(uri):
            yield path, image


def _ask_image(subject: Subject, path: SpecPath, image: _EcrImage) -> Iterator[Finding]:
    here = subject.account.region
    if image.region != here:
        if subject.draft.spec.region is None:  # else the rule image-region reports it
            yield path, "image-elsewhere", f"is in {image.region}, but the job runs in {here}; use an image in {here}"
        return
    is_own = image.account == subject.own_account
    repository = {"registryId": image.account, "repositoryName": image.repository}
    wanted = {"imageDigest": image.digest} if image.digest else {"imageTag": image.tag}
    try:
        subject.ask("ecr", "describe_images", **repository, imageIds=[wanted])
    except AwsError as error:
        if error.code == "RepositoryNotFoundException" and is_own:
            known = subject.try_to_ask("ecr", "describe_repositories").get("repositories", ())
            hint = did_you_mean(image.repository, [each["repositoryName"] for each in known]) or "; push the image"
            yield path, "image-missing", f"the registry has no repository {image.repository!r} in {here}{hint}"
        elif error.code != "ImageNotFoundException":
            raise
        elif image.digest:
            message = f"the repository {image.repository!r} has no image {image.digest[:19]}..."
            yield path, "image-missing", f"{message}; push the image, or correct the digest"
        else:
            answer = subject.try_to_ask("ecr", "list_images", **repository, filter={"tagStatus": "TAGGED"})
            tags = [each["imageTag"] for each in answer.get("imageIds", ()) if "imageTag" in each]
            hint = did_you_mean(image.tag, tags) or (f"; it has {', '.join(tags[:5])}" if tags else "; push the image")
            yield path, "image-missing", f"the repository {image.repository!r} has no tag {image.tag!r}{hint}"


IMAGE = Check("image", _ask_image, _images)


_MANIFESTS = (  # that an image may have: of one architecture, and of several
    *("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json"),
    *("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json"),
)
_DOWNLOAD_SECONDS = 3.0


def _own_image(subject: Subject) -> Iterator[tuple[SpecPath, _EcrImage]]:
    image = training_image(subject)
    if image is not None and image.region == subject.account.region:
        yield ("image",), image


def _ask_architecture(subject: Subject, path: SpecPath, image: _EcrImage) -> Iterator[Finding]:
    names = {each.instance_type for choice in alternatives(subject.draft) for each in choice}
    needed = {name: facts for name in sorted(names) if (facts := instance_type(name).architecture)}
    built = _architectures(subject, image) if needed else set()
    for name, architecture in needed.items():
        if built and architecture not in built:
            message = (
                f"is built for {joined(sorted(built))}, but {name} is {architecture}, where its programs end with 'exec format"
                f" error'; build it with docker build --platform linux/{architecture}"
            )
            yield path, "image-architecture", message
            return


def _architectures(subject: Subject, image: _EcrImage) -> set[str]:
    """Return what an image has been built for, such as amd64; empty if that is not known. Raises AwsError."""
    repository = {"registryId": image.account, "repositoryName": image.repository}
    wanted = {"imageDigest": image.digest} if image.digest else {"imageTag": image.tag}
    asked = {**repository, "imageIds": [wanted], "acceptedMediaTypes": list(_MANIFESTS)}
    found = subject.try_to_ask("ecr", "batch_get_image", **asked).get("images")
    manifest = json.loads(found[0]["imageManifest"]) if found else {}
    if "manifests" in manifest:
        return {each.get("platform", {}).get("architecture", "unknown") for each in manifest["manifests"]} - {"unknown"}
    digest = manifest.get("config", {}).get("digest")
    layer = subject.try_to_ask("ecr", "get_download_url_for_layer", **repository, layerDigest=digest) if digest else {}
    try:
        with urlopen(layer["downloadUrl"], timeout=_DOWNLOAD_SECONDS) as answer:
            return {str(json.loads(answer.read())["architecture"])}
    except (OSError, ValueError, KeyError):
        return set()


ARCHITECTURE = Check("image architecture", _ask_architecture, _own_image)
