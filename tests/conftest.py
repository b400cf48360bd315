"""What the tests share: the optional system parts, and a spec that is right."""

from __future__ import annotations

import functools
import gc
import json
import multiprocessing.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from botocore.loaders import JSONFileLoader, Loader
from hypothesis import HealthCheck, settings

import account_world
import aws_stand_in
from launcher.parsing import team_files
from sagemaker_channels import contract
from sagemaker_channels.job.environment import Environment, load_environment
from sagemaker_channels.sources import listing
from served_bucket import served_bucket

# A busy machine, or one that measures coverage, makes examples slowly; that is no failure.
settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-speed")

# What starts processes: modules, those of the loaders with workers among them, and fixtures.
_STARTING = {"subprocess", "multiprocessing", "multiprocessing.context", "torch.utils.data.dataloader", "forked"}
_STARTING |= {"sagemaker_channels.torch_data.worker_loader", "further_ways"}
_SLOW_FIXTURES = {"running_aws", "fuse", "moto_url"}
OPTIONAL = {"fusermount3": "FUSE (package fuse3)", "rclone": "rclone"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="write tests/golden again from the bundled specs")


def pytest_configure() -> None:
    """Undo ignored signals, as a script's `make test &` or nohup leaves them: the tests' children would inherit them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.pop("GITHUB_ACTIONS", None)  # there, errors are annotations
    os.environ["OMP_NUM_THREADS"] = (
        "1"  # Several test processes share the cores, and torch's threads wait for each other busily.
    )
    if sys.platform == "linux":  # Python 3.14's default imports torch in each worker, and sees no change of a test.
        multiprocessing.set_start_method("fork", force=True)
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage rarely, here and in forked processes, and never what was imported: it took a fifth of the time."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that `make test-fast` leaves out: by their fixtures, and by what their file or a helper of it imports.

    Side by side, files with few of these come first: one that takes a minute must not be the last.
    """
    slow = set[Path]()
    for item in items:
        if sys.platform != "linux" and item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs Linux"))
        if isinstance(item, pytest.Function) and (
            _SLOW_FIXTURES & {*item.fixturenames} or _starts_processes(item.module)
        ):
            item.add_marker("processes")
            slow.add(item.path)
    if hasattr(config, "workerinput"):
        counts = Counter(item.path for item in items)
        items.sort(key=lambda item: (item.path not in slow, counts[item.path]))


def pytest_sessionfinish() -> None:
    """Collect garbage once before pytest does so five times for warnings that nothing has raised yet."""
    gc.collect()
    gc.freeze()


