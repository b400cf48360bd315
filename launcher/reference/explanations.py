"""Explanations for `launch --explain` of the codes without a rule, each with a wrong and a right example.

Rules have their own explanations. The examples extend the same base spec as those of rules, and are tested like them.
"""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """The explanation of a code beyond its one sentence."""

    text: str
    wrong: str
    right: str


_TRAIN = "channels:\n  train:\n    s3_uri: s3://bucket/train/\n"
_MACHINE = "resource_config: {instance_type: %s, instance_count: %s, volume_size_in_gb: 50}"

EXPLANATIONS = {
    "unknown-key": Explanation(
        "Keys are AWS's members in snake_case, without the levels that carry no meaning; `launch --schema` prints them all,\n"
        "and editors complete them. A misspelt key is refused, since it would otherwise be silently left out of the job.\n"
        "Members of the request without a key are written under `request:`, by their own names.",
        _TRAIN + "    mode: Pipe",
        _TRAIN + "    input_mode: Pipe",
    ),
    "unknown-value": Explanation(
        "The key is the launcher's own, and allows the values that the message lists.",
        "code: {entry_point: entrypoints/train.py, launcher: mpi}",
        "code: {entry_point: entrypoints/train.py, launcher: torchrun}",
    ),
    "unknown-source": Explanation(
        "A channel's `source` is its kind of storage; the default is S3.",
        "channels: {train: {source: EBS}}",
        "channels: {train: {source: S3, s3_uri: s3://bucket/train/}}",
    ),
    "wrong-type": Explanation(
        "Numbers are plain decimals, or durations (90m, 12h) and sizes (100GB) for AWS's seconds and GB; true and false are\n"
        "the only booleans. Text is sent exactly as it is written, so 012 and 1e-3 stay unchanged.",
        "stopping_condition: {max_runtime_in_seconds: 12 hours}",
        "stopping_condition: {max_runtime_in_seconds: 12h}",
    ),
    "duplicate-key": Explanation(
        "YAML parsers silently use the last of two equal keys, and the first is lost.",
        "environment:\n  LEVEL: info\n  LEVEL: debug",
        "environment:\n  LEVEL: debug",
    ),
    "aws-required": Explanation(
        "The service refuses the job without it. A key that is missing from a mapping is reported at the mapping.",
        "role_arn: null",
        "role_arn: arn:aws:iam::123456789012:role/training",
    ),
    "aws-type": Explanation(
        "Members under `request:` have the types of the service model.",
        "request: {ResourceConfig: {InstanceCount: two}}",
        "request: {ResourceConfig: {InstanceCount: 2}}",
    ),
    "aws-enum": Explanation(
        "The values are those of the installed botocore, and AWS may have more by now, such as a new instance type.\n"
        "If you know that AWS has it, pass `--ignore aws-enum`, write `ignore: [aws-enum]` in the spec, or install a newer boto3.\n"
        "It is the only error that can be ignored.",
        _MACHINE % ("m5.xlarge", 1),
        _MACHINE % ("ml.m5.xlarge", 1),
    ),
    "aws-pattern": Explanation(
        "The whole text must match the regular expression of the service model; the service refuses the job otherwise.",
        "base_name: my_training",
        "base_name: my-training",
    ),
    "aws-min": Explanation(
        "The limits are those of the service model; the service refuses the job otherwise.",
        "stopping_condition: {max_runtime_in_seconds: 0}",
        "stopping_condition: {max_runtime_in_seconds: 3600}",
    ),
    "aws-max": Explanation(
        "The limits are those of the service model; the service refuses the job otherwise.",
        "retry_strategy: {maximum_retry_attempts: 100}",
        "retry_strategy: {maximum_retry_attempts: 30}",
    ),
    "aws-unknown-member": Explanation(
        "`request:` has the members of CreateTrainingJobRequest by their own names and in their own places. A member that is\n"
        "newer than the installed botocore needs a newer boto3, since the installed one cannot send it.",
        "request: {MetricDefinitions: [{Name: loss, Regex: 'loss=([0-9.]+)'}]}",
        "request: {AlgorithmSpecification: {MetricDefinitions: [{Name: loss, Regex: 'loss=([0-9.]+)'}]}}",
    ),
    "image-unknown": Explanation(
        "`image: {framework: ..., version: ...}` is looked up in a bundled copy of the SageMaker SDK's table, without asking\n"
        "AWS. It needs `region`, since each region has its own registry. An image that is not in the table can always be\n"
        "written as its URI.",
        "region: eu-west-1\nimage: {framework: pytorch, version: '2.99'}",
        "region: eu-west-1\nimage: {framework: pytorch, version: '2.5.1'}",
    ),
    "variable-not-set": Explanation(
        "`${NAME}` is replaced by that variable of the command's environment, `${NAME:-text}` by the text if it is not set or\n"
        "empty. Write `$${` for the characters `${` themselves.",
        "environment: {TOKEN: '${TOKEN}'}",
        "environment: {TOKEN: '${TOKEN:-none}'}",
    ),
    "ignore-code": Explanation(
        "Warnings and aws-enum can be ignored; other errors make the service refuse the job, so no option can suppress them.",
        "ignore: [aws-pattern]",
        "ignore: [spot-without-checkpoints]",
    ),
    "yaml-syntax": Explanation(
        "YAML is indented by spaces, never by tabs; a key and its value have ': ' between them; and a text needs quotes if it\n"
        "begins with one of [ { > | * & ! % @ ` or contains ': ' or ' #'.",
        "environment:\n\tLEVEL: info",
        "environment:\n  LEVEL: info",
    ),
    "yaml-character": Explanation(
        "Text copied from documents and chats can have characters that only look like spaces or quotes.",
        "environment: {LEVEL: “info”}",
        'environment: {LEVEL: "info"}',
    ),
    "yaml-tag": Explanation(
        "Tags create objects of a program, which no spec needs; put a text that begins with ! in quotes.",
        "environment: {BANG: !important x}",
        "environment: {BANG: '!important x'}",
    ),
    "yaml-alias": Explanation(
        "`&name` names a value and `*name` repeats it. Put a text that begins with * in quotes.",
        "environment:\n  FILES: *files",
        "environment:\n  FILES: '*files'",
    ),
    "yaml-documents": Explanation(
        "A file can have one document only, since `---` begins another; write the others to separate files.",
        "environment: {}\n---\nbase_name: other",
        "environment: {}",
    ),
    "yaml-key": Explanation(
        "A key is one line of text; put it in quotes if its name is null, ~ or looks like a list.",
        "environment: {null: x}",
        "environment: {'null': x}",
    ),
    "spec-layer": Explanation(
        "`extends` names files, relative to the file that names them; `--set` has the form path=value, such as\n"
        "--set resource_config.instance_count=2 or --set 'channels.\"a.b\".input_mode=Pipe'.",
        "extends: missing.yaml",
        "environment: {}",
    ),
}
