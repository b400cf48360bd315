"""Layers of a spec: `extends`, `--set` and `${VARIABLES}`, each with its location in messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import launcher
from launcher import SpecError, parse_spec
from launcher.errors import dotted
from launcher.parsing.layers import steps_of
from launcher.request import serialization
from launcher.rules.examples import BASE, laid_over_base


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "team").mkdir()
    (tmp_path / "team/base.yaml").write_text(BASE + "hyperparameters: {epochs: 5, rate: 1e-3}\n")
    return tmp_path


def problems(path: Path, *sets: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        launcher.plan(launcher.load(path, sets=sets, environ=environ or {}), name="one")
    return [str(problem).replace(f"{path.parent}/", "") for problem in caught.value.problems]


def test_upper_layer_wins_key_by_key(folder: Path) -> None:
    (folder / "job.yaml").write_text(
        "extends: team/base.yaml\nhyperparameters: {epochs: 50}\nstopping_condition: null\n"
        "channels: {train: {input_mode: FastFile}}\n"
    )
    request = launcher.plan(folder / "job.yaml", name="one").request
    assert request["HyperParameters"] == {"epochs": "50", "rate": "1e-3"}
    assert "StoppingCondition" not in request
    (train,) = request["InputDataConfig"]
    assert (train["InputMode"], train["DataSource"]["S3DataSource"]["S3Uri"]) == ("FastFile", "s3://bucket/train/")


SHARDS = "channels: {train: {s3_uri: s3://bucket/train/, input_mode: FastFile, content_type: application/x-tar}}\n"


@pytest.mark.parametrize("by_set", [False, True])
def test_channel_with_another_source_keeps_the_keys_that_this_has(folder: Path, *, by_set: bool) -> None:
    (folder / "team/base.yaml").write_text(laid_over_base(SHARDS))
    upper = "" if by_set else "channels: {train: {source: S3Connector}}\n"
    (folder / "job.yaml").write_text(f"extends: team/base.yaml\n{upper}")
    sets = ["channels.train.source=S3Connector"] if by_set else []
    train = launcher.load(folder / "job.yaml", sets=sets).all_channels["train"]
    assert train.model_dump(exclude_unset=True) == {
        "source": "S3Connector",
        "s3_uri": "s3://bucket/train/",
        "content_type": "application/x-tar",
    }


def test_channel_moves_from_s3_to_a_file_system_and_back(folder: Path) -> None:
    efs = "{source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /train}"
    (folder / "team/base.yaml").write_text(laid_over_base(SHARDS))
    (folder / "efs.yaml").write_text(f"extends: team/base.yaml\nchannels: {{train: {efs}}}\n")
    (folder / "back.yaml").write_text("extends: efs.yaml\nchannels: {train: {source: S3, s3_uri: s3://bucket/new/}}\n")
    vpc = "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
    (folder / "efs.yaml").write_text((folder / "efs.yaml").read_text() + vpc)
    (entry,) = launcher.plan(folder / "efs.yaml").request["InputDataConfig"]
    assert "FileSystemDataSource" in entry["DataSource"] and entry["ContentType"] == "application/x-tar"
    assert launcher.load(folder / "back.yaml").all_channels["train"].model_dump(exclude_unset=True) == {
        "source": "S3",
        "s3_uri": "s3://bucket/new/",
        "content_type": "application/x-tar",
    }


def test_own_key_that_the_new_source_lacks_stays_an_error(folder: Path) -> None:
    (folder / "team/base.yaml").write_text(laid_over_base(SHARDS))
    (folder / "job.yaml").write_text(
        "extends: team/base.yaml\nchannels: {train: {source: S3Connector, input_mode: Pipe}}\n"
    )
    (problem,) = problems(folder / "job.yaml")
    assert problem.startswith(
        "job.yaml:2:41: channels.train.input_mode: is not a key of a channel; it needs source: S3"
    )


@pytest.mark.parametrize("source", ["[S3]", "{a: b}", "Nowhere", "null"])
def test_impossible_source_is_an_error_at_its_place(folder: Path, source: str) -> None:
    (folder / "team/base.yaml").write_text(laid_over_base(SHARDS))
    (folder / "job.yaml").write_text(f"extends: team/base.yaml\nchannels: {{train: {{source: {source}}}}}\n")
    found = [] if source == "null" else problems(folder / "job.yaml")
    assert all(each.startswith("job.yaml:2:20: channels.train.source: ") for each in found)
    assert bool(found) is (source != "null")


def test_keys_for_anchors_are_left_out_of_each_layer(folder: Path) -> None:
    anchors = "x-{0}: &{0} {{s3_uri: s3://bucket/{0}/}}\nchannels: {{{0}: {{<<: *{0}, input_mode: Pipe}}}}\n"
    (folder / "team/anchors.yaml").write_text("base_name: b\n" + anchors.format("lower"))
    (folder / "job.yaml").write_text("extends: [team/base.yaml, team/anchors.yaml]\n" + anchors.format("upper"))
    request = launcher.plan(folder / "job.yaml", name="one").request
    assert {each["ChannelName"]: each["InputMode"] for each in request["InputDataConfig"]} == {
        "train": "File",
        "lower": "Pipe",
        "upper": "Pipe",
    }


def test_null_restores_the_default_of_a_choice(folder: Path) -> None:
    (folder / "job.yaml").write_text(
        "extends: team/base.yaml\ncode: {entry_point: a.py, argument_style: json, delivery: channel, git: false}\n"
    )
    nulls = [f"code.{key}=null" for key in ("argument_style", "delivery", "git")]
    spec = launcher.load(folder / "job.yaml", sets=nulls)
    assert spec.code is not None
    assert (spec.code.argument_style, spec.code.delivery, spec.code.git) == ("toolkit", "auto", True)


def test_null_deletes_a_key_that_the_user_named(folder: Path) -> None:
    (folder / "job.yaml").write_text("extends: team/base.yaml\nhyperparameters: {rate: null}\n")
    assert launcher.plan(folder / "job.yaml", name="one").request["HyperParameters"] == {"epochs": "5"}
    sets = ["channels.other=s3://bucket/other/", "channels.train=null", "hyperparameters.epochs=null"]
    request = launcher.plan(launcher.load(folder / "job.yaml", sets=sets), name="one").request
    assert [entry["ChannelName"] for entry in request["InputDataConfig"]] == ["other"]
    assert problems(folder / "job.yaml", "channels.trian=null") != []


def test_problems_name_their_file(folder: Path) -> None:
    (folder / "team/base.yaml").write_text(BASE.replace("ml.m5.xlarge", "ml.m5.xlarg"))
    (folder / "job.yaml").write_text("extends: team/base.yaml\nrole_arn: arn:aws:iam::1:role/x\n")
    found = problems(folder / "job.yaml")
    assert any(line.startswith("team/base.yaml:4:19: resource_config.instance_type:") for line in found)
    assert any(line.startswith("job.yaml:2:1: role_arn:") for line in found)


def test_problems_are_sorted_by_file(folder: Path) -> None:
    (folder / "team/base.yaml").write_text(
        BASE.replace("ml.m5.xlarge", "ml.m5.xlarg").replace("s3://bucket/out/", "no")
    )
    (folder / "job.yaml").write_text("extends: team/base.yaml\nrole_arn: arn:aws:iam::1:role/x\n\n\nregion: moon\n")
    found = problems(folder / "job.yaml", "tags.a=b*")
    files = [line.partition(":")[0] for line in found]
    assert [files.count(name) for name in dict.fromkeys(files)] == [1, 2, 2]
    assert files == sorted(files)


def test_relative_paths_start_at_the_file_that_contains_them(folder: Path) -> None:
    (folder / "team/src").mkdir()
    (folder / "team/src/train.py").touch()
    with (folder / "team/base.yaml").open("a") as file:
        file.write("code: {directory: src, entry_point: train.py}\n")
    (folder / "job.yaml").write_text("extends: [team/base.yaml]\n")
    assert launcher.plan(folder / "job.yaml").code is not None


def test_circular_and_missing_files_are_named(folder: Path) -> None:
    (folder / "job.yaml").write_text("extends: other.yaml\n")
    assert problems(folder / "job.yaml")[0].startswith("job.yaml:1:1: extends: other.yaml cannot be read")
    (folder / "other.yaml").write_text("extends: job.yaml\n")
    assert "extends this file in turn" in problems(folder / "job.yaml")[0]


def test_set_is_typed_and_its_problems_name_the_option(folder: Path) -> None:
    job = folder / "team/base.yaml"
    sets = (
        "resource_config.instance_count=4",
        "channels.train.input_mode=FastFile",
        'tags."a.b"=012',
        "hyperparameters.layers=[1, 2]",
        "metric_definitions=[{name: a, regex: b}]",
        "metric_definitions[0].regex=c=(.*)",
    )
    request = launcher.plan(launcher.load(job, sets=sets), name="one").request
    assert request["ResourceConfig"]["InstanceCount"] == 4
    assert request["InputDataConfig"][0]["InputMode"] == "FastFile"
    assert request["Tags"] == [{"Key": "a.b", "Value": "012"}]
    assert request["HyperParameters"]["layers"] == "[1, 2]"
    assert request["AlgorithmSpecification"]["MetricDefinitions"] == [{"Name": "a", "Regex": "c=(.*)"}]
    (line,) = problems(job, "resource_config.instance_count=two")
    assert line.startswith("--set resource_config.instance_count: is 'two'")
    (line,) = problems(job, "resource_config.instance_cout=2")
    assert "did you mean instance_count?" in line
    assert "is not path=value" in problems(job, "nothing")[0]
    assert "not items of a list" in problems(job, "metric_definitions[3].name=x")[0]


@pytest.mark.parametrize("key", ["a.b", "a=b", "a b", "a[0]", 'a"b', "a\\b", "ä\n", "0", "a=b.c=d", "[0]"])
def test_set_takes_each_key_as_messages_write_it(key: str) -> None:
    path = ("hyperparameters", key, "x")
    assert steps_of(dotted(path)) == path
    spec = launcher.parse_spec({"base_name": "b"}, sets=[f"{dotted(path[:2])}=c=d"])
    assert spec.hyperparameters == {key: "c=d"}


def test_problem_at_a_quoted_key_names_it_once(folder: Path) -> None:
    (line,) = problems(folder / "team/base.yaml", "a b=3")
    assert line.startswith('--set "a b": is not a key of a spec')
    with pytest.raises(SpecError, match=r'^--set "a b": is not a key of a spec'):
        launcher.plan(folder / "team/base.yaml", set={"a b": 3})


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a #b", "a #b"),
        ("note: hi", "note: hi"),
        ("one\ntwo", "one\ntwo"),
        ("# c", "# c"),
        ("@x", "@x"),
        ("*.tar", "*.tar"),
        ("| x", "| x"),
        ("- x", "- x"),
        (" x ", " x "),
        ("it's", "it's"),
        ("''", ""),
        ("'a #b'", "a #b"),
        ('"a\\tb"', "a\tb"),
        ("012", "012"),
        ("[1, a]", '[1, "a"]'),
        ("{a: 1}", '{"a": 1}'),
    ],
)
def test_set_text_is_sent_as_written(folder: Path, text: str, sent: str) -> None:
    spec = launcher.load(folder / "team/base.yaml", sets=[f"environment.X={text}"])
    assert launcher.plan(spec, name="one").request["Environment"] == {"X": sent}


def test_variables_are_replaced_and_shown_by_name(folder: Path) -> None:
    job = folder / "job.yaml"
    job.write_text(
        laid_over_base(
            "resource_config: {instance_type: '${TYPE:-ml.m5.xlarge}', instance_count: '${COUNT}', volume_size_in_gb: 9}\n"
            "environment: {TOKEN: '${TOKEN}', LITERAL: '$${NOT}', EMPTY: '${NOTHING:-}'}\n"
            "hyperparameters: {key: 'x-${TOKEN}', list: ['${TOKEN}', 1]}\n"
        )
    )
    spec = launcher.load(job, environ={"TOKEN": "hush", "COUNT": "2"})
    plan = launcher.plan(spec, name="one")
    assert plan.request["ResourceConfig"] == {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 9}
    assert plan.request["Environment"] == {"TOKEN": "hush", "LITERAL": "${NOT}", "EMPTY": ""}
    assert plan.request["HyperParameters"] == {"key": "x-hush", "list": '["hush", 1]'}
    shown = serialization.as_yaml(plan.masked_request())
    assert "hush" not in shown
    assert "'x-${TOKEN}'" in shown
    (line,) = problems(job, environ={"COUNT": "2"})  # once, for three places
    assert "names the variable TOKEN, which is not set" in line


def test_messages_do_not_show_the_value_of_a_variable(folder: Path) -> None:
    job = folder / "job.yaml"
    job.write_text(laid_over_base("hyperparameters: {key: '${TOKEN}'}\nenvironment: {KEY: '${TOKEN}'}"))
    found = problems(job, environ={"TOKEN": "hush\n" + "x" * 3000})
    assert len(found) == 2
    assert not any("hush" in line for line in found)
    found = problems(job, environ={"TOKEN": "hush\nhush"})
    assert not any("hush" in line for line in found)


EVERYWHERE = """
container_entrypoint: [python3, train.py]
container_arguments: ["--token=${TOKEN}", "--count", "${COUNT}"]
tags: {owner: "${TOKEN}"}
metric_definitions: [{name: loss, regex: "${TOKEN} ([0-9]+)"}]
channels:
  train: "s3://${TOKEN}-data/train"
  more: {source: S3Connector, s3_uri: "s3://${TOKEN}-data/more"}