@functools.cache
def _starts_processes(module: ModuleType) -> bool:
    here, names = str(Path(__file__).parent), set[str]()
    for value in vars(module).values():
        names.add(value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", "")))
    helpers = (sys.modules.get(name) for name in names - {module.__name__})
    return bool(_STARTING & names) or any(
        str(getattr(helper, "__file__", "")).startswith(here) and _starts_processes(helper)
        for helper in helpers
        if helper
    )


@pytest.fixture(scope="session", autouse=True)
def leftovers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, str]]:
    """What is in this process's own temporary folder, by the first test after which it was there; fails if any is left at the end.

    torchrun keeps its folders of logs, torch that of its compiler, and multiprocessing removes its own when the process exits.
    """
    tmp_path_factory.getbasetemp()  # stays in the usual folder
    multiprocessing.util.get_temp_dir()  # so does this process's own
    usual = tempfile.gettempdir()
    found: dict[Path, str] = {}
    with tempfile.TemporaryDirectory(prefix="tests-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        tempfile.tempdir = folder
        yield found
        tempfile.tempdir = usual
        others = ("torchelastic_", "torchinductor_", "torch-shm-dir-", "pymp-")
        left = {path.name: test for path, test in found.items() if path.exists() and not path.name.startswith(others)}
    assert not left, f"tests left files in the temporary folder: {left}"


@pytest.fixture(autouse=True)
def note_leftovers(request: pytest.FixtureRequest, leftovers: dict[Path, str]) -> Iterator[None]:
    """Note what is in the temporary folder after a test; a process may remove its files a little later."""
    yield
    for path in Path(os.environ["TMPDIR"]).iterdir():
        leftovers.setdefault(path, request.node.nodeid)


@pytest.fixture(scope="session", autouse=True)
def models_of_aws() -> Iterator[None]:
    """Find and parse botocore's models once in this process; a session of boto3 does it again, which takes most of a short test."""
    with pytest.MonkeyPatch.context() as patch:
        cached, services = (
            functools.cache(JSONFileLoader().load_file),
            functools.cache(Loader().list_available_services),
        )
        patch.setattr(JSONFileLoader, "load_file", lambda self, path: cached(path))
        patch.setattr(Loader, "list_available_services", lambda self, type_name: services(type_name))
        yield


@pytest.fixture(autouse=True, scope="session")
def no_layers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No file of this machine or its user is below the tests' specs: neither the SDK's configuration nor a team's."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("LAUNCH_TEAM", "SAGEMAKER_ADMIN_CONFIG_OVERRIDE", "SAGEMAKER_USER_CONFIG_OVERRIDE"):
            patch.setenv(variable, "")
        patch.setenv("HIDDEN_FILE", str(team_files.MACHINE_FILE))
        patch.setenv("PYTHONPATH", str(Path(__file__).with_name("isolation")), prepend=os.pathsep)
        patch.setattr(team_files, "MACHINE_FILE", tmp_path_factory.getbasetemp() / "none.yaml")
        yield


@pytest.fixture(autouse=True)
def own_listings() -> Iterator[None]:
    """What a test has listed goes with it: it is kept for a job, and the next test's server may come by the same port."""
    yield
    if listing._job is not None:
        listing._remove(listing._job, os.getpid())


@pytest.fixture
def quick_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let time.sleep return at once, and time.monotonic pass as if it had not; for code that waits for no other process."""
    slept, monotonic = [0.0], time.monotonic
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + sum(slept))


@pytest.fixture
def fuse() -> None:
    """Require a FUSE tool; without one, CI fails and a laptop skips the test."""
    missing = [what for tool, what in OPTIONAL.items() if shutil.which(tool) is None]
    if not os.path.exists("/dev/fuse"):  # noqa: PTH110 - a device, not a file
        missing.append("/dev/fuse")
    if missing:
        need(f"needs {', '.join(missing)}")


@pytest.fixture(scope="session")
def running_aws() -> Iterator[aws_stand_in.StandIn]:
    """The stand-in for AWS, in processes of its own, for all tests; take `aws`, which is empty."""
    with aws_stand_in.running() as stand_in:
        yield stand_in


@pytest.fixture
def aws(running_aws: aws_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch) -> aws_stand_in.StandIn:
    """An empty AWS account, which this process and its children find where they look for AWS."""
    running_aws.reset()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in running_aws.environ.items():
        monkeypatch.setenv(name, value)
    return running_aws


@pytest.fixture(scope="module")
def made_world(running_aws: aws_stand_in.StandIn) -> Iterator[account_world.World]:
    """An account in which all is right; made once for a test file, since that takes seconds."""
    with account_world.a_world(running_aws) as world:
        yield world


@pytest.fixture
def world(made_world: account_world.World) -> Iterator[account_world.World]:
    """The account in which all is right, for one test."""
    made_world.aws.clear_calls()
    yield made_world
    made_world.aws.clear_faults()


def need(what: str) -> None:
    """Skip a test whose optional part is missing; under CI=true that is a failure on Linux."""
    if os.environ.get("CI") == "true" and sys.platform == "linux":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture
def connected(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """The files of a test's `environment`, channel `files`, in S3 as channel `s3`."""
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3" / "bucket").symlink_to(environment.channels["files"].path)
    with served_bucket(tmp_path, monkeypatch):
        entry = {"channel": "s3", "s3_uri": "s3://bucket/", "style": "map", "content_type": "text/plain"}
        yield load_environment(tmp_path, {f"{contract.CONNECTOR_VARIABLE}0": json.dumps(entry)})
