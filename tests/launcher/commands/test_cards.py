"""The cards of commands and effects: what each one declares, tried against the stand-in for AWS."""

from __future__ import annotations

import importlib
import json
import shlex
from pathlib import Path
from pkgutil import resolve_name

import click
import pytest

import launcher
from aws_stand_in import StandIn
from launcher.commands import COMMANDS
from launcher.commands.card import EXIT_CODES, Command, Effect, choose
from launcher.commands.effects import EFFECTS
from launching import launch

SPEC = """\
base_name: digits
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1
role_arn: arn:aws:iam::123456789012:role/trainer
resource_config: {instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 10}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://mine/out/}
hyperparameters: {epochs: 5}
channels: {train: s3://mine/train/}
"""
CARDS: dict[str, type[Command]] = {name: resolve_name(card) for name, card in COMMANDS.items()}
DEFAULTS = {name: each.settings["default"] for effect in EFFECTS for name, each in effect.declared().items()}


@pytest.fixture
def account(aws: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """An account with the running job digits-1 and s3://mine/train/1.jpg, and a folder with job.yaml, images and lists."""
    (tmp_path / "job.yaml").write_text(SPEC)
    for name in (f"{kind}/{number}.jpg" for kind in ("cat/siamese", "cat/persian", "dog") for number in range(10)):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).touch()
    lines = [
        f"{n}\t{n >= 20:d}\t{kind}/{n % 10}.jpg\n"
        for n, kind in enumerate(sorted(["cat/siamese", "cat/persian", "dog"] * 10))
    ]
    (tmp_path / "train.lst").write_text("".join(lines))
    (tmp_path / "more.lst").write_text("".join(lines[1:]))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "map.txt").write_text("cat/siamese/\t1\n")
    aws.client("s3").create_bucket(Bucket="mine")
    aws.client("s3").put_object(Bucket="mine", Key="train/1.jpg", Body=b"1")
    monkeypatch.chdir(tmp_path)
    aws.client("sagemaker").create_training_job(**launcher.plan("job.yaml", name="digits-1").request)
    aws.job("digits-1", "Training")
    aws.log("digits-1", ["epoch 1"])
    aws.clear_calls()
    return aws


@pytest.mark.parametrize("name", CARDS)
def test_help_of_command_explains_it_and_every_option(name: str) -> None:
    command = CARDS[name].as_click(name)
    text = " ".join(command.get_help(click.Context(command, info_name=name)).split())
    summary, *paragraphs = CARDS[name].texts()
    assert paragraphs, f"{CARDS[name].__name__}: add a second paragraph to the docstring, for the command's own --help"
    assert [paragraph for paragraph in paragraphs if paragraph not in text] == []
    assert summary.endswith(".")
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert [each.name for each in options if not (each.help or "").endswith(".")] == []
    assert f"Example: launch {CARDS[name].example}" in text


@pytest.mark.parametrize("name", CARDS)
def test_example_of_command_runs_and_its_json_parses(name: str, account: StandIn) -> None:
    done = launch(*shlex.split(CARDS[name].example))
    assert done.returncode == 0, done.stderr
    done = launch(*shlex.split(CARDS[name].example), "--json")
    assert done.returncode == 0, done.stderr
    values = done.stdout.splitlines() if name == "logs" else [done.stdout]
    assert all(json.loads(value) is not None for value in values)
    assert values


@pytest.mark.parametrize("name", CARDS)
def test_exit_codes_of_command_are_documented(name: str, account: StandIn) -> None:
    """Done, wrong arguments, and calls that AWS denies."""
    card = CARDS[name]
    assert {*card.exit_codes} <= EXIT_CODES.keys()
    assert launch(*name.split(), "--no-such-option").returncode == 2
    account.deny("*")
    codes = {launch(*shlex.split(card.example)).returncode, 2}
    assert codes <= {*card.exit_codes}
    asks = bool(account.calls())
    account.clear_faults()
    assert (codes == {2, 3}) == asks


@pytest.mark.parametrize("name", CARDS)
def test_options_of_command_are_frozen(name: str) -> None:
    declared = CARDS[name].declared()
    first = next(iter(declared))
    with pytest.raises(AttributeError, match=rf"{first} is frozen"):
        setattr(CARDS[name]({**dict.fromkeys(declared), **DEFAULTS}), first, "changed")


def test_every_card_is_in_a_table() -> None:
    folder = Path(importlib.import_module("launcher.commands").__file__ or "").parent
    cards = {f"{card.__module__}:{card.__name__}" for card in (*CARDS.values(), *EFFECTS)}
    for file in folder.rglob("*.py"):
        module = ".".join(file.relative_to(folder.parents[1]).with_suffix("").parts)
        found = vars(importlib.import_module(module)).values()
        classes = [each for each in found if isinstance(each, type) and each.__module__ == module]
        for card in classes:
            if issubclass(card, Command | Effect) and hasattr(card, "example"):
                assert f"{module}:{card.__name__}" in cards


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda each: each.title())
def test_effect_is_an_example_of_help(effect: type[Effect]) -> None:
    text = " ".join(launch("--help").stdout.split())
    assert f"launch {effect.example} {effect.summary}" in text
    assert effect.chosen_by is None or effect.title() in effect.example


def chosen(effect: type[Effect], **given: object) -> object:
    """What a user gets who passes the flag of `effect` and `given`."""
    return choose(EFFECTS, {**DEFAULTS, **({effect.chosen_by: True} if effect.chosen_by else {}), **given})


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda each: each.title())
def test_effect_refuses_options_of_others(effect: type[Effect]) -> None:
    for name in DEFAULTS:
        if name in effect.declared():
            assert chosen(effect, **{name: "given"})
        elif effect.chosen_by or name not in (each.chosen_by for each in EFFECTS):
            with pytest.raises(click.UsageError, match=r"exclude each other|works only with"):
                chosen(effect, **{name: "given"})


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda each: each.title())
def test_contradictions_of_effect_are_refused(effect: type[Effect]) -> None:
    assert EFFECTS[-1].contradictions
    for first, second in effect.contradictions:
        expected = f"{effect.dashed(first)} and {effect.dashed(second)} exclude each other; pass one of them"
        with pytest.raises(click.UsageError, match=expected):
            chosen(effect, **{first: True, second: True})
