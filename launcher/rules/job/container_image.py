"""Rules on the training image, on the names of regions and of AWS's images, and on resources that must be in the job's region."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import ne

from launcher.errors import SpecPath, did_you_mean
from launcher.request.image_support import support_of, versions_of_framework
from launcher.request.image_uris import (
    ECR,
    ImageError,
    image_region,
    image_table,
    is_of_aws,
    newest_of,
    registry_domain,
    resolve_image,
)
from launcher.request.known_images import (
    accounts_of,
    has_tag,
    known_accounts,
    known_regions,
    known_repositories,
    known_tags,
)
from launcher.request.view import IMAGE, Draft
from launcher.rules.rule import Mistake, error, warning
from launcher.spec.aws_model import shown
from launcher.spec.job import Image

_PUBLIC_REGISTRIES = ("docker.io", "ghcr.io", "gcr.io", "nvcr.io", "public.ecr.aws", "quay.io")
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-\d")
# AWS's deep learning containers name their use in the repository, those for training on Amazon Linux in the tag.
_REPOSITORY = r"(?:huggingface-)?(?:pytorch|tensorflow|mxnet)-(?:training|inference)[a-z0-9-]*"
_OF_AWS = re.compile(rf".*/({_REPOSITORY}):(.*)|.*/(pytorch):(.*-amzn2023.*)", re.DOTALL)


@error("image-uri")
def image_is_a_registry_path(draft: Draft) -> Iterator[Mistake]:
    """An image is written as for `docker pull`: without a scheme or spaces, and not as the ARN of its repository."""
    image = draft.image
    arn = re.fullmatch(r"arn:aws[a-z-]*:ecr:([a-z0-9-]+):(\d{12}):repository/(.+)", image)
    if re.match(r"arn:aws[a-z-]*:sagemaker:", image):
        yield IMAGE, "is the ARN of an algorithm, not of an image; write algorithm_name in place of image"
        return
    scheme = re.match(r"(?:https?|docker|oci)://+", image)
    if arn:
        domain = registry_domain(arn[1])
        yield IMAGE, f"is the ARN of a repository; write {arn[2]}.dkr.ecr.{arn[1]}.{domain}/{arn[3]}:TAG"
    elif scheme:
        yield IMAGE, f"begins with {scheme[0]}, but an image has no scheme; write {image[scheme.end() :].strip()}"
    elif re.search(r"\s", image):
        yield IMAGE, f"{image!r} has a space in it; write {''.join(image.split())}"


@warning("image-registry")
def image_is_in_the_registry(draft: Draft) -> Iterator[Mistake]:
    """SageMaker pulls from private repositories of ECR, and from other registries only through the job's VPC."""
    image, mode = draft.image, draft.get("AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode")
    in_ecr = re.match(r"([^./]*)\.dkr[.-]ecr[^/]*/([^:@]*)", image)
    if not image or mode == "Vpc" or re.search("[{<$]", image) or any(image_is_a_registry_path.find(draft)):
        return
    if in_ecr is None:
        host, slash, _ = image.partition("/")
        private = slash and re.search("[.:]", host) and not host.endswith(_PUBLIC_REGISTRIES)
        vpc = "for a private registry add training_image_config: {training_repository_access_mode: Vpc}; else "
        newest = [versions_of_framework(name)[-1] for name in ("pytorch", "tensorflow") if name in image.lower()]
        like = ", ".join(f"{{framework: {each.framework}, version: {each.version}}}" for each in newest)
        own = f"for AWS's own write image: {like}; else " if like else ""
        yield (
            IMAGE,
            f"{shown(image)} is not in ECR; {vpc if private else own}copy it to a repository of yours:"
            " 123456789012.dkr.ecr.REGION.amazonaws.com/NAME:TAG",
        )
    elif re.fullmatch(r"\d+", in_ecr[1]) and len(in_ecr[1]) != 12:
        yield IMAGE, f"begins with an account of {len(in_ecr[1])} digits, but accounts have 12; correct it"
    elif in_ecr[2] != in_ecr[2].lower() and re.match(r"\d{12}$", in_ecr[1]):
        yield IMAGE, f"has capitals in its repository {in_ecr[2]!r}, but ECR has none; write {in_ecr[2].lower()!r}"


@warning("image-tag")
def image_has_a_tag(draft: Draft) -> Iterator[Mistake]:
    """AWS's images for frameworks have tags of versions only; without a tag `latest` is meant, which does not exist."""
    repository = draft.image.rpartition("/")[2]
    if re.fullmatch(rf"{_REPOSITORY}|pytorch", repository) and is_of_aws(draft.image):
        has_gpu = any(each.has_gpu for _, each in draft.instance_types)
        tagged = newest_of(repository, "gpu" if has_gpu else "cpu") or f"{repository}:TAG"
        yield IMAGE, f"has no tag, and AWS's images have no 'latest'; write one such as {tagged}"


