"""Rules on the debugger and the profiler, which watch a job while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.rule import Mistake, error, repeated, warning
from launcher.request.view import Draft

_INTERVALS = (100, 200, 500, 1000, 5000, 60000)  # milliseconds
_LISTS = ("DebugRuleConfigurations", "ProfilerRuleConfigurations")


@error("profiling-interval")
def interval_is_one_of_six(draft: Draft) -> Iterator[Mistake]:
    """The profiler samples at one of six intervals.

    Source: ProfilerConfig.ProfilingIntervalInMilliseconds in the service model ("Available values are 100, 200, 500, 1000 (1
    second), 5000 (5 seconds), and 60000 (1 minute)"), whose shape allows any number.
    """
    interval = draft.get("ProfilerConfig.ProfilingIntervalInMilliseconds")
    if interval is not None and interval not in _INTERVALS:
        nearest = min(_INTERVALS, key=lambda known: abs(known - interval))
        message = f"is {interval}, but AWS allows {', '.join(map(str, _INTERVALS))}; write {nearest}"
        yield ("profiler_config", "profiling_interval_in_milliseconds"), message


@error("rule-configuration-names")
def rule_names_differ(draft: Draft) -> Iterator[Mistake]:
    """Each rule of the debugger and the profiler has a unique name.

    Source: DebugRuleConfiguration.RuleConfigurationName and ProfilerRuleConfiguration's in the service model ("It must be
    unique relative to other rule configuration names").
    """
    for path, name in repeated(draft.each(*(f"{rules}.RuleConfigurationName" for rules in _LISTS))):
        yield path, f"{name!r} is the name of an earlier rule, too; rename one"


@error("profiler-rules-need-profiler")
def rules_need_a_profiler(draft: Draft) -> Iterator[Mistake]:
    """Rules of the profiler have no data to evaluate if it is turned off.

    Source: aws/sagemaker-python-sdk PR 6189 ("an invalid request shape (a profiler rule with profiling disabled)").
    """
    if draft.get("ProfilerConfig.DisableProfiler") and draft.request.get("ProfilerRuleConfigurations"):
        message = "turns off the profiler, whose data profiler_rule_configurations need; delete one of them"
        yield ("profiler_config", "disable_profiler"), message


@warning("debugger-with-checkpoints")
def debugger_or_checkpoints(draft: Draft) -> Iterator[Mistake]:
    """The debugger does not work in distributed training that keeps checkpoints.

    Its library fails in the container: "SMDebug Does Not Currently Support Distributed Training Jobs With Checkpointing
    Enabled". The SageMaker SDK turns it off in this case.
    Source: developer guide, debugger-considerations.
    """
    several = (draft.instance_count or 0) > 1
    if draft.get("DebugHookConfig") and draft.get("CheckpointConfig") and several:
        yield ("debug_hook_config",), "does not work on several instances with checkpoint_config; delete one of them"


@warning("debugger-parameters")
def parameters_are_named(draft: Draft) -> Iterator[Mistake]:
    """Parameters of the debugger and of rules are written as `name: value`.

    `{name: save_interval, value: 10}` would be two parameters, called `name` and `value`, which have no meaning.
    Source: DebugHookConfig and DebugRuleConfiguration in the service model (maps of names to values).
    """
    places = ("DebugHookConfig.HookParameters", "DebugHookConfig.CollectionConfigurations.CollectionParameters")
    for path, parameters in draft.each(*places, *(f"{rules}.RuleParameters" for rules in _LISTS)):
        given = {name.lower(): value for name, value in parameters.items()}
        name = given.get("name", given.get("key"))
        if name is not None and given.keys() in ({"name", "value"}, {"key", "value"}):
            yield path, f"has parameters called {' and '.join(parameters)}; write {{{name}: ...}}"
