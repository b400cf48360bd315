"""Local runs in containers: real ones of an image made of this machine's Python, in engines of the tests' own."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from container_engines import ENGINES, IMAGE, CannotStartError, Engine, running
from launcher.rules.examples import laid_over_base
from local_jobs import EFS, FSX, assert_nothing_is_left, command, launch, result, write_job
from patience import PATIENCE, wait_for
from sagemaker_channels.sample import DATA
from sagemaker_channels.samples.digest import Tally
from terminals import on_terminal

# Prints a line, then waits to be stopped.
WAITING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *a: (open("/opt/ml/model/saved", "w").close(), sys.exit(0)))
print("ready", flush=True)
time.sleep(600)
"""


# What the engines do differently: the network's address, attaching, replacing and removing containers. The rest runs on one.
EACH_ENGINE = pytest.mark.parametrize("own_engine", list(ENGINES), indirect=True)


@pytest.fixture(scope="module", params=["docker"])
def own_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine, with the image."""
    try:
        with running(request.param) as found, pytest.MonkeyPatch.context() as patch:
            for name, value in found.environ.items():
                patch.setenv(name, value)
            yield found
    except CannotStartError as error:
        pytest.skip(f"no {request.param}: {error}")


@pytest.fixture
def engine(own_engine: Engine, here: Path) -> Iterator[Engine]:
    """The engine; a test must leave no container, network, volume, mount or process."""
    yield own_engine
    assert wait_for(lambda: own_engine.left() == "")
    assert_nothing_is_left(here)


def in_engine(engine: Engine, image: str = IMAGE) -> tuple[str, ...]:
    return ("--local", engine.name, "--image", image)


def started(here: Path, engine: Engine) -> subprocess.Popen[str]:
    """Start a run and return it when its script is ready."""
    process = subprocess.Popen(
        command(*in_engine(engine)), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "ready" in line:
            return process
    raise AssertionError("".join(lines))


@EACH_ENGINE
def test_hosts_in_containers_read_all_modes_and_hide_their_variables(here: Path, engine: Engine, fuse: None) -> None:
    script = """
import json, os, socket, time, urllib.error, urllib.request
host, data = os.environ["SM_CURRENT_HOST"], "/opt/ml/input/data/"
for name in ("file", "fast", "efs"):
    folder = os.environ[f"SM_CHANNEL_{name.upper()}"]
    print(name, [open(f"{folder}/{file}").read() for file in sorted(os.listdir(folder)) if file.endswith(".txt")])
for epoch in (0, 1):
    print("pipe", epoch, open(f"{data}pipe_{epoch}").read().split("\\n"))
print("names", len({socket.gethostbyname(name) for name in json.loads(os.environ["SM_HOSTS"])}), socket.gethostname())
try:
    urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + "/bucket/train/2.txt")
except urllib.error.HTTPError as error:
    print("without keys", error.code)
try:
    open("/opt/ml/input/config/new", "w")
except OSError as error:
    print("config", error.strerror)
print("environ", os.environ["SECRET"], "pid", open("/proc/1/cmdline").read().split("\\0")[:2])
try:
    open(data + "fast/new", "w")
except OSError as error:
    print("fast", error.strerror)
for folder in (data + "file", "/opt/ml/model"):
    open(f"{folder}/{host}", "w").write(host)
for folder in ("input/config", "input/data", "model", "output"):
    try:
        os.rename(f"/opt/ml/{folder}", f"/opt/ml/{folder}-moved")
    except OSError as error:
        print("moved", folder, error.strerror)
open(data + f"efs/{host}", "w").close()
while not os.path.exists(data + "efs/go"):
    time.sleep(0.02)
