"""Shell completion of values: names of jobs, problem codes and examples.

Nothing here prints or fails: if AWS does not answer, nothing is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from launcher.errors import LaunchError

MAX_SECONDS = 3.0  # that a user waits for the names of jobs
_Offer = Callable[[click.Context, click.Parameter, str], list[str]]


def one_of(names: Callable[[], Iterable[str]]) -> _Offer:
    """Return a completion that offers the names beginning with what is typed."""
    return lambda context, parameter, typed: [name for name in names() if name.startswith(typed)]


def codes() -> Iterable[str]:
    """Return every code that `--explain` knows."""
    from launcher.reference.codes import all_codes

    return dict.fromkeys(all_codes())


def ignorable_codes() -> Iterable[str]:
    """Return every code that `--ignore` accepts."""
    from launcher.reference.codes import ignorable

    return dict.fromkeys(ignorable())


def examples() -> Iterable[str]:
    """Return the names that `--example` accepts."""
    import channel_specs

    return channel_specs.names()


def job_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Offer the latest training jobs of the account, after `stop` only running ones, if AWS answers in time."""
    from concurrent.futures import TimeoutError as TooLate

    from launcher.aws.account import Account
    from launcher.aws.threads import start
    from launcher.jobs.lookup import jobs

    status = "InProgress" if context.command.name == "stop" else None

    def ask() -> list[str]:
        account = Account(region=context.params.get("region"), profile=context.params.get("profile"))
        found = [each["TrainingJobName"] for each in jobs(account, status=status, contains=typed or None, limit=100)]
        return [name for name in found if name.startswith(typed)]

    try:
        return start(ask).result(timeout=MAX_SECONDS)
    except (TooLate, LaunchError):
        return []
