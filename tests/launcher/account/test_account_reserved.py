"""Checks of reserved machines and of directory buckets."""

from __future__ import annotations

from account_data import found, named
from account_world import CHECKS, World
from account_worlds.quota import BIG, ON_PLAN
from account_worlds.s3_directory import EXPRESS, ON_EXPRESS, a_role_without_a_session, an_express_bucket


def test_reserved_machines_need_no_quota(world: World) -> None:
    world.aws.clear_calls()
    assert found(world.checked(ON_PLAN)) == []
    assert not world.aws.calls(BIG)


def test_directory_bucket_is_listed_by_its_folder_and_read_by_the_role(world: World) -> None:
    checks = (*CHECKS, *named("buckets", "prefixes"))
    report = world.checked(ON_EXPRESS % (EXPRESS, "/"), checks=checks, **an_express_bucket(EXPRESS)(world))
    assert found(report) == []
    assert (("channels", "train", "s3_uri"), "2 objects, 20 bytes") in report.notes
    assert report.not_asked == []


def test_directory_bucket_that_denies_the_caller_is_not_reported_as_foreign(world: World) -> None:
    world.aws.bucket(EXPRESS, forbidden=True)
    checks = named("buckets", "permissions")
    report = world.checked(ON_EXPRESS % (EXPRESS, "/"), checks=checks, **a_role_without_a_session(world))
    assert ("bucket-forbidden", "channels.train.s3_uri") not in found(report)
    assert any(check == "buckets" for check, _ in report.not_asked)
    world.aws.bucket(EXPRESS)
