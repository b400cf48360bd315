"""The base spec of every rule's examples: small, right, and without a warning."""

from __future__ import annotations

BASE = """\
base_name: example
image: 123456789012.dkr.ecr.eu-west-1.amazonaws.com/training:1
role_arn: arn:aws:iam::123456789012:role/training
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 50}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://bucket/out/}
channels: {train: s3://bucket/train/}
"""

TWENTY_CHANNELS = "channels:\n" + "".join(f"  c{index}: s3://bucket/c{index}/\n" for index in range(20))
TWO_HOSTS = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 10}\n"
VPC = "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"

# Built-in algorithms of the examples: the account of their images in eu-west-1, and hyperparameters that they require.
_BUILT_INS = {
    "image-classification": ("685385470294", "num_classes: 10, num_training_samples: 1000"),
    "ipinsights": ("438346466558", "num_entity_vectors: 1000, vector_dim: 128"),
    "kmeans": ("438346466558", "feature_dim: 10, k: 3"),
    "lda": ("999678624901", "feature_dim: 10, mini_batch_size: 100, num_topics: 5"),
    "linear-learner": ("438346466558", "predictor_type: regressor"),
    "xgboost": ("685385470294", "num_round: 10"),
}


def built_in(algorithm: str, *channels: str, instance_type: str = "ml.m5.xlarge") -> str:
    """Return an overlay that runs a built-in algorithm with its required hyperparameters.

    Args:
        algorithm: The algorithm's name.
        channels: Each `name` or `name, more: keys`; a channel without `s3_uri` is in a folder of its name.
        instance_type: The machine; image classification always gets one with a GPU.
    """
    account, hyperparameters = _BUILT_INS[algorithm]
    machine = "ml.p3.2xlarge" if algorithm == "image-classification" else instance_type
    entries = []
    for channel in channels:
        name, _, keys = channel.partition(", ")
        place = "" if "s3_uri" in keys else f"s3_uri: s3://bucket/{name}/, "
        entries.append(f"{name}: {{{place}{keys}}}")
    return (
        f"image: {account}.dkr.ecr.eu-west-1.amazonaws.com/{algorithm}:1\n"
        f"hyperparameters: {{{hyperparameters}}}\n"
        f"resource_config: {{instance_type: {machine}, instance_count: 1, volume_size_in_gb: 50}}\n"
        f"channels: {{{', '.join(entries)}}}\n"
    )


def train(keys: str, uri: str = "s3://bucket/train/") -> str:
    """Return an overlay with these keys of the channel `train`."""
    return f"channels: {{train: {{s3_uri: {uri}, {keys}}}}}"


def two_hosts(overlay: str) -> str:
    """Return an overlay of `built_in` with two instances."""
    return overlay.replace("instance_count: 1", "instance_count: 2")


def laid_over_base(overlay: str) -> str:
    """Return BASE with its top-level keys replaced by those of `overlay`; both have one key per line."""
    replaced = {line.partition(":")[0] for line in overlay.splitlines() if line and not line.startswith((" ", "-"))}
    kept = [line for line in BASE.splitlines() if line.partition(":")[0] not in replaced]
    return "\n".join([*kept, overlay.rstrip("\n")]) + "\n"
