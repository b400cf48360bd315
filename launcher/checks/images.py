"""Rules on the image, and on what lies in a region: it has to be the job's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.checks.rule import Draft, Found, Rule
from launcher.errors import Path
from launcher.images import image_region

# AWS's deep learning containers for training and for inference name both, and their processor, in repository and tag.
_OF_AWS = re.compile(r".*/(?:huggingface-)?(?:pytorch|tensorflow|mxnet)-(training|inference)[a-z0-9-]*:(.*)", re.DOTALL)


def image_of_the_jobs_region(draft: Draft) -> Iterator[Found]:
    """A job pulls its image, and the images of its debugger and profiler rules, from its own region's registry.

    The service refuses or cannot pull an image of ECR in another region. Checked where the spec says its `region`.
    Source: developer guide, sagemaker-algo-docker-registry-paths (a registry for each region).
    """
    region = draft.spec.region
    images: list[tuple[Path, str]] = [(("image",), draft.image)]
    for key, member in (
        ("debug_rule_configurations", "DebugRuleConfigurations"),
        ("profiler_rule_configurations", "ProfilerRuleConfigurations"),
    ):
        for index, rule in enumerate(draft.request.get(member, ())):
            images.append(((key, index, "rule_evaluator_image"), rule.get("RuleEvaluatorImage", "")))
    for path, image in images:
        lies_in = image_region(image)
        if region and lies_in and lies_in != region:
            yield (
                path,
                f"lies in {lies_in}, but the job runs in {region}; write the image of {region}, or the other region",
            )


def resources_of_the_jobs_region(draft: Draft) -> Iterator[Found]:
    """Algorithms, training plans and keys are of the region that the job runs in.

    Their ARNs name it. Checked where the spec says its `region`.
    Source: AlgorithmSpecification.AlgorithmName, ResourceConfig.TrainingPlanArn and .VolumeKmsKeyId in the service model; KMS
    developer guide: a key is used in the region where it was made.
    """
    region = draft.spec.region
    arns: list[tuple[Path, str | None]] = [
        (("algorithm_name",), draft.get("AlgorithmSpecification.AlgorithmName")),
        (("resource_config", "training_plan_arn"), draft.get("ResourceConfig.TrainingPlanArn")),
        (("resource_config", "volume_kms_key_id"), draft.get("ResourceConfig.VolumeKmsKeyId")),
    ]
    for path, arn in arns:
        found = re.match(r"arn:[^:]*:[^:]*:([^:]+):", arn or "")
        if region and found and found[1] != region:
            yield path, f"lies in {found[1]}, but the job runs in {region}; name one of {region}"


def image_is_for_training(draft: Draft) -> Iterator[Found]:
    """AWS's images for inference have no training toolkit: a job that starts one serves nobody and trains nothing.

    Source: aws/deep-learning-containers, available_images.md (`pytorch-training`, `pytorch-inference`).
    """
    found = _OF_AWS.fullmatch(draft.image)
    if found and found[1] == "inference":
        yield ("image",), "is AWS's image for inference; use the one for training: -training in place of -inference"


def image_fits_the_processor(draft: Draft) -> Iterator[Found]:
    """AWS's images come for CPUs and for GPUs: one for CPUs leaves the GPUs idle, one for GPUs may not start without.

    Source: aws/deep-learning-containers, available_images.md (`-cpu-` and `-gpu-` in the tags).
    """
    found = _OF_AWS.fullmatch(draft.image)
    made_for = re.search(r"-(cpu|gpu)-", found[2]) if found else None
    if made_for is None:
        return
    types = [each for _, each in draft.instance_types]
    if types and made_for[1] == "cpu" and all(each.has_gpu for each in types):
        yield ("image",), f"is for CPUs, but {draft.instance_types[0][1].name} has GPUs; use the tag with -gpu-"
    elif types and made_for[1] == "gpu" and all(each.is_accelerated is False for each in types):
        yield ("image",), f"is for GPUs, but {draft.instance_types[0][1].name} has none; use the tag with -cpu-"


_REGISTRY = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"
_GPU = "resource_config: {instance_type: ml.g5.xlarge, instance_count: 1}\n"
_KEY = "'arn:aws:kms:%s:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab'"
_WITH_KEY = (
    "resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 9, volume_kms_key_id: %s}\n"
)

RULES = (
    Rule("image-region", "error", image_of_the_jobs_region, wrong="region: us-east-1", right="region: eu-west-1"),
    Rule(
        "resource-region",
        "error",
        resources_of_the_jobs_region,
        wrong="region: eu-west-1\n" + _WITH_KEY % (_KEY % "us-east-1"),
        right="region: eu-west-1\n" + _WITH_KEY % (_KEY % "eu-west-1"),
    ),
    Rule(
        "image-for-inference",
        "warning",
        image_is_for_training,
        wrong=f"image: {_REGISTRY}/pytorch-inference:2.5.1-cpu-py311-ubuntu22.04-sagemaker",
        right=f"image: {_REGISTRY}/pytorch-training:2.5.1-cpu-py311-ubuntu22.04-sagemaker",
    ),
    Rule(
        "image-processor",
        "warning",
        image_fits_the_processor,
        wrong=_GPU + f"image: {_REGISTRY}/pytorch-training:2.5.1-cpu-py311-ubuntu22.04-sagemaker",
        right=_GPU + f"image: {_REGISTRY}/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker",
    ),
)
