"""Rules on a job's outputs, checkpoints and tags, and on the debugger and the profiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.request.view import RULE_LISTS, Draft
from launcher.rules.channels.uris import bucket
from launcher.rules.rule import Mistake, error, repeated, warning
from sagemaker_channels import contract


@error("output-kms-key-in-one-zone")
def one_zone_buckets_take_no_key(draft: Draft) -> Iterator[Mistake]:
    """S3 Express One Zone encrypts its objects itself, and SageMaker accepts no KMS key for it."""
    place = draft.get("OutputDataConfig.S3OutputPath") or ""
    if draft.get("OutputDataConfig.KmsKeyId") and bucket(place).endswith(contract.DIRECTORY_BUCKET):
        message = f"is not supported in the directory bucket {bucket(place)}, which S3 encrypts itself; delete it"
        yield ("OutputDataConfig", "KmsKeyId"), message


@warning("kms-key-form")
def key_has_a_form_of_kms(draft: Draft) -> Iterator[Mistake]:
    """A KMS key is given by its id, its ARN, or an alias that begins with `alias/`; the pattern allows any word."""
    form = r"arn:|alias/|mrk-[0-9a-f]{32}$|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|[{<$]"
    for path, name in draft.each("OutputDataConfig.KmsKeyId", "ResourceConfig.VolumeKmsKeyId"):
        if name and not re.match(form, name):
            yield path, f"{name!r} is neither a key's id nor its ARN; if it is an alias, write {'alias/' + name!r}"


@warning("checkpoint-folder")
def checkpoints_have_their_own_folder(draft: Draft) -> Iterator[Mistake]:
    """Checkpoints in the model's folder are packed into model.tar.gz too, and those in the input folder mix with the data."""
    path = f"{draft.get('CheckpointConfig.LocalPath') or ''}/"
    for folder in ("model", "input"):
        if path.startswith(f"{contract.BASE_DIR}/{folder}/"):
            message = (
                f"{path[:-1]!r} is the folder of the {folder}; write {contract.BASE_DIR}/checkpoints, or delete the key"
            )
            yield ("CheckpointConfig", "LocalPath"), message


@error("tag-keys-differ")
def tag_keys_differ(draft: Draft) -> Iterator[Mistake]:
    """A tag's key can be given once."""
    for path, key in repeated(draft.each("Tags.Key")):
        yield path, f"{key!r} is the key of an earlier tag, too; delete one"


@error("tag-keys-of-aws")
def tag_keys_are_not_of_aws(draft: Draft) -> Iterator[Mistake]:
    """Tag keys that begin with `aws:` are reserved for AWS."""
    for path, key in draft.each("Tags.Key"):
        if key.lower().startswith("aws:"):
            yield path, "begins with aws:, which is reserved for AWS; choose another key"


_INTERVALS = (100, 200, 500, 1000, 5000, 60000)  # milliseconds


@error("profiling-interval")
def interval_is_one_of_six(draft: Draft) -> Iterator[Mistake]:
    """The profiler samples at one of six intervals."""
    interval = draft.get("ProfilerConfig.ProfilingIntervalInMilliseconds")
    if interval is not None and interval not in _INTERVALS:
        nearest = min(_INTERVALS, key=lambda known: abs(known - interval))
        message = f"is {interval}, but AWS allows {', '.join(map(str, _INTERVALS))}; write {nearest}"
        yield ("ProfilerConfig", "ProfilingIntervalInMilliseconds"), message


@error("rule-configuration-names")
def rule_names_differ(draft: Draft) -> Iterator[Mistake]:
    """Each rule of the debugger and the profiler has a unique name."""
    for path, name in repeated(draft.each(*(f"{rules}.RuleConfigurationName" for rules in RULE_LISTS))):
        yield path, f"{name!r} is the name of an earlier rule, too; rename one"


@error("profiler-rules-need-profiler")
def rules_need_a_profiler(draft: Draft) -> Iterator[Mistake]:
    """Rules of the profiler have no data to evaluate if it is turned off."""
    if draft.get("ProfilerConfig.DisableProfiler") and draft.get("ProfilerRuleConfigurations"):
        message = "turns off the profiler, whose data profiler_rule_configurations need; delete one of them"
        yield ("ProfilerConfig", "DisableProfiler"), message


@warning("debugger-with-checkpoints")
def debugger_or_checkpoints(draft: Draft) -> Iterator[Mistake]:
    """The debugger does not work in distributed training that keeps checkpoints."""
    several = (draft.instance_count or 0) > 1
    if draft.get("DebugHookConfig") and draft.get("CheckpointConfig") and several:
        yield ("DebugHookConfig",), "does not work on several instances with checkpoint_config; delete one of them"


@warning("debugger-parameters")
def parameters_are_named(draft: Draft) -> Iterator[Mistake]:
    """Parameters of the debugger and of rules are written as `name: value`."""
    places = ("DebugHookConfig.HookParameters", "DebugHookConfig.CollectionConfigurations.CollectionParameters")
    for path, parameters in draft.each(*places, *(f"{rules}.RuleParameters" for rules in RULE_LISTS)):
        given = {name.lower(): value for name, value in parameters.items()}
        name = given.get("name", given.get("key"))
        if name is not None and given.keys() in ({"name", "value"}, {"key", "value"}):
            yield path, f"has parameters called {' and '.join(parameters)}; write {{{name}: ...}}"
