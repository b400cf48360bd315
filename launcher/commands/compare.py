"""`launch compare NAME NAME...`: the settings in which jobs differ, their metrics, durations and costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from launcher.aws.session import Account, AwsError
from launcher.aws.threads import concurrently
from launcher.commands import options
from launcher.commands.jobs import as_data, is_local, print_jobs
from launcher.console import Console, print_line
from launcher.errors import InputError, RefusedError, dotted
from launcher.jobs import metrics
from launcher.jobs.follow import ReadLines
from launcher.jobs.lines import Line, Selection, lines_so_far
from launcher.jobs.lookup import describe, jobs_with_settings, tags_of
from launcher.jobs.metrics import Series
from launcher.jobs.outcome import plain_data
from launcher.local.runs import RUNS_FOLDER, lines_of, local_run, local_runs
from launcher.request.differences import as_text, differences, ran_request, shown_value
from launcher.sweeps import TAG, sweep_of

_AT_ONCE = 8  # jobs whose lines are read
_MOST_OF_SWEEP = 1000


class _Job(NamedTuple):
    description: dict[str, Any]
    request: dict[str, Any]
    shown: Any  # the request with *** for possible secrets
    has_tags: bool  # whether its tags are known
    series: Mapping[str, Series]
    # The last, least and most value of each; only the last if no line has it.
    metrics: Mapping[str, Mapping[str, float]]


@options.command("compare", "compare digits-1 digits-2")
@options.jobs_argument
@options.plot_option("Draw the jobs' metrics over their steps, or over time,")
@options.local_option
@options.account_options
@options.json_option
def compare(
    names: tuple[str, ...], plot: Path | None, local: bool, where: options.AccountOptions, as_json: bool
) -> None:
    """Compare jobs: settings, metrics, durations and costs.

    The settings in which the training jobs NAME differ have the names that `launch diff` prints, and *** for values that may be
    secrets. Of each metric in the jobs' lines the last, least and most value are shown, since whether less is better depends on
    the metric. A single NAME is that of a sweep (`launch --matrix`), whose jobs are compared. A NAME can be that of a local run;
    with --local, each is.
    """
    account, console, known = where.open(), Console(as_json=as_json), dict[str, Any]()
    if len(names) == 1:
        here = [run for run in local_runs() if sweep_of(run["Request"]) == names[0]]
        if here and not local and where == options.AccountOptions(None, None):
            console.say(f"{names[0]} is read from ./{RUNS_FOLDER}; with --region, it is a sweep in AWS")
            local = True
        found = here if local else jobs_with_settings(account, _MOST_OF_SWEEP, {TAG: names[0]}, None, console.warn)
        if len(found) < 2:
            place = f"./{RUNS_FOLDER}" if local else account.region
            remedy = "pass the names of two jobs or more, or that of a sweep there; `launch list` shows the jobs"
            raise RefusedError(f"no sweep {names[0]!r} of two jobs or more was found in {place}; {remedy}")
        # They are not described again, since AWS limits the calls in a second; Search's answer lacks only settings of debugging.
        known = {job["TrainingJobName"]: job for job in reversed(found)}
        names = tuple(known)
    elif len(names := tuple(dict.fromkeys(names))) == 1:
        raise InputError(f"{names[0]} is named twice; pass the name of another job, too")
    of_here = {name for name in names if is_local(name, local=local, where=where)}
    answers = concurrently(
        lambda name: _read(account, name, console, known.get(name), is_here=name in of_here), names, _AT_ONCE
    )
    read = {name: answer.result() for name, answer in answers}
    jobs, region = {name: read[name] for name in names}, None if of_here == {*names} else account.region
    settings = _settings(jobs)
    if as_json:
        shown = [as_data(job.description, region) | {"Metrics": plain_data(job.metrics)} for job in jobs.values()]
        found = [{"path": path, "values": values} for path, values in settings.items()]
        options.print_json({"jobs": shown, "differences": found})
    else:
        print_jobs([job.description for job in jobs.values()], region)
        for metric in dict.fromkeys(metric for job in jobs.values() for metric in job.metrics):
            _print(metric, {name: _in_words(job.metrics.get(metric)) for name, job in jobs.items()})
        for path, values in settings.items():
            _print(path, {name: None if value is None else as_text(value) for name, value in values.items()})
        console.say(f"different settings: {len(settings)}" if settings else "no settings differ")
    if plot is not None:
        metrics.plot({name: job.series for name, job in jobs.items()}, plot, console, is_timed=not of_here)


def _read(account: Account, name: str, console: Console, known: dict[str, Any] | None, *, is_here: bool) -> _Job:
    """Return a job with the metrics in all lines that it has written so far; warn if you may not read them."""
    lines: Iterator[Line]
    if is_here:
        description = local_run(name)
        source, lines = description["Request"], lines_of(description["TrainingJobName"])
        tags = source.get("Tags", [])
    else:
        source = description = known or describe(account, name)
        tags = tags_of(account, description, lambda text: console.warn(f"{text}; they are not compared"))
        lines = lines_so_far(account, description, Selection(), console.warn)
        description.pop("Tags", None)  # they are shown among the settings
    request, shown = ran_request(source, tags)
    read = ReadLines(description, console)
    try:
        for line in lines:
            read.note(line)
    except AwsError as error:
        if not error.is_denied:
            raise
        console.warn(f"{name}: its lines, and the metrics in them, are unknown: {error}")
    if is_here:
        del description["ResourceConfig"]  # which has the number of its hosts only
    found: dict[str, dict[str, float]] = {
        each["MetricName"]: {"last": each["Value"]} for each in description.get("FinalMetricDataList") or ()
    }
    for metric, each in read.metrics.series.items():
        found[metric] = {"last": each.last, "least": each.least, "most": each.most}
    return _Job(description, request, shown, tags is not None, read.metrics.panels(), found)


def _settings(jobs: Mapping[str, _Job]) -> dict[str, dict[str, Any]]:
    """Return the value of each job by the settings that differ among them; of tags, if those of all are known."""
    first, *others = jobs.values()
    paths = dict.fromkeys(path for other in others for path in differences(first.request, other.request))
    has_tags = all(job.has_tags for job in jobs.values())
    return {
        dotted(path): {name: shown_value(path, job.request, job.shown) for name, job in jobs.items()}
        for path in paths
        if has_tags or path[0] != "Tags"
    }


def _in_words(metric: Mapping[str, float] | None) -> str | None:
    return None if metric is None else ", ".join(f"{which} {value:.5g}" for which, value in metric.items())


def _print(title: str, values: Mapping[str, str | None]) -> None:
    print_line(f"{title}:")
    width = max(map(len, values))
    for name, value in values.items():
        print_line(f"  {name:{width}}  {'-' if value is None else value}")
