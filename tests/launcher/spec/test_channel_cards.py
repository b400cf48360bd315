"""The card of each storage kind is complete: what a new kind forgets is named here, with the place to add it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import launcher
from account_world import CHANNELS
from account_worlds import GOOD
from launcher import bundled
from launcher.account import CHECKS
from launcher.account.results import subject_of
from launcher.advice.ways import WAYS
from launcher.aws.session import Account, AwsError
from launcher.errors import InputError
from launcher.importing import imports
from launcher.parsing.parser import parse_spec
from launcher.spec.aws_model import shapes
from launcher.spec.channels import KINDS, source_of, source_of_entry
from launcher.spec.channels.base import BaseChannel
from launcher.survey.channels import channels_of
from launching import launch
from sagemaker_channels import contract
from sagemaker_channels.sources.readers import READERS
from sagemaker_channels.tools.ways import ARRIVALS

GOLDEN = Path(__file__).parents[2] / "golden"
CARD = ("MEMBER", "DATA", "PROVIDERS", "ACCOUNT_CHECKS", "WAYS", "MEASURED_AS", "EXAMPLE")
OF_ENTRY = set(shapes()["Channel"]["members"])
every_kind = pytest.mark.parametrize("source", KINDS)


class DeniedAccount(Account):
    """An account that refuses every question."""

    def attempt(self, service: str, operation: str, do: Callable[[Any], Any]) -> Any:
        raise AwsError("denied", call=f"{service}:{operation}", code="AccessDenied", status=403)


@cache
def plan_of(spec: str) -> launcher.Plan:
    return launcher.plan(bundled.spec_path(spec), name="card")


def examples(source: str) -> list[tuple[str, str, BaseChannel]]:
    """Return the bundled specs' channels of a kind: spec, name, channel."""
    found = [
        (spec, name, channel)
        for spec in bundled.spec_names()
        for name, channel in plan_of(spec).spec.all_channels.items()
        if channel.source == source and name != contract.CODE_CHANNEL
    ]
    assert found, f"no spec has a channel of source {source}: add one to channel_specs/"
    return found


@every_kind
def test_card_states_each_attribute_or_the_reason_for_its_absence(source: str) -> None:
    kind = KINDS[source]
    missing = [name for name in CARD if not getattr(kind, name) and not kind.WITHOUT.get(name)]
    assert not missing, f"{kind.__name__} has no {', '.join(missing)}: set each, or give WITHOUT[its name] the reason"
    explained = [name for name in CARD if getattr(kind, name) and name in kind.WITHOUT]
    assert not explained, f"{kind.__name__} has {', '.join(explained)}: delete it from WITHOUT"
    assert set(kind.WITHOUT) <= set(CARD)


@every_kind
def test_bundled_spec_and_golden_request_show_the_kind(source: str) -> None:
    for spec in {spec for spec, _, _ in examples(source)}:
        golden = GOLDEN / f"{spec}.json"
        assert golden.is_file(), (
            f"run pytest tests/project/test_channel_specs.py --rewrite-golden: there is no {golden}"
        )


@every_kind
def test_keys_are_members_of_the_service_model(source: str) -> None:
    kind = KINDS[source]
    for key in kind.model_fields if kind.MEMBER else ():
        *above, member = kind.place(key)
        members = set(shapes()[above[-1]]["members"]) if above else OF_ENTRY
        assert key == "source" or member in members, f"{kind.__name__}.{key}: {above} has no member {member}"


@every_kind
def test_entry_of_the_kind_is_recognised_and_imported(source: str) -> None:
    for spec, name, channel in examples(source):
        entry = channel.input_data_config(name, "File")
        assert (entry is None) == (KINDS[source].MEMBER is None)
        if entry is None:
            assert channel.connector(name), f"{source}: neither an entry nor a connector names the data of {name}"
            continue
        assert source_of_entry(entry) == source
        imported = parse_spec(imports.import_file(str(GOLDEN / f"{spec}.json")).as_yaml())
        assert imported.request is None, f"{spec}: the import leaves {imported.request} to the escape hatch"
        assert imported.all_channels[name].input_data_config(name, "File") == entry
        assert imported.all_channels[name].source == source


@every_kind
def test_kinds_do_not_share_entries(source: str) -> None:
    """An entry of one kind has no members for another kind's keys."""
    _, name, channel = examples(source)[0]
    entry = channel.input_data_config(name, "File") or {}
    sharing = [other for other, kind in KINDS.items() if kind.members(entry) is not None]
    assert sharing == [source] * bool(entry), (
        f"{', '.join(sharing)} make the same entries, so an import cannot tell them apart: a kind needs a DataSource member or"
        " fixed_members() of its own; other defaults of the same storage belong in a spec that others name in `extends`"
    )