"""
    efs = f"{{file_system_id: {EFS}, directory_path: /lists, source: EFS, file_system_access_mode: rw}}"
    vpc = "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
    resources = "resource_config: {instance_type: ml.m5.large, instance_count: 2, volume_size_in_gb: 9}\n"
    modes = (
        "fast: {s3_uri: s3://bucket/train/, input_mode: FastFile}, pipe: {s3_uri: s3://bucket/train/, input_mode: Pipe"
    )
    channels = (
        f"channels: {{file: s3://bucket/train/, {modes}, s3_data_distribution_type: ShardedByS3Key}}, efs: {efs}}}\n"
    )
    write_job(here, script, resources + vpc + channels + 'environment: {SECRET: "it\'s $HOME\\nhidden"}\n')
    folder = here / f"data/efs/{EFS}/lists"
    with subprocess.Popen(
        command(*in_engine(engine)), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        written = [folder / host for host in ("algo-1", "algo-2")]
        wait_for(lambda: run.poll() is not None or all(file.exists() for file in written))
        names = engine.ask("ps", "--quiet").split()
        shown = engine.ask("inspect", *names) if names else ""
        (folder / "go").touch()
        output, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, output
    lines = [f"train {index}\n" for index in range(6)]
    for host in ("algo-1", "algo-2"):
        assert f"{host} | file {lines}" in output
        assert f"{host} | fast {lines}" in output
        assert f"{host} | efs {[line.replace('train', 'lists') for line in lines]}" in output
        assert f"{host} | names 2 {host}" in output
        assert f"{host} | without keys 403" in output
        assert f"{host} | config Read-only file system" in output
        assert f"{host} | environ it's $HOME" in output
        assert f"{host} | fast Read-only file system" in output
        # A link in place of such a folder would lead outside to another file of this machine than in the container.
        assert output.count(f"{host} | moved ") == output.count("Device or resource busy") // 2 == 4
    assert "hidden pid ['python3', '/opt/ml/input/data/launcher_code/boot.py']" in output
    pipes = [
        json.loads(line.partition(" pipe 0 ")[2].replace("'", '"')) for line in output.split("\n") if " pipe 0 " in line
    ]
    assert sorted(line for pipe in pipes for line in pipe if line) == [line.strip() for line in lines]
    waiting = engine.name == "podman"  # a container that keeps the network's address between attempts
    assert len(names) == 2 + waiting
    assert "hidden" not in shown
    assert "AWS_" not in shown
    with tarfile.open(here / ".launch/job/s3/bucket/out/job/output/model.tar.gz") as tar:
        assert sorted(tar.getnames()) == ["algo-1", "algo-2"]
    assert result(here)["Fidelity"]["image"]["Here"] == IMAGE
    assert sorted(path.name for path in (here / "data/s3/bucket/train").iterdir()) == [
        f"{each}.txt" for each in range(6)
    ]


def test_each_mode_yields_the_same_samples_in_each_runner_on_one_host_and_two(
    here: Path, engine: Engine, fuse: None
) -> None:
    script = """
import dataclasses, json
from sagemaker_channels import open_channel
from sagemaker_channels.samples.digest import Tally
for name in ("file", "fast", "pipe", "efs", "fsx", "connector"):
    tally = Tally()
    with open_channel(name) as samples:
        for sample in samples:
            tally.add(sample)
    print("tally", name, json.dumps(dataclasses.astuple(tally)))
