"""Jobs whose name or image is wrong."""

from __future__ import annotations

import launcher
from preflight_data import Broken
from preflight_world import World, nothing


def a_job(world: World) -> dict[str, str]:
    """Create an older job."""
    sagemaker, request = world.aws.client("sagemaker"), dict(launcher.plan(launcher.parse_spec(OLDER)).request)
    sagemaker.create_training_job(**request)
    return {}


OLDER = """\
training_job_name: digits-0
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1.5
role_arn: arn:aws:iam::123456789012:role/training
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://out/}
"""

BROKEN = {
    "a name that is taken": Broken(
        a_job,
        "training_job_name: digits-0",
        [("name-taken", "training_job_name")],
        ("'digits-0'", "--name", "base_name"),
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
