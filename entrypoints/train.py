"""Trains an image classifier on the channels of a job, whichever way each of them arrives.

    python -m entrypoints.train --epochs 10 --batch-size 64 [--model package.module:factory] [--compare-channel images]

Images come from the channels `train`, `validation` and `test` (the last two if the job has them), each image's class from
the `.lst` files of `train_lst`, `validation_lst` and `test_lst`. Runs as one process, or under torchrun with any number of
ranks. SageMaker hands hyperparameters over as these options; one that is none of them ends the job, since it is
probably misspelt.

Writes `model.pt` (the state_dict) and `model.json` to the model directory, `metrics.json` to output/data, and a checkpoint
after every epoch and on SIGTERM; where one is there at the start it goes on from it, to the same result as without the
interruption. (Of a Pipe with a ShuffleConfig, which brings other orders after each start, it begins the epoch anew.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from entrypoints.errors import ChannelError
from entrypoints.image_training.options import parse_options
from entrypoints.job.environment import ConfigError, load_environment

STOPPED = 143  # 128 + SIGTERM, as a shell has it
_PACKAGES = ("torch", "numpy", "PIL")  # what the extra `torch` brings


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the script. Exit codes: 0, 1 with one line where it cannot go on, 143 where it was stopped."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    try:
        environment = load_environment()
        from entrypoints.image_training.classifier import run

        stopped = run(options, environment, say=lambda text: print(text, flush=True))
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        sys.exit(f"train: {error.name} is not installed, which training needs: pip install 'sagemaker-launch[torch]'")
    except (ChannelError, ConfigError, ImportError) as error:
        sys.exit(f"train: {error}")
    _leave(STOPPED if stopped else 0)


def _leave(code: int) -> None:
    """Ends the process; one of several ranks at once, with nothing left to tear down.

    All is written by now. torch's gloo threads abort one exit in some ten ("terminate called without an active exception",
    torch 2.13, after destroy_process_group), and torchrun then fails a training that is complete.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
