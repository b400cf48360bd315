"""Directory buckets (S3 Express One Zone) that the job may not open."""

from __future__ import annotations

from collections.abc import Callable

from account_data import Broken
from account_world import POLICY, World, allow

EXPRESS = "data--use1-az4--x-s3"
ON_EXPRESS = "channels: {{train: s3://%s/train%s}}"


def an_express_bucket(bucket: str) -> Callable[[World], dict[str, str]]:
    """A directory bucket, and a role that may open a session with it."""

    def make(world: World) -> dict[str, str]:
        world.aws.objects(bucket, sizes={"train/b": 10, "train/a": 10})
        session = allow(["s3express:CreateSession"], f"arn:aws:s3express:us-east-1:123456789012:bucket/{bucket}")
        return {"role": world.role([*POLICY, session])}

    return make


def a_role_without_a_session(world: World) -> dict[str, str]:
    return {**an_express_bucket(EXPRESS)(world), "role": "training"}


BROKEN = {
    "a role that may not open a session": Broken(
        a_role_without_a_session,
        ON_EXPRESS % (EXPRESS, "/"),
        [("role-denied", "channels.train.s3_uri")],
        ("s3express:CreateSession on the directory bucket",),
    ),
}
