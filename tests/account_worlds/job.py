"""Jobs whose name or image is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable

import launcher
from account_data import Broken
from account_world import World, nothing


def a_job(world: World) -> dict[str, str]:
    """Create an older job."""
    sagemaker, request = world.aws.client("sagemaker"), dict(launcher.plan(launcher.parse_spec(OLDER)).request)
    sagemaker.create_training_job(**request)
    return {}


def an_image(tag: str, *architectures: str) -> Callable[[World], dict[str, str]]:
    """Push an image for several architectures, as buildx does, with an attestation; or for the one that its config names."""

    def make(world: World) -> dict[str, str]:
        kind = "application/vnd.oci.image.%s.v1+json"
        parts = [{"platform": {"architecture": each, "os": "linux"}} for each in (*architectures, "unknown")]
        manifest = {"schemaVersion": 2, "mediaType": kind % "index", "manifests": parts}
        if not architectures:
            manifest = {"schemaVersion": 2, "mediaType": kind % "manifest", "config": {"digest": f"sha256:{'1' * 64}"}}
        text = json.dumps(manifest)
        world.aws.client("ecr").put_image(repositoryName="training", imageManifest=text, imageTag=tag)
        return {}

    return make


def an_image_of_one_architecture(world: World) -> dict[str, str]:
    world.aws.order("ecr/config", architecture="arm64", os="linux")
    return an_image("mac2")(world)


def a_queue(name: str, **members: str) -> Callable[[World], dict[str, str]]:
    def make(world: World) -> dict[str, str]:
        world.aws.queue(name, **members)
        return {}

    return make


IMAGE = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:"
OLDER = """\
training_job_name: digits-0
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.5
role_arn: arn:aws:iam::123456789012:role/training
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://out/}
"""

BROKEN = {
    "an image built on a Mac by buildx": Broken(
        an_image("mac", "arm64"),
        f"{IMAGE}mac",
        [("image-architecture", "image")],
        ("is built for arm64, but ml.m5.xlarge is amd64", "--platform linux/amd64"),
    ),
    "an image built on a Mac": Broken(
        an_image_of_one_architecture, f"{IMAGE}mac2", [("image-architecture", "image")], ("is built for arm64",)
    ),
    "an image for two architectures": Broken(an_image("both", "arm64", "amd64"), f"{IMAGE}both", [], ()),
    "a name that is taken": Broken(
        a_job,
        "training_job_name: digits-0",
        [("name-taken", "training_job_name")],
        ("'digits-0'", "--name", "base_name"),
    ),
    "a missing queue": Broken(
        a_queue("gpu-1"), "queue: {{name: gpu-2}}", [("queue-missing", "queue.name")], ("no queue 'gpu-2'",)
    ),
    "a queue of containers": Broken(
        a_queue("ecs", jobQueueType="ECS"),
        "queue: {{name: ecs}}",
        [("queue-type", "queue.name")],
        ("SAGEMAKER_TRAINING",),
    ),
    "a disabled queue": Broken(
        a_queue("off", state="DISABLED"), "queue: {{name: off}}", [("queue-disabled", "queue.name")], ("is DISABLED",)
    ),
    "a missing tag": Broken(
        nothing,
        "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.6",
        [("image-missing", "image")],
        ("'1.6'", "1.5"),
    ),
    "a missing repository": Broken(
        nothing,
        "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/trainig:1.5",
        [("image-missing", "image")],
        ("'trainig'", "did you mean training?"),
    ),
    "a missing digest": Broken(
        nothing,
        f"image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training@sha256:{'0' * 64}",
        [("image-missing", "image")],
        ("sha256:0000",),
    ),
    "an image in another region": Broken(
        nothing,
        "region: null\nimage: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/training:1.5",
        [("image-elsewhere", "image")],
        ("is in eu-west-1", "use an image in us-east-1"),
    ),
}