@error("region-partition")
def role_and_image_are_of_one_partition(draft: Draft) -> Iterator[Mistake]:
    """China's regions and GovCloud's are separate partitions: a role there is arn:aws-cn:... or arn:aws-us-gov:..."""
    region = draft.spec.region or image_region(draft.image) or ""
    host, image_is_in = draft.image.partition("/")[0], image_region(draft.image)
    if image_is_in and host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        domain = registry_domain(image_is_in)
        if domain.startswith("amazonaws.com") and not host.endswith(f".{domain}"):
            better = f"{host.partition('.amazonaws')[0]}.{domain}/..."
            yield IMAGE, f"is in {image_is_in}, where hosts end in {domain}; write {better}"
    role = re.match(r"arn:(aws(?:-cn|-us-gov)?):", draft.get("RoleArn") or "")
    partition = "aws" + ("-cn" if region.startswith("cn-") else "-us-gov" if region.startswith("us-gov-") else "")
    if role and role[1] != partition and re.fullmatch(r"(us|us-gov|cn|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-\d", region):
        message = f"is of the partition {role[1]}, but {region} is in {partition}; write a role of {partition}"
        yield ("RoleArn",), message


@error("region-name")
def region_has_a_regions_name(draft: Draft) -> Iterator[Mistake]:
    """A region is named as in us-east-1; us-east-1a is a zone of it."""
    region = draft.spec.region
    if region is None or _REGION.fullmatch(region) or isinstance(draft.spec.image, Image):
        return  # image-unknown reports it for an image to look up
    zone = re.fullmatch(f"({_REGION.pattern})[a-z]", region)
    hint = f"; it is a zone, so write {zone[1]}" if zone else did_you_mean(region[:60], known_regions())
    yield ("region",), f"{shown(region)} is not a region{hint or '; write one such as us-east-1'}"


@error("image-region")
def image_of_the_jobs_region(draft: Draft) -> Iterator[Mistake]:
    """A job pulls its image, and the images of its debugger and profiler rules, from its own region's registry."""
    region = draft.spec.region
    if region is not None and not _REGION.fullmatch(region):
        return  # region-name
    of_rules = draft.each("DebugRuleConfigurations.RuleEvaluatorImage", "ProfilerRuleConfigurations.RuleEvaluatorImage")
    for path, image in [(IMAGE, draft.image), *of_rules]:
        other = image_region(image)
        if region and other and other != region:
            yield path, f"is in {other}, but the job runs in {region}; write the image of {region}, or region: {other}"


@error("resource-region")
def resources_of_the_jobs_region(draft: Draft) -> Iterator[Mistake]:
    """Algorithms, training plans and keys must be in the region of the job."""
    region = draft.spec.region
    if region and _REGION.fullmatch(region):
        for path, other in _elsewhere(draft, region):
            yield path, f"is in {other}, but the job runs in {region}; write one of {region}"


@warning("resource-region-of-image")
def resources_of_the_images_region(draft: Draft) -> Iterator[Mistake]:
    """If the spec has no `region`, the image's registry implies it, and resources of other regions do not fit."""
    region = image_region(draft.image)
    if region and draft.spec.region is None:
        for path, other in _elsewhere(draft, region):
            yield path, f"is in {other}, but the image is in {region}; write one of {region}, or the image of {other}"


def _elsewhere(draft: Draft, region: str) -> Iterator[tuple[SpecPath, str]]:
    """Yield the place and region of each ARN that is of another region."""
    arns = ("AlgorithmSpecification.AlgorithmName", "ResourceConfig.TrainingPlanArn", "ResourceConfig.VolumeKmsKeyId")
    for path, arn in draft.each(*arns):
        found = re.match(r"arn:[^:]*:[^:]*:([^:]+):", arn)
        if found and found[1] != region:
            yield path, found[1]


@warning("image-for-inference")
def image_is_for_training(draft: Draft) -> Iterator[Mistake]:
    """AWS's images for inference have no training toolkit, so a job with one trains nothing."""
    found = _OF_AWS.fullmatch(draft.image)
    if found and "-inference" in (found[1] or ""):
        message = "is AWS's image for inference; use the one for training, with -training in place of -inference"
        yield IMAGE, message


