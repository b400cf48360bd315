"""The command as a user runs it: arguments, exit codes, stdout and stderr."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

import launcher
from launcher import bundled
from launcher.cli import cli
from launcher.commands import COMMANDS
from launcher.reference.problem_codes import all_codes, explanation
from launcher.rules.examples import BASE, laid_over_base
from launcher.unknown_words import MEANT
from launching import launch


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(BASE)
    (tmp_path / "wrong.yaml").write_text(
        laid_over_base("resource_config: {instance_type: ml.m5.xlarg, instance_count: two}")
    )
    (tmp_path / "warned.yaml").write_text(laid_over_base("channels: {train: s3://bucket}"))
    return tmp_path


def test_missing_or_unknown_command_prints_help(folder: Path) -> None:
    done = launch()
    assert "launch job.yaml --dry-run" in done.stdout + done.stderr
    done = launch("lanch")
    assert done.returncode == 2
    assert "neither a command nor a spec" in done.stderr


def test_wrong_spec_ends_with_2_and_quotes_line(folder: Path) -> None:
    done = launch("wrong.yaml", "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error: wrong.yaml:7:19: resource_config.instance_type:")
    assert lines[1] == "    7 | resource_config: {instance_type: ml.m5.xlarg, instance_count: two}"
    assert lines[2].index("^") - lines[1].index("|") == 20
    assert "\x1b" not in done.stderr


def test_problems_with_json_have_line_path_and_code(folder: Path) -> None:
    done = launch("wrong.yaml", "--dry-run", "--json")
    problems = json.loads(done.stdout)["problems"]
    assert [(each["line"], each["path"], each["code"]) for each in problems] == [
        (7, "resource_config.instance_type", "aws-enum"),
        (7, "resource_config.instance_count", "wrong-type"),
    ]


def test_every_error_with_json_is_json(folder: Path) -> None:
    for arguments, code in (
        (["list", "--nope"], 2),
        (["logs"], 2),
        (["job.yaml", "--dry-run", "--local"], 2),
        (["nowhere.yaml", "--dry-run"], 2),
        (["status", ""], 2),
    ):
        done = launch(*arguments, "--json")
        assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (code, code), arguments
        assert json.loads(done.stdout)["error"] in done.stderr
    assert launch("logs", "", "--json").stdout.count("\n") == 1  # an object on each line


def test_spec_is_read_from_stdin(folder: Path) -> None:
    done = launch("-", "--dry-run", "--name", "one", stdin=BASE)
    assert done.returncode == 0
    assert done.stdout.startswith("TrainingJobName: one\n")
    assert launch("--dry-run", "job.yaml", "--name=one").stdout == done.stdout


def test_warnings_go_to_stderr_and_stop_only_when_strict(folder: Path) -> None:
    done = launch("warned.yaml", "--dry-run")
    assert done.returncode == 0
    assert "warning: warned.yaml:7:12: channels.train.s3_uri:" in done.stderr
    assert launch("warned.yaml", "--dry-run", "--strict").returncode == 2
    done = launch("warned.yaml", "--dry-run", "--strict", "--ignore", "channel-whole-bucket")
    assert (done.returncode, done.stderr) == (0, "")
    with (folder / "warned.yaml").open("a") as file:
        file.write("ignore: [channel-whole-bucket]\n")
    assert launch("warned.yaml", "--dry-run", "--strict").returncode == 0


def test_code_that_cannot_be_ignored_is_an_error(folder: Path) -> None:
    done = launch("wrong.yaml", "--dry-run", "--ignore", "wrong-type")
    assert done.returncode == 2
    newer = laid_over_base("resource_config: {instance_type: ml.new1.large, instance_count: 1, volume_size_in_gb: 1}")
    (folder / "newer.yaml").write_text(newer + "ignore: [aws-enum]\n")
    assert launch("newer.yaml", "--dry-run").returncode == 0
    done = launch("job.yaml", "--dry-run", "--ignore", "job-name", "--ignore", "chanel-whole-bucket")
    assert "'job-name' is an error, and errors cannot be ignored" in done.stderr
    assert "error: --ignore: 'chanel-whole-bucket' is not a code; did you mean channel-whole-bucket?" in done.stderr
    done = launch("job.yaml", "--dry-run", "--ignore", "foo")
    assert "error: --ignore: 'foo' is not a code; write the code in brackets at the end of the warning" in done.stderr


@pytest.mark.parametrize(
    ("command", "args", "message"),
    [
        ("local", ["--dry-run", "--local"], "--dry-run and --local exclude each other; pass one of them"),
        ("submit", ["--dry-run", "--no-check"], "--dry-run and --no-check exclude each other; pass one of them"),
        ("submit", ["--check", "--wait"], "--check and --wait exclude each other; pass one of them"),
        (
            "submit",
            ["--region", "eu-west-1"],
            "No such option '--region'. A key of the spec is set by --set region=VALUE",
        ),
        (
            "local",
            ["--local", "--epochs=5"],  # click means --yes
            "No such option '--epochs'. A key of the spec is set by --set hyperparameters.epochs=VALUE",
        ),
        (
            "submit",
            ["--dry-run", "--instance-type", "ml.g5.xlarge"],
            "No such option '--instance-type'. A key of the spec is set by --set resource_config.instance_type=VALUE",
        ),
        (
            "submit",
            ["--resource_config.instance_count=2"],
            "No such option '--resource_config.instance_count'."
            " A key of the spec is set by --set resource_config.instance_count=VALUE",
        ),
        (
            "submit",
            ["--train", "s3://data/train"],
            "No such option '--train'. A key of the spec is set by --set channels.NAME.s3_uri=VALUE",
        ),
        ("submit", ["--job-name", "x"], "No such option '--job-name'; did you mean --name?"),
        ("submit", ["--no-follow", "--dry-run"], "--dry-run and --no-follow exclude each other; pass one of them"),
        ("submit", ["--no-check", "--full"], "--full and --no-check exclude each other; pass one of them"),
        (
            "submit",
            ["--channel", "rows=d", "--dry-run"],
            "--channel works only with --local; add --local or leave it out",
        ),
        ("submit", ["--sample", "3"], "--sample works only with --local; add --local or leave it out"),
        ("submit", ["--image", "x"], "--image works only with --local; add --local or leave it out"),
        ("submit", ["--no-namespaces"], "--no-namespaces works only with --local; add --local or leave it out"),
        ("submit", ["--mount", "fs-1=x"], "--mount works only with --local; add --local or leave it out"),
        (
            "local",
            ["--local", "Dcoker"],
            "Invalid value for '--runner' / '--local': 'Dcoker' is not one of 'process', 'docker', 'podman'.",
        ),
        ("local", ["--local", "--sample", "0"], "Invalid value for '--sample': 0 is not in the range x>=1."),
    ],
)
def test_contradicting_options_are_one_error(folder: Path, command: str, args: list[str], message: str) -> None:
    done = launch("job.yaml", *args)
    assert done.returncode == 2
    assert done.stderr == f"error: {message}\n`launch {command} --help` lists the arguments and options\n"


def test_misspelt_channel_is_named_beside_its_missing_data(folder: Path) -> None:
    (folder / "job.yaml").write_text(BASE + "channels: {train: {s3_uri: s3://data/train/}}\n")
    done = launch("job.yaml", "--dry-run", "--set", "channels.trian.input_mode=Pipe")
    assert "write s3_uri: s3://bucket/folder/, or did you mean the channel train? [aws-required]" in done.stderr


@pytest.mark.parametrize("command", [["measure", "s3://mine/x/"], ["reshard", "s3://mine/x/", "s3://mine/y/"]])
def test_options_of_local_runs_and_submissions_exclude_each_other(folder: Path, command: list[str]) -> None:
    for args, message in (
        (["--sample", "3"], "--sample works only with --local; add --local or leave it out"),
        (["--local", "--no-check"], "--local and --no-check exclude each other; pass one of them"),
        (["--dry-run", "--local", "docker"], "--local and --dry-run exclude each other; pass one of them"),
    ):
        done = launch(*command, *args)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_local_run_without_code_states_what_to_write(folder: Path) -> None:
    done = launch("job.yaml", "--local")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "error: --local without docker needs code or container_entrypoint: without them only the image knows what to run;"
        " write code: {directory: src, entry_point: train.py}, or run the image: --local docker",
    )


@pytest.mark.parametrize(
    ("args", "runner"),
    [
        (["--local", "job.yaml"], "process"),
        (["job.yaml", "--local"], "process"),
        (["job.yaml", "--local", "--yes"], "process"),
        (["job.yaml", "--local", "docker"], "docker"),
        (["--local", "docker", "job.yaml"], "docker"),
        (["--local=docker", "job.yaml"], "docker"),
        (["--local", "docker.yaml"], "process"),
        (["submit", "job.yaml", "--local"], "process"),
        (["local", "job.yaml"], "process"),
        (["local", "job.yaml", "--runner", "podman"], "podman"),
        (["job.yaml"], None),
        (["--yes", "job.yaml"], None),
    ],
)
def test_spec_without_a_command_is_submitted_or_with_local_run_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], runner: str | None
) -> None:
    (folder / "docker.yaml").write_text(BASE)
    seen: list[str | None] = []

    def run_local(plan: launcher.Plan, options: launcher.LocalOptions) -> launcher.Outcome:
        seen.append(options.runner)
        return launcher.Outcome({"TrainingJobName": "one"}, local_exit_code=0)

    def carry_out(*_: object) -> int:
        seen.append(None)
        return 0

    monkeypatch.setattr(launcher, "run_local", run_local)
    monkeypatch.setattr("launcher.commands.submit.carry_out", carry_out)
    done = launch(*args)
    assert (done.returncode, seen) == (0, [runner]), done.stderr


def test_ignoring_a_value_is_not_suggested_beside_a_near_one(folder: Path) -> None:
    for mode, suggested in (("Fastfile", False), ("Torrent", True)):
        channels = f"channels: {{train: {{s3_uri: s3://bucket/train/, input_mode: {mode}}}}}"
        (folder / "mode.yaml").write_text(laid_over_base(channels))
        done = launch("mode.yaml", "--dry-run")
        assert ("did you mean FastFile?" in done.stderr, "--ignore aws-enum" in done.stderr) == (
            not suggested,
            suggested,
        )


@pytest.mark.parametrize("command", [["list"], ["logs", "x"]])
def test_wrong_age_is_reported_with_its_option(folder: Path, command: list[str]) -> None:
    for age, message in (("yesterday", "expected a time such as 90s"), ("999999w", "'999999w' is")):
        done = launch(*command, "--since", age)
        assert (done.returncode, f"error: Invalid value for '--since': {message}" in done.stderr) == (2, True), (
            done.stderr
        )


def test_errors_and_warnings_begin_with_their_severity(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(laid_over_base("base_nam: x\nenvironment: {AWS_SECRET_ACCESS_KEY: x}"))
    lines = launch("wrong.yaml", "--dry-run").stderr.splitlines()
    assert [line.partition(" ")[0] for line in lines if "wrong.yaml" in line] == ["error:", "warning:"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["none/x.json", "--dry-run"],
            "error: none/x.json: cannot be read: No such file or directory; correct the path or its permissions\n",
        ),
        (["job.yml", "--dry-run"], "job.yml: cannot be read: No such file or directory; did you mean job.yaml?"),
        (["wrnog.json"], "wrnog.json: cannot be read: No such file or directory; did you mean wrong.yaml?"),
        (["import", "wrnog.yaml"], "wrnog.yaml: cannot be read: No such file or directory; did you mean wrong.yaml?"),
        (
            ["lower.yaml"],
            "wraned.yaml cannot be read: No such file or directory; write a path relative to this file; did you mean warned.yaml?",
        ),
        (["job", "--dry-run"], "or - for stdin); did you mean job.yaml?"),
        (["job.yaml", "--local", "--channel", "train=jobs.yaml"], "there is no jobs.yaml; did you mean job.yaml?"),
        (["job.yaml", "--local", "--data", "nowhere"], "--data nowhere: there is no directory nowhere; create it, or"),
    ],
)
def test_missing_file_is_reported_with_a_remedy(folder: Path, args: list[str], message: str) -> None:
    (folder / "lower.yaml").write_text("extends: wraned.yaml")
    (folder / "job.yaml").write_text(
        laid_over_base("channels: {train: s3://bucket/train/}\ncode: {entry_point: entrypoints/train.py}")
    )
    done = launch(*args)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("args", "remedy"),
    [
        (["run", "job.yaml"], "write launch job.yaml\n"),
        (["check", "mine.yml", "--json"], "write launch mine.yml --check"),
        (["test", "job.yaml"], "write launch job.yaml --local --channel NAME=PATH\n"),
        (["plan", "job.yaml", "--name", "x"], "write launch job.yaml --dry-run\n"),
        (["follow", "digits-1"], "write launch logs NAME --follow\n"),
        (["statsu", "job.yaml"], "did you mean status?\n"),
        (["submitt", "job.yaml"], "did you mean submit?\n"),
        (["lsit"], "did you mean list?\n"),
        (["chek", "mine.yml"], "did you mean launch mine.yml --check?\n"),
        (["xyz", "job.yaml"], "or - for stdin)\n"),
        (["src/train.py"], "by code: {directory: src, entry_point: train.py}, and write launch job.yaml\n"),
        (["train.py", "--local"], "by code: {directory: ., entry_point: train.py}, and write launch job.yaml\n"),
        (["train.py", "job.yaml"], "by code: {directory: ., entry_point: train.py}, and write launch job.yaml\n"),
    ],
)
def test_word_that_is_no_command_is_answered_by_what_to_write(args: list[str], remedy: str) -> None:
    done = launch(*args)
    assert done.returncode == 2
    errors = json.loads(done.stdout)["error"] + "\n" if "--json" in args else done.stderr
    assert f"{args[0]!r} is neither a command nor a spec" in errors and remedy in errors


@pytest.mark.parametrize("command", [[], ["local"], ["cost"]])
def test_folder_in_place_of_a_spec_is_answered_by_its_specs_or_init(folder: Path, command: list[str]) -> None:
    (folder / "pics").mkdir()
    (folder / "pics/classes.yaml").write_text("names: [cat, dog]\n")
    done = launch(*command, "pics")
    assert (done.returncode, "; `launch init pics` writes one for the" in done.stderr) == (2, True), done.stderr
    (folder / "job.yaml").rename(folder / "pics/job.yaml")
    assert "; write one of its specs: pics/job.yaml\n" in launch(*command, "pics").stderr


def test_no_word_for_a_command_is_a_command() -> None:
    names = {name.split()[0] for name in COMMANDS}
    assert not {*MEANT} & names
    options = {option for each in cli.params for option in each.opts}
    assert {text.split()[1] for text in MEANT.values()} <= names | options | {"{0}"}


@pytest.mark.parametrize("args", [["--dry-run"], ["--local"], ["--check"], ["--set", "a=b", "job"], ["--local", "job"]])
def test_option_of_a_spec_without_one_states_what_a_spec_is(folder: Path, args: list[str]) -> None:
    done = launch(*args)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {args[0]} needs a spec (*.yaml, *.yml, *.json, or - for stdin): write launch job.yaml"
        f" {args[0]}; `launch --example s3-file` prints a spec to start from\n`launch --help` lists the arguments and options\n"
    )
    assert "No such option" in launch("--dry-rnu").stderr


@pytest.mark.parametrize(
    ("args", "remedy"),
    [
        (
            ["submit", "--dry-run"],
            "Missing argument 'SPEC'. Write a spec's path, such as job.yaml; `launch --example s3-file`",
        ),
        (["diff"], "Missing argument 'SPEC'. Write a spec's path"),
        (["init", "s3://mine/images/"], "this machine; pass the prefix of the data by --data"),
        (["status"], "Missing argument 'NAME...'. Write a training job's name; `launch list` shows the names."),
        (
            ["list", "--status", "ended"],
            "'ended' is not one of 'InProgress', 'Completed', 'Failed', 'Stopping', 'Stopped', 'Deleting'.",
        ),
    ],
)
def test_missing_or_wrong_argument_states_what_to_write(folder: Path, args: list[str], remedy: str) -> None:
    done = launch(*args)
    assert (done.returncode, remedy in done.stderr) == (2, True), done.stderr


def test_help_writes_statuses_as_aws_does(folder: Path) -> None:
    assert "[InProgress|Completed|Failed|Stopping|Stopped|Deleting]" in launch("list", "--help").stdout


@pytest.mark.parametrize("code", all_codes())
def test_every_code_can_be_explained(code: str) -> None:
    text = explanation(code)
    assert text is not None
    assert text.startswith(f"{code} (")


def test_explain_schema_and_example_print_and_suggest(folder: Path) -> None:
    assert "wrong:" in launch("--explain", "channel-gzip-needs-pipe").stdout
    assert "make hyperparameters match the script's arguments" in launch("--explain", "wrong-arguments").stdout
    assert "did you mean wrong-arguments?" in launch("--explain", "wrong-argument").stderr
    done = launch("--explain", "channel-gzip-need-pipe")
    assert done.returncode == 2
    assert "did you mean channel-gzip-needs-pipe?; --explain alone lists them" in done.stderr
    assert json.loads(launch("--schema").stdout)["title"]
    assert launch("--example", "s3-file").stdout == f"{bundled.SCHEMA_LINE}\n{bundled.spec_path('s3-file').read_text()}"
    assert "did you mean s3-file?" in launch("--example", "s3-fil").stderr
    assert launch("--example").stdout.split() == list(bundled.spec_names())
    assert launch("--explain").stdout.split() == list(all_codes())


def test_help_uses_a_wider_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []
    for columns in ("80", "110", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        widths.append(max(map(len, launch("advise", "--help").stdout.splitlines())))
    assert 70 < widths[0] <= 80 < 100 < widths[1] <= 110 < widths[2] <= 120


def test_secrets_are_shown_only_when_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    (folder / "secret.yaml").write_text(laid_over_base("environment: {TOKEN: '${TOKEN}'}"))
    assert "hush" not in launch("secret.yaml", "--dry-run").stdout
    assert "hush" not in launch("secret.yaml", "--dry-run", "--json").stdout
    done = launch("secret.yaml", "--dry-run", "--show-secrets")
    assert "hush" in done.stdout
    assert done.stderr == ""


def test_masked_dry_run_says_which_settings_and_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hush")
    settings = "environment: {TOKEN: '${TOKEN}', LITERAL: '$${NOT}', MIXED: '$${A} ${TOKEN}'}\n"
    (folder / "secret.yaml").write_text(laid_over_base(settings + "hyperparameters: {key: '${TOKEN}', plain: x}"))
    done = launch("secret.yaml", "--dry-run", "--json")
    assert json.loads(done.stdout)["Environment"] == {
        "TOKEN": "${TOKEN}",
        "LITERAL": "${NOT}",
        "MIXED": "$${A} ${TOKEN}",
    }
    assert done.stderr == (
        "warning: HyperParameters.key, Environment.TOKEN, Environment.MIXED: masked, so this is not the request to send;"
        " --show-secrets prints that\n"
    )


@pytest.mark.parametrize(
    "args",
    [
        ["init", "LONG", "--yes"],
        ["init", "-o", "LONG/x.yaml", "--yes"],
        ["local", "job.yaml", "--data", "LONG"],
        ["local", "job.yaml", "--channel", "train=LONG"],
        ["local", "job.yaml", "--mount", "fs-1=LONG"],
        ["advise", "job.yaml", "--data", "LONG"],
        ["advise", "job.yaml", "--channel", "train=LONG"],
        ["lst", "make", "LONG", "-o", "out.lst"],
        ["reshard", "LONG", "out"],
    ],
)
def test_folder_that_cannot_be_looked_at_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    """Path.is_dir and exists raise no such error since Python 3.14."""
    monkeypatch.setattr(Path, "is_dir", os.path.isdir)
    monkeypatch.setattr(Path, "exists", os.path.exists)
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    code = "code: {directory: ., entry_point: train.py}\n"
    Path("job.yaml").write_text(laid_over_base(f"{code}channels: {{train: s3://bucket/train/}}"))
    done = launch(*(each.replace("LONG", "a" * 300) for each in args))
    assert done.returncode == 3 and "aaa: File name too long; use another path" in done.stderr


@pytest.mark.parametrize("where", [("job/x",), ()])
def test_too_many_open_files_are_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch, where: tuple[str]) -> None:
    def stat(path: Path, **_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", *where)

    monkeypatch.setattr(Path, "stat", stat)
    done = launch("init", "x", "--yes")
    assert done.stderr == "error: Too many open files; raise the limit, as by `ulimit -n 65536`\n"


def test_file_in_place_of_a_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".launch").touch()
    done = launch("list", "--local")
    assert done.stderr == "error: .launch: Not a directory; use another path\n"


def test_working_folder_that_is_gone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = launch("init", "--yes")
    assert done.returncode == 3 and "the working folder was removed; change to one that exists" in done.stderr


def test_missing_file_of_ours_is_a_bug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(_: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "launcher/data/absent.json")

    monkeypatch.setattr("launcher.survey.folder.look_at_folder", missing)
    done = launch("init", str(tmp_path), "--yes", "--json")
    assert done.returncode == 1 and "absent.json" in done.stderr
    assert "error: this is a bug in launch" in done.stderr and json.loads(done.stdout)["exit_code"] == 1
