"""The options of train.py, which hyperparameters become: their spellings, and one line for a wrong one."""

from __future__ import annotations

import pytest

import train


def test_options_accept_underscores() -> None:
    # The toolkit hands hyperparameters over as the user spelt them.
    options = train.parse(["--batch_size", "7", "--compare_channel=a_b", "--model", "a_b:c_d"])
    assert (options.batch_size, options.compare_channel, options.model) == (7, "a_b", "a_b:c_d")
    assert options.epochs == 10 and options.image_size is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lerning-rate", "1"], "unrecognized arguments: --lerning-rate 1"),
        (["--epochs", "0"], "argument --epochs: 0 is less than 1"),
        (["--num-workers", "-1"], "argument --num-workers: -1 is less than 1"),
        (["--epochs", "1.5"], "argument --epochs: invalid"),
        (["--learning-rate", "fast"], "argument --learning-rate: invalid float value: 'fast'"),
        (["--image-mode", "CMYK"], "argument --image-mode: invalid choice: 'CMYK'"),
        (["--seed"], "argument --seed: expected one argument"),
    ],
)
def test_wrong_option_is_a_one_line_error(words: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        train.parse(words)
    line = str(ended.value.code)
    assert line.startswith(f"train: {message}") and "\n" not in line and line.endswith("--help")
