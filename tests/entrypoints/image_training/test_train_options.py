"""The options of train.py, which hyperparameters become: their spellings, and one line for a wrong one."""

from __future__ import annotations

import pytest

from sagemaker_channels.image_training import options as train_options


def test_options_accept_underscores() -> None:
    # The toolkit hands hyperparameters over as the user spelt them.
    options = train_options.parse_options(["--batch_size", "7", "--train_lst=a_b", "--model", "a_b:c_d"])
    assert (options.batch_size, options.train_lst, options.model) == (7, "a_b", "a_b:c_d")
    assert options.epochs == 10 and options.validation_channel is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lerning-rate", "1"], "--lerning-rate is not an option; did you mean --learning-rate?"),
        (["--epochs", "0"], "argument --epochs: 0 is less than 1"),
        (["--num-workers", "-1"], "argument --num-workers: -1 is less than 0"),
        (["--epochs", "1.5"], "argument --epochs: invalid"),
        (["--learning-rate", "fast"], "argument --learning-rate: invalid float value: 'fast'"),
        (["--image-mode", "CMYK"], "argument --image-mode: invalid choice: 'CMYK'"),
        (["--seed"], "argument --seed: expected one argument"),
    ],
)
def test_wrong_option_is_a_one_line_error(words: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        train_options.parse_options(words)
    line = str(ended.value.code)
    assert line.startswith(f"train: {message}") and "\n" not in line and line.endswith("--help")


def test_every_option_is_an_attribute() -> None:
    assert vars(train_options.parse_options([])).keys() == train_options.Options.__dataclass_fields__.keys()
