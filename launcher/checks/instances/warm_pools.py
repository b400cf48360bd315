"""Rules on warm pools: machines kept for the next job."""

from __future__ import annotations

from collections.abc import Iterator

from entrypoints import contract
from launcher.checks.rule import Mistake, error, warning
from launcher.errors import SpecPath
from launcher.request.aws_model import shapes
from launcher.request.view import Draft

_KEEP_ALIVE: SpecPath = ("resource_config", "keep_alive_period_in_seconds")


def _keep_alive(draft: Draft) -> int:
    return draft.get("ResourceConfig.KeepAlivePeriodInSeconds") or 0


@error("warm-pool-not-on-spot")
def not_on_spot(draft: Draft) -> Iterator[Mistake]:
    """Spot instances cannot be kept warm.

    Source: developer guide, train-warm-pools, considerations ("cannot be used with spot instances"). A period of 0 keeps
    no machine, so it is always allowed.
    """
    if _keep_alive(draft) and draft.is_spot:
        yield _KEEP_ALIVE, "cannot be used with spot instances; delete it, or enable_managed_spot_training"


@error("warm-pool-no-instance-groups")
def not_with_instance_groups(draft: Draft) -> Iterator[Mistake]:
    """A heterogeneous cluster cannot be kept warm.

    Source: developer guide, train-warm-pools, considerations ("cannot be used with heterogeneous cluster training").
    """
    if _keep_alive(draft) and draft.groups:
        yield _KEEP_ALIVE, "cannot be used with instance_groups; delete it, or use one instance_type"


@warning("warm-pool-over-an-hour")
def within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """The developer guide allows keeping machines for an hour, the service model for six.

    Source: developer guide (2023), train-warm-pools ("limited to 3600 seconds"), as did the model up to botocore 1.40;
    ResourceConfig.KeepAlivePeriodInSeconds in the model now has a maximum of 21600. So it is a warning.
    """
    if 3600 < _keep_alive(draft) <= shapes()["KeepAlivePeriodInSeconds"]["max"]:
        yield (
            _KEEP_ALIVE,
            f"is {_keep_alive(draft)}, but the developer guide allows 3600, so AWS may refuse it; write 3600 or less",
        )


@warning("warm-pool-cache")
def cache_is_kept(draft: Draft) -> Iterator[Mistake]:
    """Without a warm pool, nothing of its cache directory is kept for the next job.

    Only the settings are searched, for its path and for the value `warm-pool`; a script may ask for it, too, and then warns itself.
    Source: developer guide, train-warm-pools, "Using persistent cache".
    """
    path = f"{contract.BASE_DIR}/{contract.WARM_POOL_DIR}"
    for key, member in (("environment", "Environment"), ("hyperparameters", "HyperParameters")):
        for name, value in draft.request.get(member, {}).items():
            if not _keep_alive(draft) and (path in value or value == "warm-pool"):
                remedy = "set resource_config.keep_alive_period_in_seconds"
                yield (key, name), f"is a cache for the next job, for which no machine is kept; {remedy}"
