"""Train an image classifier on the channels of a job, in any input mode.

    python entrypoints/train.py --epochs 10 --batch-size 64 [--model package.module:factory] [--compare-channel images]

The images are in the channels `train`, `validation` and `test` (the last two are optional), their classes in the `.lst` files of
`train_lst`, `validation_lst` and `test_lst`. It runs as one process or under torchrun with any number of ranks. Hyperparameters
are these options; an unknown one ends the job, since it is probably misspelt.

It writes `model.pt` (the state_dict) and `model.json` to the model directory, `metrics.json` to output/data, and a checkpoint after
each epoch and on SIGTERM. It resumes from an existing checkpoint: with as many ranks and `--num-workers` with the same result as
without the interruption, and with any other number it trains once on each image that the epoch has left. It restarts the epoch of a
Pipe with a ShuffleConfig, which gets another order after each start, and one with another seed, block or number of sharded hosts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sagemaker_channels.errors import ChannelError, ConfigError
from sagemaker_channels.image_training.options import parse_options
from sagemaker_channels.job.environment import load_environment

STOPPED = 143  # 128 + SIGTERM, as in a shell
_PACKAGES = ("torch", "numpy", "PIL")  # the extra `torch`


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script. Exit codes: 0; 1 with one line if it cannot continue; 143 if it was stopped."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    try:
        environment = load_environment()
        from sagemaker_channels.image_training.classifier import run

        stopped = run(options, environment, say=lambda text: print(text, flush=True))
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        sys.exit(f"train: {error.name} is not installed, which training needs: pip install 'sagemaker-launch[torch]'")
    except (ChannelError, ConfigError, ImportError) as error:
        sys.exit(f"train: {error}")
    _leave(STOPPED if stopped else 0)


def _leave(code: int) -> None:
    """End the process; one of several ranks immediately, without Python's cleanup.

    Everything is written by now. gloo's threads abort about one exit in ten ("terminate called without an active exception",
    torch 2.13, after destroy_process_group), for which torchrun would fail a complete training.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    sys.path.insert(0, "")  # the user's modules come before those beside this script, as with `python -m`
    main()
