"""Two requests are compared member by member; what AWS would take anyway, and another order of named items, is no difference."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.errors import dotted
from launcher.request.differences import differences, shown_value

PREFERENCES = [{"InstanceType": "ml.m5.large"}, {"InstanceType": "ml.m5.xlarge"}]


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({"EnableNetworkIsolation": False}, {}, []),
        ({}, {"EnableNetworkIsolation": False}, []),
        ({"EnableNetworkIsolation": False}, {"EnableNetworkIsolation": True}, ["EnableNetworkIsolation"]),
        ({"EnableNetworkIsolation": True}, {}, ["EnableNetworkIsolation"]),
        ({"VpcConfig": {"Subnets": []}}, {}, ["VpcConfig"]),
        ({"Tags": []}, {}, []),
        (
            {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]},
            {"Tags": [{"Key": "b", "Value": "2"}]},
            ["Tags.a"],
        ),
        (
            {"InputDataConfig": [{"ChannelName": "train", "CompressionType": "None"}, {"ChannelName": "test"}]},
            {"InputDataConfig": [{"ChannelName": "test"}, {"ChannelName": "train", "RecordWrapperType": "RecordIO"}]},
            ["InputDataConfig.train.RecordWrapperType"],
        ),
        ({"InstancePreferences": PREFERENCES}, {"InstancePreferences": PREFERENCES}, []),
        ({"InstancePreferences": PREFERENCES}, {"InstancePreferences": PREFERENCES[::-1]}, ["InstancePreferences"]),
    ],
)
def test_members_that_differ_are_named(before: dict[str, Any], after: dict[str, Any], paths: list[str]) -> None:
    assert [dotted(path) for path in differences(before, after)] == paths


def test_value_is_shown_as_the_masked_request_has_it() -> None:
    request, shown = {"Environment": {"TOKEN": "hunter2"}}, {"Environment": {"TOKEN": "***"}}
    assert shown_value(("Environment", "TOKEN"), request, shown) == "***"
    assert shown_value(("Environment", "HOME"), request, shown) is None
