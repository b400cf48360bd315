"""What users write that no test does, for mypy, which `make check` runs; nothing imports this file."""

import launcher
from sagemaker_channels import *  # noqa: F403
from sagemaker_channels import ChannelDataset as Dataset


def names_and_keys() -> None:
    print(open_channel, merge_states)  # noqa: F405
    spec = launcher.JobSpec(base_name="digits", resource_config={"instance_count": 2})
    print(spec.resource_config.instance_count, launcher.plan(spec).spec.all_channels["train"].s3_uri)


class OwnDataset(Dataset):
    """A dataset with a function of its own."""


def invariant_lists() -> None:
    parts, weights = [OwnDataset("train"), OwnDataset("extra")], [3, 1]
    values = {"lr": [1e-3, 1e-4], "optimizer": ["sgd", "adam"]}
    print(MixedDataset(parts, weights=weights), launcher.sweep("job.yaml", values))  # noqa: F405