"""
    expected = Tally()
    for number in range(6):
        lines = [f"{number} {line} {'=' * (line % 97)}" for line in range(1000 * number)]
        for folder in ("s3/bucket/train", f"efs/{EFS}/lists", f"fsx/{FSX}/abcdefgh/lists"):
            (here / "data" / folder / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
        for line in lines:
            expected.add({DATA: line.encode()})
    kind, efs = "content_type: text/plain", f"source: EFS, file_system_id: {EFS}, directory_path: /lists"
    fsx = f"source: FSxLustre, file_system_id: {FSX}, directory_path: /abcdefgh/lists"
    modes = {"file": "File", "fast": "FastFile", "pipe": "Pipe"}
    sources = {name: f"s3_uri: s3://bucket/train/, input_mode: {mode}" for name, mode in modes.items()}
    sources["pipe"] += ", s3_data_distribution_type: ShardedByS3Key"
    sources |= {"efs": efs, "fsx": fsx, "connector": "s3_uri: s3://bucket/train/, source: S3Connector"}
    channels = ", ".join(f"{name}: {{{source}, {kind}}}" for name, source in sources.items())
    # The image has Python only, without the connector's client.
    packages = "fs-0123456789abcdef2"
    channels += f", packages: {{source: EFS, file_system_id: {packages}, directory_path: /}}"
    mount = ("--mount", f"{packages}={sysconfig.get_path('platlib')}")
    environment = "environment: {PYTHONPATH: /opt/ml/input/data/packages}\n"
    vpc = "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
    write_job(here, script, f"{vpc}{environment}channels: {{{channels}}}\n")
    for runner in ((), in_engine(engine)):
        for count in (1, 2):
            name = ("--instance-count", str(count), "--name", f"job-{len(runner)}-{count}")
            output = launch(here, *runner, *mount, *name)
            read = dict.fromkeys(sources, Tally())
            for name, values in re.findall(r"algo-\d \| tally (\S+) (.*)", output):
                read[name] += Tally(*json.loads(values))
            assert read == dict.fromkeys(sources, expected), (runner, count)


def test_users_image_keeps_its_code_and_gets_train_its_user_and_no_network(
    here: Path, engine: Engine, fuse: None
) -> None:
    program = """
import os, socket, sys
config = open("/opt/ml/input/config/hyperparameters.json").read()
print("program", sys.argv[1:], os.getuid(), config, sorted(name for name in os.environ if name.startswith("AWS")))
print("channels", [sorted(os.listdir(f"/opt/ml/input/data/{name}")) for name in ("fast", "train")])
print("shared memory", os.statvfs("/dev/shm").f_blocks > 20_000, os.listdir("/sys/class/net"), socket.gethostbyname("algo-1"))
try:
    socket.create_connection(("192.0.2.1", 80))
except OSError as error:
    print("outside", error.strerror)
open("/opt/ml/input/data/train/new", "w").close()
open(os.environ["SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"] + "/kept", "a").write(" and new")
open("/opt/ml/output/data/written", "w").close()
open("/opt/ml/output/failure", "w").write("a reason of its own")
sys.exit(3)
"""
    changes = ('ENTRYPOINT ["python3", "/opt/ml/code/program.py"]', "VOLUME /opt/ml/output/data", "USER 1234")
    engine.make_image("users:1", *changes, files={"/opt/ml/code/program.py": program})
    channels = "channels: {fast: {s3_uri: s3://bucket/train/, input_mode: FastFile}, train: s3://bucket/train/}"
    size = "instance_type: ml.m5.large, instance_count: 1, volume_size_in_gb: 9"
    resources = f"resource_config: {{{size}, keep_alive_period_in_seconds: 60}}"
    overlay = f"image: users:1\nenable_network_isolation: true\nhyperparameters: {{epochs: 1}}\n{resources}\n{channels}"
    kept = here / ".launch/.warm-pool/algo-1/kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("old")
    (here / "job.yaml").write_text(laid_over_base(overlay))
    umask = os.umask(0o077)
    try:
        output = launch(here, "--local", engine.name, code=4)
    finally:
        os.umask(umask)
    assert (here / ".launch/job").stat().st_mode & 0o777 == 0o700
    assert """program ['train'] 1234 {"epochs": "1"} ['AWS_REGION']""" in output
    assert f"channels {[[f'{index}.txt' for index in range(6)]] * 2}" in output
    assert "outside Network is unreachable" in output
    assert "shared memory True" in output
    assert result(here)["FailureReason"] == "a reason of its own"
    with tarfile.open(result(here)["Artifacts"]["output"]) as tar:
        assert tar.getnames() == ["written"]
    assert kept.read_text() == "old and new"
    facts = {what: (fact["Here"], fact["Same"]) for what, fact in result(here)["Fidelity"].items()}
    assert facts["image"] == ("users:1", True)
    assert facts["Python"] == (platform.python_version(), True)
    assert facts["torch"] == ("not found", True)
    assert facts["network"] == ("none", True)
    assert facts["channel train"] == ("a copy", True)


def test_container_is_entered_and_ctrl_c_lets_it_save(here: Path, engine: Engine) -> None:
    write_job(here, WAITING)
    with started(here, engine) as run:
        words = [*command()[:3], "exec", "job", "--local", "--", "echo $SM_CURRENT_HOST $HOSTNAME; exit 7"]
        done = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert (done.returncode, done.stdout) == (7, "algo-1 algo-1\n"), done.stderr
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, output
    assert (here / ".launch/job/algo-1/ml/model/saved").exists()


@EACH_ENGINE
def test_interrupted_containers_are_replaced_by_new_ones(here: Path, engine: Engine, fuse: None) -> None:
    """The program is PID 1, which gets SIGTERM as soon as it handles it."""
    program = """
