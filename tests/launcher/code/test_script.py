"""What a script and its job do not agree on is found before the job, exactly where the script itself would fail."""

from __future__ import annotations

import io
import runpy
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import launcher
from launcher.code.script import script_of, script_problems
from launcher.errors import Problem, dotted
from launcher.rules.examples import laid_over_base
from launcher.spec.own_keys import Code
from sagemaker_channels.job.hyperparameters import command_line_arguments, decoded

SCRIPT = """\
import argparse, os

def add_data(parser, name):
    parser.add_argument("--" "data")

parser = argparse.ArgumentParser(description=__doc__)
add_data(parser, "x")
group = parser.add_argument_group("optimizer")
group.add_argument("--learning-rate", "-l", type=float, default=0.1)
group.add_argument("--epochs", type=int, required=True)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction)
parser.add_argument("--mode", choices=["fast", "exact"])
parser.add_argument("--size", type=lambda text: int(text), choices=[1, 2])
parser.add_argument("--layers", type=int, nargs="+")
parser.add_argument("--drop", type=bool, default=True)
if __name__ == "__main__":
    parser.parse_args()
"""
NEEDED = {"epochs": "1"}


def found(script: str, hyperparameters: dict[str, str], code: Code | None = None, **request: object) -> list[Problem]:
    code = code or Code(entry_point="train.py")
    return list(script_problems(code, "train.py", script, {"HyperParameters": hyperparameters, **request}))


