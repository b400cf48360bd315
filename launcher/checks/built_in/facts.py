"""The requirements of each of SageMaker's built-in algorithms, for the rules in this folder; algorithms.yaml is their table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from launcher.request.view import Draft


class BuiltIn(NamedTuple):
    """One algorithm, named like the repository of its image."""

    needs: Sequence[str] = ("train",)
    """Channels that it requires."""
    takes: Sequence[str] = ()
    """Optional channels; others may be refused."""
    hyperparameters: Sequence[str] = ()
    """Hyperparameters that it requires."""
    replicated: Sequence[str] = ()
    """Channels that must be FullyReplicated."""
    sharded: Sequence[str] = ()
    """Channels that must be ShardedByS3Key."""
    content_types: Sequence[str] = ()
    """The MIME types that it reads; empty if it ignores them."""
    file_only: bool = False
    """Whether it reads File mode only."""
    gpu_only: bool = False
    cpu_only: bool = False
    one_instance: bool = False
    keeps_checkpoints: bool = False
    unlabelled: bool = False
    """Whether its CSV has no column of labels, which the content type has to state: label_size=0."""

    @property
    def channels(self) -> Sequence[str]:
        """The channels that it is known to read."""
        return (*self.needs, *self.takes)


_NONE = BuiltIn(needs=())


@cache
def built_ins() -> dict[str, BuiltIn]:
    """Return the requirements of each algorithm, from algorithms.yaml."""
    table = yaml.safe_load(Path(__file__).with_name("algorithms.yaml").read_text(encoding="utf-8"))
    return {name: BuiltIn(**known) for name, known in table.items()}


def facts(draft: Draft) -> BuiltIn:
    """Return the requirements of the built-in algorithm that runs; those of a script or another image are empty."""
    return _NONE if draft.built_in is None else built_ins().get(draft.built_in, _NONE)