import os, pathlib, signal, socket, sys
folder = pathlib.Path("/checkpoints/of/mine")
own = [pathlib.Path(place) for place in ("/tmp/new", "/opt/ml/model/new", "/opt/ml/input/data/train/new")]
lives = sorted(path.name for path in folder.iterdir())
print("lives", lives, [path.exists() for path in own], os.getuid(), flush=True)
for path in (*own, folder / socket.gethostname()):
    path.touch()
def stop(*args):
    (folder / "stopped").write_text("in time")
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
while not lives:
    signal.pause()
"""
    engine.make_image("interrupted:1", f"ENTRYPOINT {json.dumps(['python3', '-c', program])}", "USER 1234")
    channels = "channels: {train: s3://bucket/train/, fast: {s3_uri: s3://bucket/train/, input_mode: FastFile}}\n"
    (here / "job.yaml").write_text(
        laid_over_base(
            f"checkpoint_config: {{s3_uri: s3://bucket/checkpoints/, local_path: /checkpoints/of/mine}}\n{channels}"
        )
    )
    options = ("--interrupt-after", "0s", "--instance-count", "2")
    output = launch(here, *in_engine(engine, "interrupted:1"), *options)
    none = [False] * 3
    for host in ("algo-1", "algo-2"):
        assert f"{host} | lives [] {none} 1234" in output
        assert f"{host} | lives ['algo-1', 'algo-2', 'stopped'] {none} 1234" in output
    assert result(here)["Interruptions"] == 1
    assert result(here)["Fidelity"]["channel fast"]["Here"] == "a FUSE mount"


@EACH_ENGINE
def test_killed_launcher_leaves_no_container(here: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(here))  # for the folders that it leaves
    write_job(here, WAITING)
    with started(here, engine) as run:
        run.kill()


def test_container_that_another_program_removes_fails_the_run(here: Path, engine: Engine) -> None:
    write_job(here, WAITING)
    with started(here, engine) as run:
        engine.ask("rm", "--force", *engine.ask("ps", "--quiet").split())
        output, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 4, output
    assert "could not be removed" not in output


def test_program_that_no_engine_runs_is_not_run_by_the_shell(here: Path, engine: Engine) -> None:
    engine.make_image("broken:1", files={"/usr/bin/train": "echo ran\n"})
    (here / "job.yaml").write_text(laid_over_base("channels: null\n"))
    output = launch(here, *in_engine(engine, "broken:1"), code=4)
    assert "/usr/bin/train: exec format error: it begins with no line such as #!/bin/sh" in output
    assert result(here)["LikelyCause"]["Code"] == "container-start"
    assert "algo-1 | ran" not in output


@EACH_ENGINE
def test_image_whose_shell_ends_at_its_start_is_refused(here: Path, engine: Engine) -> None:
    engine.make_image("shell-less:1", files={"/usr/bin/sh": "#!/nowhere\n"})
    write_job(here, "")
    output = launch(here, *in_engine(engine, "shell-less:1"), code=3)
    assert "error: shell-less:1: /bin/sh, through which a local run passes the variables, ended with code " in output
    assert f"`{engine.name} run -it --entrypoint /bin/sh shell-less:1`" in output
    assert not (here / ".launch/job").exists()


def test_what_a_stopped_engine_kept_is_named_with_the_command_that_removes_it(here: Path, engine: Engine) -> None:
    write_job(here, WAITING)
    with started(here, engine) as run:
        engine.stop()
        try:
            output, _ = run.communicate(timeout=PATIENCE)
        finally:
            engine.start()
    assert run.returncode in (0, 4), output  # 0: the job has saved and ended by the engine's SIGTERM
    [remove] = re.findall("could not be removed; `(.*)` removes them", output)
    assert engine.ask("ps", "--all", "--quiet") != ""
    subprocess.run(remove, shell=True, check=True, input=b"y", env={**os.environ, **engine.environ})


def test_image_that_cannot_be_pulled_is_an_error_with_the_login(here: Path, engine: Engine) -> None:
    write_job(here, "", "channels: null")
    output = launch(here, *in_engine(engine, "127.0.0.1:1/image:1"), code=3)
    assert f"or log in: `{engine.name} login 127.0.0.1:1`" in output
    assert "needs an image, and none is named" in launch(here, *in_engine(engine, ""), code=2)
    assert not (here / ".launch").exists()


def test_shell_of_a_hostile_image_gets_the_variables_and_overwrites_nothing(here: Path, engine: Engine) -> None:
    """The image's /bin/sh puts a link in place of the FIFO with the variables, before and after it is made."""
    mine = here / "authorized_keys"
    mine.write_text("mine")
    sh = f"""#!/usr/bin/python3
import os, sys
folder = "/opt/ml/input/config"
def trap():
    try:
        os.symlink({str(mine)!r}, folder + "/link")
        os.rename(folder + "/link", folder + "/.variables")
        return "placed"
    except OSError as error:
        return error.strerror
placed = trap()
if sys.argv[1] == "-s":
    sys.stdin.read()
elif "variables" in sys.argv[2]:
    print(placed, "export SECRET=hidden" in open(folder + "/.variables").read(), trap())
"""
    engine.make_image("hostile:1", files={"/usr/bin/sh": sh})
    write_job(here, "", "channels: null\nenvironment: {SECRET: hidden}\n")
    words = command(*in_engine(engine, "hostile:1"))
    shell = [*words[:3], "exec", *words[3:]]
    done = subprocess.run(shell, cwd=here, input="", capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, mine.read_text()) == (0, "mine"), done.stderr
    assert done.stdout == "Read-only file system True Read-only file system\n"