def exit_code(script: Path, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of the script itself."""
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    try:
        with redirect_stderr(io.StringIO()):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code
    return 0


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        (NEEDED, ""),
        ({}, "train.py requires --epochs; add hyperparameters.epochs"),
        ({"epoch": "1"}, ""),  # argparse takes what begins an option
        (NEEDED | {"lr": "1"}, "train.py has no argument --lr; delete it, or add the argument to the script"),
        (NEEDED | {"learning_rate": "1"}, "train.py has no argument --learning_rate; did you mean --learning-rate?"),
        (NEEDED | {"l": "0.1"}, ""),
        (NEEDED | {"learning-rate": "-1e-3"}, ""),
        (NEEDED | {"learning-rate": "fast"}, "train.py would refuse --learning-rate (invalid float value); correct"),
        ({"epochs": "1.5"}, "train.py would refuse --epochs (invalid int value); correct the value"),
        (
            NEEDED | {"amp": "true"},
            "train.py has a flag --amp, which takes no value; let it take one, such as type=int",
        ),
        (NEEDED | {"shuffle": "true"}, "train.py has a flag --shuffle, which takes no value"),
        (NEEDED | {"mode": "exact", "data": "x y"}, ""),
        (NEEDED | {"mode": "quick"}, "train.py would refuse --mode (invalid choice); correct the value"),
        (NEEDED | {"layers": "3"}, ""),
        (NEEDED | {"layers": "[3, 4]"}, "train.py would refuse --layers (invalid int value)"),
        (NEEDED | {"data": "-x"}, "train.py would refuse --data (expected one argument)"),
        (NEEDED | {"s": "1"}, "train.py has no argument -s"),
        (NEEDED | {"da": "1", "si": "2"}, ""),
    ],
)
def test_arguments_are_refused_as_the_script_itself_refuses_them(
    hyperparameters: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    problems = found(SCRIPT, hyperparameters)
    arguments = command_line_arguments({key: decoded(value) for key, value in hyperparameters.items()}, "toolkit")
    assert bool(problems) == bool(exit_code(script, arguments, monkeypatch)) == bool(message)
    assert [problem.code for problem in problems] == ["script-arguments"] * bool(message)
    assert all(problem.message.startswith(message) for problem in problems)


def test_type_bool_takes_false_for_true() -> None:
    assert [each.message for each in found(SCRIPT, NEEDED | {"drop": "false"})] == [
        "train.py takes it for True, as type=bool does with any text but ''; use another type for --drop"
    ]
    assert found(SCRIPT, NEEDED | {"drop": "true"}) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("parser.parse_args()", "parser.parse_args([])"),
        ("parser.parse_args()", "start(parser)"),
        ("parser.parse_args()", "parser.parse_args(); return parser"),
        ("parser.parse_args()", "parser.parse_args(); add_data()(parser)"),
        ("parser.parse_args()", "add_more(parser); parser.parse_args()"),
        ("parser.parse_args()", "import tools; tools.add(parser=parser); parser.parse_args()"),
        ('"--amp"', "name"),
        ('"--amp", action="store_true"', '"--amp", **settings'),
        ('"--amp", action="store_true"', '"--amp", action=Own'),
        ('add_data(parser, "x")', "add = parser.add_argument; add('--lr')"),
        ("description=__doc__", "parents=[common]"),
        ("ArgumentParser(", "HfArgumentParser("),
        ("import argparse, os", "import argparse, os\nother = argparse.ArgumentParser()"),
        ('"--layers", type=int, nargs="+"', '"rest", nargs=argparse.REMAINDER'),
        ("import argparse, os", "import jsonargparse as argparse, os"),
        ("import argparse, os", "import argparse, os, sys; sys.argv.append('--epochs=1')"),
        ("parser.parse_args()", "parser.parse_args(args=[])"),
        ("parser.parse_args()", "parser.parse_args('--epochs 1'.split())"),
        ("import argparse, os", "import argparse, os\nfrom sys import argv"),
        ("import argparse, os", "import argparse, os\nif os.environ: exit(0)"),
        ("parser = argparse.ArgumentParser(", "parser = tools.parser = argparse.ArgumentParser("),
        ("parser.parse_args()", "if not os.environ: parser.parse_args()"),
        ("    parser.parse_args()", "  try: parser.parse_args()\n  except SystemExit: pass"),
        ("parser = argparse.ArgumentParser(", "parser = more = argparse.ArgumentParser("),
        ('add_data(parser, "x")', 'add_data(parser, "x"); tools.add(parser.add_argument_group())'),
        ('"x")\n', '"x")\nparser.add_subparsers()\n'),
        ("parser.parse_args()", "def run(args=[1]): parser.parse_args(args)\n    run()"),
        ("parser.parse_args()", "def more(): return parser\n    tools.add(more); parser.parse_args()"),
    ],
)
def test_script_whose_arguments_are_not_all_known_is_not_judged(before: str, after: str) -> None:
    assert SCRIPT.count(before) == 1
    assert found(SCRIPT, {"lr": "1"})
    script = SCRIPT.replace(before, after)
    assert found(script + "tools.add(more)" * ("more" in after), {"lr": "1"}) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('add_data(parser, "x")', 'add_data(name="x", parser=parser)'),
        ('choices=["fast", "exact"]', "choices=sorted(MODES)"),
        ("parser.parse_args()", "def run(args=None): parser.parse_args(args)\n    run()"),
        ("parser.parse_args()", "def made(): return parser\n    made().parse_args()"),
    ],
)
def test_script_is_judged_however_it_passes_its_parser_on(before: str, after: str) -> None:
    assert SCRIPT.count(before) == 1
    assert [each.path for each in found(SCRIPT.replace(before, after), {"lr": "1"})] == [
        ("hyperparameters", "lr"),
        ("code", "entry_point"),  # --epochs is missing
    ]


@pytest.mark.parametrize(
    ("settings", "words", "message"),
    [
        ("", "", "train.py requires data; write it in code.command"),
        ("", " a.csv", ""),
        (", nargs='+'", " a.csv b.csv", ""),
        (", nargs='+'", "", "train.py requires data; write it in code.command"),
        (", nargs='*'", "", ""),
        (", nargs='?'", "", ""),
        (", action='append', nargs='?'", "", ""),
    ],
)
def test_positional_argument_is_a_word_of_the_command(settings: str, words: str, message: str) -> None:
    script = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('data'{settings})\nparser.parse_args()\n"
    problems = found(script, {}, Code.model_validate({"command": f"python train.py{words}"}))
    assert [(each.path, each.message) for each in problems] == [(("code", "command"), message)] * bool(message)


@pytest.mark.parametrize(
    "code", [{"entry_point": "train"}, {"command": "python a.py b.py"}, {"command": "bash a.sh && bash b.sh"}]
)
def test_job_without_one_script_is_not_judged(code: dict[str, object]) -> None:
    assert script_of(Code.model_validate(code)) is None


@pytest.mark.parametrize(
    ("line", "hyperparameters"),
    [
        ("if os.environ: parser.add_argument('--seed', required=True)", {}),
        ("def add_more(parser): parser.add_argument('--seed', required=True)", {}),
        ("parser.add_argument('--local_rank', required=True)", {}),  # deepspeed passes it
        ("import builtins; parser.add_argument('--seed', type=builtins.int, choices=[1, 2])", {"seed": "1"}),
    ],
)
def test_argument_that_the_script_may_accept_is_not_warned_of(line: str, hyperparameters: dict[str, str]) -> None:
    script = SCRIPT.replace("if __name__", f"{line}\nif __name__")
    assert found(script, NEEDED | hyperparameters) == []


def test_argument_that_is_added_in_a_condition_may_be_none_of_a_script_that_takes_all() -> None:
    script = SCRIPT.replace("parse_args", "parse_known_args").replace("group.add", "if os.environ: group.add", 1)
    assert found(script, NEEDED | {"learning-rate": "fast"}) == []


def test_version_and_help_end_the_script_but_not_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    script = SCRIPT.replace(
        "if __name__", "parser.add_argument('--version', action='version', version='1')\nif __name__"
    )
    assert [dotted(each.path) for each in found(script, NEEDED | {"version": "1", "help": "1"})] == [
        "hyperparameters.version",
        "hyperparameters.help",
    ]
    assert capsys.readouterr() == ("", "")


def test_unknown_arguments_are_none_of_a_script_that_takes_all() -> None:
    script = SCRIPT.replace("parse_args", "parse_known_args")
    assert found(script, NEEDED | {"lr": "1", "amp": "true"}) == []
    assert (
        "no argument --learning_rate; did you mean --learning-rate?" in found(script, {"learning_rate": "1"})[0].message
    )
    assert [each.path for each in found(script, {"epochs": "x"})] == [("hyperparameters", "epochs")]


@pytest.mark.parametrize(
    ("code", "is_judged"),
    [
        ({"command": "torchrun --nproc_per_node 2 train.py --epochs 3"}, True),
        ({"command": 'torchrun train.py --epochs 3 "$@"'}, True),
        ({"command": ["torchrun", "train.py", "--epochs", "3"]}, True),
        ({"command": "python -m train --epochs 3"}, True),
        ({"command": ["python", "-m", "torch.distributed.run", "-m", "train", "--epochs", "3"]}, True),
        ({"command": "torchrun train.py --epochs $EPOCHS"}, False),
        ({"command": "cd src && python train.py --epochs 3"}, False),
        ({"command": "cd src\npython train.py --epochs 3\necho"}, False),
        ({"command": 'torchrun "$@" train.py --epochs 3'}, False),
        ({"command": "bash run.sh train.py --epochs 3"}, False),
        ({"entry_point": "train.py", "arguments": "name=value"}, False),
    ],
)
def test_words_of_a_command_count_unless_a_shell_makes_them(code: dict[str, object], is_judged: bool) -> None:
    section = Code.model_validate(code)
    problems = found(SCRIPT, {"lr": "1"}, section) if script_of(section) == "train.py" else []
    assert [dotted(problem.path) for problem in problems] == ["hyperparameters.lr"] * is_judged


def test_module_of_a_command_is_its_file() -> None:
    assert script_of(Code(command="torchrun -m package.train")) == "package/train.py"


def test_script_without_arguments_lacks_those_that_it_requires() -> None:
    code = Code(entry_point="train.py", arguments="none")
    assert [each.message for each in found(SCRIPT, {"lr": "1"}, code)] == [
        "train.py requires --epochs; add hyperparameters.epochs"
    ]


@pytest.mark.parametrize(
    ("line", "channels", "message"),
    [
        ("os.environ['SM_CHANNEL_TRAIN']", ["train"], ""),
        (
            "os.environ['SM_CHANNEL_VAL']",
            ["train"],
            "reads SM_CHANNEL_VAL, but there is no channel val with a folder; add it",
        ),
        ("os.environ['SM_CHANNEL_TRAINING']", ["train"], "no channel training with a folder; rename channel train, or"),
        (
            "os.environ.get('SM_CHANNEL_TRAINING')",
            ["train"],
            "no channel training with a folder; rename channel train, or",
        ),
        ("os.environ.get('SM_CHANNEL_TEST')", ["train"], ""),
        ("os.environ['SM_CHANNEL_TEST'] if 'SM_CHANNEL_TEST' in os.environ else None", ["train"], ""),
        ("os.environ.get('SM_CHANNEL_TRAINING'), ChannelDataset('train')", ["train"], ""),
        ("os.environ.get('SM_CHANNEL_TRAINING'), '/opt/ml/input/data/train/a'", ["train"], ""),
        ("os.environ['SM_CHANNEL_MINE']", [], ""),
        ("0)\ntry: x = os.environ['SM_CHANNEL_VAL']\nexcept KeyError: print(1", ["train"], ""),
        ("0)\nif len(os.environ) == 7: x = os.environ['SM_CHANNEL_VAL']\nprint(1", ["train"], ""),
        ("0)\ndef evaluate(): return os.environ['SM_CHANNEL_VAL']\nprint(1", ["train"], ""),
        ("0)\ndef evaluate(): return os.environ['SM_CHANNEL_VAL']\nprint(evaluate()", ["train"], "no channel val"),
        ("0)\nos.environ['SM_CHANNEL_VAL'] = '/tmp'\nprint(1", ["train"], ""),
        ("os.environ.get('SM_CHANNEL_TRAINING'), os.environ['SM_CHANNELS']", ["train"], ""),
        ("os.environ['SM_CHANNEL_MY-DATA']", ["my-data"], ""),
    ],
)
def test_channels_that_a_script_reads_are_in_the_job(line: str, channels: list[str], message: str) -> None:
    entries = [{"ChannelName": name} for name in channels]
    problems = found(f"import os\nprint({line})\n", {}, InputDataConfig=entries, Environment={"SM_CHANNEL_MINE": "x"})
    assert [problem.code for problem in problems] == ["script-channel"] * bool(message)
    assert all(message in problem.message for problem in problems)


@pytest.mark.parametrize(("script", "line"), [("x = (\n", ":1"), ("x = 1\nif x\n", ":2"), ("x\0", "")])
def test_script_that_is_no_python_is_named_with_its_line(script: str, line: str) -> None:
    (problem,) = found(script, {})
    assert problem.code == "script-syntax"
    assert problem.message.startswith(f"train.py{line} is no Python {sys.version_info[0]}.{sys.version_info[1]}: ")


def test_script_that_is_not_utf_8_is_refused_by_python() -> None:
    (problem,) = found("print('gr\udcf6\udcdfe')\n", {})
    assert problem.message == "train.py is not UTF-8, which Python expects; save it as UTF-8"


@pytest.mark.parametrize(
    ("code", "text", "line"),
    [
        ({"entry_point": "run.sh"}, "#!/bin/sh\r\ntrue\r\n", 1),
        ({"command": "bash run.sh"}, "#!/bin/sh\ntrue\r\n", 2),
        ({"entry_point": "run.sh"}, "#!/bin/sh\nprintf '\\r\\n'\n", None),
    ],
)
def test_shell_script_of_windows_is_named_with_its_line(code: dict[str, object], text: str, line: int | None) -> None:
    section = Code.model_validate(code)
    assert script_of(section) == "run.sh"
    problems = list(script_problems(section, "run.sh", text, {}))
    assert [problem.message.partition(" ")[0] for problem in problems] == [f"run.sh:{line}"] * (line is not None)


@pytest.mark.parametrize("script", ["#!python\n# -*- coding: cp1252 -*-\nna\udcefve = 1", "-" * 100_000 + "1"])
def test_script_of_another_encoding_or_depth_is_not_judged(script: str) -> None:
    assert found(script, {"lr": "1"}) == []


def test_plan_warns_at_the_key_and_shows_no_value(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(SCRIPT)
    spec = tmp_path / "job.yaml"
    spec.write_text(
        laid_over_base("code: {directory: src, entry_point: train.py}\nhyperparameters: {epochs: 3, mode: hunter2}")
    )
    (warning,) = launcher.plan(spec, name="one").warnings
    assert warning.location is not None
    assert (dotted(warning.path), warning.location.text[warning.location.column - 1 :]) == (
        "hyperparameters.mode",
        "mode: hunter2}",
    )
    assert "hunter2" not in str(warning)
    assert launcher.plan(spec, name="one", ignore=("script-arguments",)).warnings == ()


def test_bundled_script_is_judged_too() -> None:
    text = laid_over_base("code: {entry_point: entrypoints/read_channels.py}\nhyperparameters: {epochs: all}")
    (warning,) = launcher.plan(launcher.parse_spec(text), name="one").warnings
    assert (
        warning.message == "entrypoints/read_channels.py would refuse --epochs (invalid int value); correct the value"
    )