@every_kind
def test_provider_of_the_kind_exists(source: str) -> None:
    for mode, module in KINDS[source].PROVIDERS.items():
        assert mode in shapes()["TrainingInputMode"]["enum"]
        provider = importlib.import_module(f"launcher.local.channels.{module}")
        assert callable(provider.provide), f"launcher/local/channels/{module}.py defines no provide()"


@every_kind
def test_reader_of_a_kind_without_entry_exists(source: str) -> None:
    for _, name, channel in examples(source):
        if (settings := channel.connector(name)) is not None:
            reader = settings.get(contract.CONNECTOR_READER, "S3Connector")
            assert reader == source, (
                f"{source}: connector() of its card must set CONNECTOR_READER, or S3Connector reads it"
            )
            assert reader in READERS, f"add {reader!r} to READERS in entrypoints/sagemaker_channels/sources/readers.py"


@every_kind
def test_every_named_account_check_asks_about_the_channel(source: str) -> None:
    checks = {check.name: check for check in CHECKS}

    def asks(check: str, spec: str) -> bool:
        """Whether it asks about a channel of the kind in a spec."""
        plan = plan_of(spec)
        subject = subject_of(plan, DeniedAccount(region="us-east-1"))
        list(checks[check].problems(subject))
        places = {plan.origin.place(path)[:2] for path, _ in subject.not_asked}
        return any(("channels", name) in places for each, name, _ in examples(source) if each == spec)

    for check in KINDS[source].ACCOUNT_CHECKS:
        assert check in checks, f"{source}: ACCOUNT_CHECKS names {check!r}, which is not in launcher.account.CHECKS"
        shown = any(asks(check, spec) for spec in dict.fromkeys(spec for spec, _, _ in examples(source)))
        assert shown, f"{source}: the check {check!r} asks AWS nothing about a channel of this kind"


@every_kind
def test_good_world_of_the_account_checks_has_a_channel_of_the_kind(source: str) -> None:
    """Those worlds must have no problem, and each check of the kind must have asked (tests/launcher/account)."""
    if KINDS[source].ACCOUNT_CHECKS:
        worlds = yaml.safe_load(GOOD)["channels"] | yaml.safe_load(CHANNELS.format(efs="fs-1", fsx="fs-2"))["channels"]
        assert source in map(source_of, worlds.values()), f"add a channel of {source} to CHANNELS of account_world.py"


@every_kind
def test_advise_knows_the_kind(source: str) -> None:
    kind = KINDS[source]
    assert set(kind.WAYS) <= set(WAYS), f"add a row for each of {kind.WAYS} to launcher/advice/ways.yaml"
    subject = subject_of(plan_of(kind.EXAMPLE), DeniedAccount(region="us-east-1"))
    names = [name for spec, name, _ in examples(source) if spec == kind.EXAMPLE]
    assert names, f"{source}: {kind.EXAMPLE} has no channel of this kind"
    if kind.WAYS:
        advised, _ = channels_of(subject, names)
        assert {each.present for each in advised} <= set(kind.WAYS)
    else:
        with pytest.raises(InputError, match=kind.WITHOUT["WAYS"]):
            channels_of(subject, names)


@every_kind
def test_measure_takes_the_kind(source: str) -> None:
    kind = KINDS[source]
    sharing = [other for other, each in KINDS.items() if other != source and each.MEASURED_AS.keys() & kind.MEASURED_AS]
    assert not sharing, f"{kind.__name__}: MEASURED_AS names channels of {sharing}; name its own"
    missing = set(kind.MEASURED_AS) - set(ARRIVALS)
    assert not missing, f"add {missing} to entrypoints/sagemaker_channels/tools/ways.py, to FILE_SYSTEMS if it is one"
    name = next(name for spec, name, _ in examples(source) if spec == kind.EXAMPLE)
    measured = launch("measure", str(bundled.spec_path(kind.EXAMPLE)), name, "--dry-run", "--json")
    if kind.MEASURED_AS:
        assert measured.returncode == 0, measured.stderr
        assert any(f'"{each}"' in measured.stdout.replace("\\", "") for each in kind.MEASURED_AS)
    else:
        assert f"channel {name!r} is neither a prefix in S3 nor a file system" in measured.stderr


@every_kind
def test_description_names_the_place_of_the_data(source: str) -> None:
    for _, name, channel in examples(source):
        places = [str(value) for key, value in channel if key in ("s3_uri", "file_system_id", "dataset_arn")]
        shown = channel.described("File")
        assert "\n" not in shown and all(place in shown for place in places), f"{name}: {shown}"


def test_goldens_hold_an_entry_of_every_kind_with_a_member() -> None:
    entries = [
        entry for file in GOLDEN.glob("*.json") for entry in json.loads(file.read_text()).get("InputDataConfig", ())
    ]
    assert {source_of_entry(entry) for entry in entries} == {source for source, kind in KINDS.items() if kind.MEMBER}