def test_shell_in_the_image_has_the_jobs_variables_and_channels(here: Path, engine: Engine) -> None:
    engine.make_image("shell:1", "USER 1234")
    channels = "channels: {train: {s3_uri: s3://bucket/train/, s3_data_distribution_type: ShardedByS3Key}}\n"
    overlay = f'{channels}environment: {{OPTIND: x, SECRET: "it\'s $HOME\\nhidden"}}\n'
    write_job(here, "", overlay)  # boot.py makes folders beside SageMaker's, also as a user of the image
    words = command(*in_engine(engine, "shell:1"))
    shell = [*words[:3], "exec", *words[3:]]
    typed = (
        'echo "$SECRET"; cat /opt/ml/input/data/train/[23].txt; read -r name </etc/hostname; echo $name\nls; exit 7\n'
    )
    second = [*shell, "--instance-count", "2", "--host", "algo-2"]
    done = subprocess.run(second, cwd=here, input=typed, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("it's $HOME\nhidden\ntrain 3\nalgo-2\n")
    with on_terminal(shell, here) as terminal:
        terminal.wait_for("a shell on algo-1; the job runs: python3 /opt/ml/input/data/launcher_code/boot.py")
        terminal.type("echo $((6 * 7)) $SECRET\n")
        terminal.wait_for("42 it's $HOME hidden")
        terminal.type("exit 7\n")
        assert terminal.end() == 7, terminal.shown
    assert not (here / ".launch/job").exists()