@warning("image-processor")
def image_fits_the_processor(draft: Draft) -> Iterator[Mistake]:
    """AWS has images for CPUs and for GPUs: one for CPUs leaves the GPUs idle, one for GPUs may not start without a GPU."""
    found = _OF_AWS.fullmatch(draft.image)
    made_for = re.search(r"-(cpu|gpu|cu\d+)-", found[2] or found[4]) if found else None
    if found is None or made_for is None:
        return
    types, gpu = [each for _, each in draft.instance_types], "-gpu-" if found[1] else "-cuNNN-, its version of CUDA,"
    if types and made_for[1] == "cpu" and all(each.has_gpu for each in types):
        yield IMAGE, f"is for CPUs, but {types[0].name} has GPUs; use the tag with {gpu} in place of -cpu-"
    elif types and made_for[1] != "cpu" and all(each.is_accelerated is False for each in types):
        yield IMAGE, f"is for GPUs, but {types[0].name} has none; use the tag with -cpu- in place of {made_for[0]}"


@warning("image-out-of-patch")
def image_is_patched(draft: Draft) -> Iterator[Mistake]:
    """AWS patches an image for about a year; security holes that are found later stay open in it."""
    support = support_of(draft.image)
    if support is None or draft.today is None or draft.today <= support.end_of_patch:
        return
    types = [each.name for _, each in draft.instance_types]
    remedy = "use a newer one"
    for newer in reversed(versions_of_framework(support.framework)):
        wanted = {"framework": newer.framework, "version": newer.version}
        try:
            resolve_image(wanted, region=image_region(draft.image) or "", instance_type=types[0] if types else None)
        except ImageError:
            continue  # not in this region, or not for this processor
        if newer.end_of_patch >= draft.today:
            region = "" if draft.spec.region else f"region: {image_region(draft.image)} and "
            written = f"{region}image: {{framework: {newer.framework}, version: '{newer.version}'}}"
            remedy = f"write {written}, which is patched until {newer.end_of_patch}"
            break
    what = f"{support.framework} {support.version}"
    yield IMAGE, f"AWS patches no images of {what} after {support.end_of_patch}; {remedy}"


_LONG = 60  # characters of a name that are compared with others


@warning("region-unknown")
def region_is_known(draft: Draft) -> Iterator[Mistake]:
    """A misspelt region has no endpoint and no registry. The installed botocore knows all regions of its day."""
    if isinstance(draft.spec.image, Image):
        return  # image-unknown
    path: SpecPath = ("region",)
    region = draft.spec.region
    if region is None:
        path, region = IMAGE, image_region(draft.image)
    known = known_regions()
    # region-name reports what has not even the form of a region.
    if region and known and region not in known and _REGION.fullmatch(region):
        hint = did_you_mean(region[:_LONG], known)
        what = f"{shown(region)} is not a region that the installed botocore knows{hint}"
        yield path, f"{what}; if it is newer, update boto3 or write --ignore region-unknown"


@warning("image-of-aws")
def image_of_aws_is_known(draft: Draft) -> Iterator[Mistake]:
    """Only AWS stores images in its registries, so one that the bundled table lacks is probably misspelt."""
    found = ECR.fullmatch(draft.image)
    if found is None or isinstance(draft.spec.image, Image):
        return  # an image to look up is from the table
    account, region, repository = found.groups()
    tag = draft.image.partition("@")[0].partition(":")[2]
    accounts, tags = accounts_of(repository, region), known_tags(repository)
    ignore = f"if AWS has added it since {image_table()['date']}, write --ignore image-of-aws"
    if account not in known_accounts():
        for other in accounts:
            if sum(map(ne, account, other)) <= 2:  # one digit is wrong, or two are exchanged
                what = f"is in account {account}, but AWS's with {repository} in {region} is {other}"
                yield IMAGE, f"{what}; correct it"
    elif repository not in known_repositories():
        hint = did_you_mean(repository[:_LONG], known_repositories())
        yield IMAGE, f"is in an account of AWS, which has no repository {shown(repository)}{hint}; {ignore}"
    elif accounts and account not in accounts:
        message = (
            f"is in account {account}, but AWS's account with {repository} in {region} is {min(accounts)}; write that"
        )
        yield IMAGE, message
    elif tag and tags and not has_tag(repository, tag):
        version = re.match(r"\d+(?:\.\d+)?", tag)
        same = [known for known in tags if version and re.match(rf"{re.escape(version[0])}(?!\d)", known)]
        hint = did_you_mean(tag[:_LONG], same or tags) or f"; it has {', '.join(tags[-3:])}"
        yield IMAGE, f"has a tag that AWS's {repository} does not have{hint}; {ignore}"
