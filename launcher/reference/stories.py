"""The longer stories of the codes that are no rule's, for `launch --explain`: why it is so, and an example wrong and right.

Rules have theirs in their own rows. The examples are laid over the same base as a rule's, and are tests as well.
"""

from __future__ import annotations

from typing import NamedTuple


class Story(NamedTuple):
    """What there is to say of a code beyond its one sentence."""

    text: str
    wrong: str
    right: str


_TRAIN = "channels:\n  train:\n    s3_uri: s3://bucket/train/\n"
_MACHINE = "resource_config: {instance_type: %s, instance_count: %s, volume_size_in_gb: 50}"

STORIES = {
    "unknown-key": Story(
        "Keys are AWS's members in snake_case, without the levels that carry no meaning; `launch --schema` has them all, and\n"
        "editors complete them. A misspelt key is refused, since it would otherwise be left out of the job without a word. What\n"
        "has no key of its own is written under `request:`, by the request's own names.",
        _TRAIN + "    mode: Pipe",
        _TRAIN + "    input_mode: Pipe",
    ),
    "unknown-value": Story(
        "The key is the launcher's own, and takes the words that the message lists.",
        "code: {entry_point: entrypoints/train.py, launcher: mpi}",
        "code: {entry_point: entrypoints/train.py, launcher: torchrun}",
    ),
    "unknown-source": Story(
        "A channel's `source` says what kind of storage it is; S3 where it is left out.",
        "channels: {train: {source: EBS}}",
        "channels: {train: {source: S3, s3_uri: s3://bucket/train/}}",
    ),
    "wrong-type": Story(
        "Numbers are plain decimals, or durations (90m, 12h) and sizes (100GB) where AWS wants seconds or GB; true and false are\n"
        "the only booleans. In places for text everything is taken as it is written, so 012 and 1e-3 stay what they are there.",
        "stopping_condition: {max_runtime_in_seconds: 12 hours}",
        "stopping_condition: {max_runtime_in_seconds: 12h}",
    ),
    "duplicate-key": Story(
        "YAML's readers take the last of two equal keys without a word, and the first is lost.",
        "environment:\n  LEVEL: info\n  LEVEL: debug",
        "environment:\n  LEVEL: debug",
    ),
    "aws-required": Story(
        "The service refuses the job without it. What is missing from a mapping is told at the mapping.",
        "role_arn: null",
        "role_arn: arn:aws:iam::123456789012:role/training",
    ),
    "aws-type": Story(
        "Told of `request:`, whose members have the types of the service model.",
        "request: {ResourceConfig: {InstanceCount: two}}",
        "request: {ResourceConfig: {InstanceCount: 2}}",
    ),
    "aws-enum": Story(
        "The values are those of the botocore that is installed, and AWS may have more by now: a new instance type, for one.\n"
        "If you know that AWS has it, pass `--ignore aws-enum`, write `ignore: [aws-enum]` in the spec, or install a newer boto3.\n"
        "It is the only error that can be ignored.",
        _MACHINE % ("m5.xlarge", 1),
        _MACHINE % ("ml.m5.xlarge", 1),
    ),
    "aws-pattern": Story(
        "The service model has a regular expression for this text, which the whole of it must match; the service refuses the job\n"
        "otherwise.",
        "base_name: my_training",
        "base_name: my-training",
    ),
    "aws-min": Story(
        "The limits are those of the service model; the service refuses the job otherwise.",
        "stopping_condition: {max_runtime_in_seconds: 0}",
        "stopping_condition: {max_runtime_in_seconds: 3600}",
    ),
    "aws-max": Story(
        "The limits are those of the service model; the service refuses the job otherwise.",
        "retry_strategy: {maximum_retry_attempts: 100}",
        "retry_strategy: {maximum_retry_attempts: 30}",
    ),
    "aws-unknown-member": Story(
        "`request:` takes the members of CreateTrainingJobRequest by their own names and in their own places. A member that is\n"
        "newer than the installed botocore needs a newer boto3, which could not send it otherwise.",
        "request: {MetricDefinitions: [{Name: loss, Regex: 'loss=([0-9.]+)'}]}",
        "request: {AlgorithmSpecification: {MetricDefinitions: [{Name: loss, Regex: 'loss=([0-9.]+)'}]}}",
    ),
    "image-unknown": Story(
        "`image: {framework: ..., version: ...}` is looked up in a table of the SageMaker SDK's, which the launcher carries,\n"
        "without asking AWS. It needs `region`, as each region has a registry of its own. An image that the table does not have\n"
        "can always be named by its URI.",
        "region: eu-west-1\nimage: {framework: pytorch, version: '2.99'}",
        "region: eu-west-1\nimage: {framework: pytorch, version: '2.5.1'}",
    ),
    "variable-not-set": Story(
        "`${NAME}` is looked up in the environment of the command, and `${NAME:-text}` takes the text where it is not set or\n"
        "empty. The characters `${` themselves are written `$${`.",
        "environment: {TOKEN: '${TOKEN}'}",
        "environment: {TOKEN: '${TOKEN:-none}'}",
    ),
    "ignore-code": Story(
        "Warnings can be ignored, and aws-enum; other errors are refusals of the service that no option can lift.",
        "ignore: [aws-pattern]",
        "ignore: [spot-without-checkpoints]",
    ),
    "yaml-syntax": Story(
        "YAML is indented by spaces, never by tabs; a key and its value have ': ' between them; and a text that begins with\n"
        "one of [ { > | * & ! % @ ` or holds ': ' or ' #' stands in quotes.",
        "environment:\n\tLEVEL: info",
        "environment:\n  LEVEL: info",
    ),
    "yaml-character": Story(
        "Spaces that are none and quotes that are none come from documents and chats, and look right on the screen.",
        "environment: {LEVEL: “info”}",
        'environment: {LEVEL: "info"}',
    ),
    "yaml-tag": Story(
        "Tags make objects of a program's own, which no spec needs; a text that begins with ! stands in quotes.",
        "environment: {BANG: !important x}",
        "environment: {BANG: '!important x'}",
    ),
    "yaml-alias": Story(
        "`&name` names a value and `*name` stands for it. A text that begins with * stands in quotes.",
        "environment:\n  FILES: *files",
        "environment:\n  FILES: '*files'",
    ),
    "yaml-documents": Story(
        "Only one document between lines of `---` can be the job; write the others into files of their own.",
        "environment: {}\n---\nbase_name: other",
        "environment: {}",
    ),
    "yaml-key": Story(
        "A key is one line of text; one that is null, ~ or a list stands in quotes if that is its name.",
        "environment: {null: x}",
        "environment: {'null': x}",
    ),
    "spec-layer": Story(
        "`extends` names files, whose paths start at the file that names them; `--set` takes path=value, such as\n"
        "--set resource_config.instance_count=2 or --set 'channels.\"a.b\".input_mode=Pipe'.",
        "extends: missing.yaml",
        "environment: {}",
    ),
}