request: {RetryStrategy: {MaximumRetryAttempts: "${COUNT}"}, ExperimentConfig: {ExperimentName: "${TOKEN}"}}
"""


def test_variables_are_masked_at_every_place_and_sent_as_they_are(folder: Path) -> None:
    (folder / "job.yaml").write_text(laid_over_base(EVERYWHERE.replace("channels:", "channels: !!map")))
    spec = launcher.load(folder / "job.yaml", environ={"TOKEN": "hush-hush", "COUNT": "2"})
    plan = launcher.plan(spec, name="one")
    sent = json.dumps(plan.request)
    assert plan.request["AlgorithmSpecification"]["ContainerArguments"] == ["--token=hush-hush", "--count", "2"]
    assert sent.count("hush-hush") == 6
    shown = plan.masked_request()
    assert "hush" not in json.dumps(shown)
    assert shown["AlgorithmSpecification"]["ContainerArguments"] == ["--token=${TOKEN}", "--count", "${COUNT}"]
    assert {"Key": "owner", "Value": "${TOKEN}"} in shown["Tags"]
    assert shown["RetryStrategy"] == {"MaximumRetryAttempts": "${COUNT}"}
    assert json.dumps(plan.request) == sent


@pytest.mark.parametrize(
    "spec",
    [
        "tags: {owner: '${TOKEN}&'}",
        "tags: {owner: '${TOKEN}'}",
        "role_arn: '${TOKEN}'",
        "training_input_mode: '${TOKEN}'",
        "training_input_mode: ['${TOKEN}']",
        "channels: '${TOKEN}'",
        "channels: {train: {s3_uri: 's3://mine/x', input_mode: '${TOKEN}'}}",
        "channels: {train: {source: '${TOKEN}'}}",
        "image: 'x ${TOKEN}'",
        "resource_config: {instance_count: '${TOKEN}'}",
        "stopping_condition: {max_runtime_in_seconds: '${TOKEN}'}",
        "max_cost: '${TOKEN}'",
        "ignore: ['${TOKEN}']",
        "code: '${TOKEN}'",
        "code: {directory: '${TOKEN}', entry_point: train.py}",
        "code: {entry_point: '${TOKEN}'}",
        "request: {Tags: '${TOKEN}'}",
        "extends: '${TOKEN}.yaml'",
    ],
)
@pytest.mark.parametrize("value", ["Hush&1'x", "Hush&1'x" + 300 * "x"])
def test_messages_show_variables_by_name(folder: Path, spec: str, value: str) -> None:
    """The value is wrong at each of these places, and most messages quote it; a long one only up to the 57th character."""
    (folder / "job.yaml").write_text(f"{laid_over_base('')}\n{spec}\n")
    found = problems(folder / "job.yaml", environ={"TOKEN": value})
    assert found
    assert not any("Hush" in line for line in found)


def test_short_values_are_masked_only_at_their_own_place(folder: Path) -> None:
    job = "stopping_condition: {max_runtime_in_seconds: '${N}'}\nresource_config: {instance_count: 0, instance_type: ml.m5.large}"
    (folder / "job.yaml").write_text(laid_over_base(job))
    found = problems(folder / "job.yaml", environ={"N": "0"})
    assert any("max_runtime_in_seconds: is ${N}, but AWS takes at least 1" in line for line in found)
    assert any("instance_count: " in line and "${N}" not in line for line in found)


def test_variables_are_looked_up_only_in_the_given_environment() -> None:
    with pytest.raises(SpecError, match="HOME"):
        parse_spec(laid_over_base("environment: {A: '${HOME}'}"))
