"""A real ModelTrainer and a real Estimator send the channels of our own request.

They train with SDK v2 and v3, each in its own environment (`make sdk-test`), against moto, and their requests are recorded as
they leave.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from moto.server import ThreadedMotoServer

import launcher
from launcher import bundled
from launcher.request.build import channel_variables
from launcher.rules.examples import laid_over_base
from patience import PATIENCE

pytestmark = pytest.mark.sdk

ROOT = Path(launcher.__file__).parents[1]
SPECS_PAGE = (ROOT / "docs/reference/spec.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/howto/sdk.md").read_text(encoding="utf-8")
TELLING = ("LAUNCHER_CONNECTOR_", "LAUNCHER_ATTRIBUTE_NAMES_", "LAUNCHER_SHUFFLED_CHANNELS_")
PYTHONS = {2: "LAUNCHER_SDK_V2_PYTHON", 3: "LAUNCHER_SDK_V3_PYTHON"}
VPC = "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
FSX = "source: FSxLustre, file_system_id: fs-0123456789abcdef1, directory_path: /abcdefgh/a, input_mode: File"
CONNECTOR = "images: {source: S3Connector, s3_uri: s3://bucket/i/}"

# What the bundled specs lack. Those and these together are every way a channel can be said.
SPECS = {
    "plain": "",
    "wrapped": "channels: {a: {s3_uri: s3://bucket/a/, input_mode: Pipe, record_wrapper_type: RecordIO, "
    "compression_type: Gzip, content_type: image/png, shuffle_config: {seed: -3}}}\n",
    "nothing-said": "channels: {a: {s3_uri: s3://bucket/a/, s3_data_distribution_type: null, input_mode: null, "
    "compression_type: 'None'}}\n",
    "read-write": VPC + f"channels: {{ro: {{{FSX}}}, rw: {{{FSX}, file_system_access_mode: rw, content_type: a/b}}}}\n",
    "groups": "resource_config: {volume_size_in_gb: 9, instance_groups: ["
    "{instance_group_name: g1, instance_type: ml.m5.xlarge, instance_count: 2}, "
    "{instance_group_name: g2, instance_type: ml.g5.xlarge, instance_count: 1}]}\n"
    "channels: {a: {s3_uri: s3://bucket/a/, instance_group_names: [g1], s3_data_distribution_type: ShardedByS3Key}, "
    "b: {s3_uri: s3://bucket/b/, instance_group_names: [g2, g1], input_mode: FastFile}}\n",
    "names": "channels: {Zz: s3://bucket/1/, a-b.c_d: s3://bucket/2/, '0': s3://bucket/3/}\n",
    "zero": "channels: {a: {s3_uri: s3://bucket/a/, input_mode: Pipe, content_type: a/b, shuffle_config: {seed: 0}}}\n",
    "no-channels": "channels: null\n",
}
_ACCESS = {
    "HubAccessConfig": {"HubContentArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/hub/Model/name/1.0.0"},
    "ModelAccessConfig": {"AcceptEula": True},
}
# Entries for what a channel of the request can hold besides.
ENTRIES = {
    "access": [
        {
            "ChannelName": "model",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/m/", **_ACCESS}},
        }
    ],
    "dataset": [
        {
            "ChannelName": "tuning",
            "DataSource": {
                "DatasetSource": {
                    "DatasetArn": "arn:aws:sagemaker:us-east-1:123456789012:hub-content/hub/DataSet/name/1.0.0"
                }
            },
        }
    ],
}
ADDED = ["code", "sm_drivers"]  # by a ModelTrainer that has code, as it has for these:
WITH_CODE = ("plain", "groups", "image-classification", "example")
# The bundled specs of jobs that the SDK's trainers can start: they have no serverless ones.
BUNDLED = [name for name in bundled.spec_names() if launcher.load(str(bundled.spec_path(name))).resource_config]
REFUSED = {  # file and trainer -> why
    (
        "dataset",
        "fit",
    ): r"channels\.tuning: SDK 2\.\S+'s TrainingInput cannot carry this channel: it has no DatasetSource; ",
    (
        "zero",
        "train",
    ): r"channels\.a: SDK [23]\.\S+'s Channel cannot .*: ShuffleConfig\.Seed: 0 is dropped when it is sent; ",
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each of the SDK's uploads
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Trained:
    """What the trainers of one SDK did with every file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = json.loads((folder / "found").read_text())
        self.sent: dict[tuple[str, str], dict[str, Any]] = {}
        """File and trainer -> the request that left."""
        self.refused: dict[tuple[str, str], str] = {}
        for name, trainers in found.items():
            for trainer, did in trainers.items():
                if "sent" in did:
                    self.sent[name, trainer] = did["sent"]
                else:
                    self.refused[name, trainer] = did["refused"]


def worked_example(major: int) -> str:
    """The example of docs/howto/sdk.md, run as it is printed."""
    blocks = re.findall(r"```python\n(.*?)```", REFERENCE, re.DOTALL)
    trainer = {2: "PyTorch(", 3: "ModelTrainer("}[major]
    (example,) = (block for block in blocks if "estimator_inputs(" in block and trainer in block)
    return str(example)


@pytest.fixture(scope="module", params=[2, 3])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, endpoint: str) -> Trained:
    python = os.environ.get(PYTHONS[request.param])
    if python is None:
        pytest.skip(f"make sdk-test makes SDK v{request.param}'s environment and sets {PYTHONS[request.param]}")
    folder = tmp_path_factory.mktemp(f"v{request.param}")
    for name in BUNDLED:
        shutil.copy(bundled.spec_path(name), folder)
    for name, overlay in SPECS.items():
        (folder / f"{name}.yaml").write_text(laid_over_base(overlay))
    for name, entries in ENTRIES.items():
        (folder / f"{name}.json").write_text(json.dumps(entries))
    (folder / "src").mkdir()
    (folder / "src/train.py").touch()
    (folder / "src/requirements.txt").touch()
    (folder / "job.yaml").write_text(re.findall(r"```yaml\n(.*?)```", SPECS_PAGE, re.DOTALL)[0])
    (folder / "example.py").write_text(worked_example(request.param))
    (folder / "config").write_text(
        "SchemaVersion: '1.0'\n"
        "SageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true, Session: {DefaultS3Bucket: staging}}}}\n",
        encoding="utf-8",
    )
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{ROOT}/entrypoints",
        "HOME": str(folder),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(folder / "config"),
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(folder / "config"),
        "SAGEMAKER_VALIDATE_ROLE": "false",  # moto cannot simulate policies
    }
    command = [python, str(Path(__file__).parents[1] / "sdk_proof.py"), str(folder), *WITH_CODE]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Trained(folder)


def expected(folder: Path, name: str) -> tuple[list[Any], dict[str, str]]:
    """Return the channels of the launcher's own request, and the variables that describe them."""
    if name in ENTRIES:
        return ENTRIES[name], {}
    request = launcher.plan(folder / f"{'job' if name == 'example' else name}.yaml").request
    entries = [entry for entry in request.get("InputDataConfig", []) if entry["ChannelName"] != "launcher_code"]
    variables = request.get("Environment", {})
    described = {name: text for name, text in variables.items() if name.startswith(TELLING)}
    # A request without code has no such variables, but a trainer has a script that may read them.
    return entries, described | channel_variables(entries)


def test_real_trainer_sends_the_planned_channels(trained: Trained) -> None:
    for (name, trainer), request in trained.sent.items():
        entries, variables = expected(trained.folder, name)
        sent = request.get("InputDataConfig", [])
        assert sent[: len(entries)] == entries, (name, trainer)
        added = ADDED if trainer == "train" and name in WITH_CODE else []
        assert [entry["ChannelName"] for entry in sent[len(entries) :]] == added, (name, trainer)
        assert request.get("Environment", {}) == variables, (name, trainer)
    done = {name for name, _ in (*trained.sent, *trained.refused)}
    assert done == {*BUNDLED, *SPECS, *ENTRIES, "job", "example"}


def test_real_trainer_sends_every_member(trained: Trained) -> None:
    """Every member that botocore knows of was in what one of the trainers sent."""
    model = botocore.session.get_session().get_service_model("sagemaker").shape_for("Channel")
    entries = [entry for request in trained.sent.values() for entry in request.get("InputDataConfig", [])]
    assert known(model) - {place for entry in entries for place in members(entry)} == set()


def members(value: Any, place: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for member, inner in value.items():
            yield f"{place}.{member}"
            yield from members(inner, f"{place}.{member}")


def known(shape: Any, place: str = "") -> set[str]:
    found = set()
    for member, inner in shape.members.items() if shape.type_name == "structure" else ():
        found |= {f"{place}.{member}", *known(inner, f"{place}.{member}")}
    return found


def test_member_that_the_sdk_drops_is_refused(trained: Trained) -> None:
    trainers = {trainer for _, trainer in trained.sent}
    assert set(trained.refused) == {key for key in REFUSED if key[1] in trainers}
    for key, text in trained.refused.items():
        assert re.fullmatch(rf"{REFUSED[key]}use a newer SDK, or send the request with `launch`", text), text


@pytest.mark.parametrize("major", [2, 3])
def test_objects_are_of_the_sdks_classes(major: int, tmp_path: Path) -> None:
    python = os.environ.get(PYTHONS[major])
    if python is None:
        pytest.skip(f"make sdk-test makes SDK v{major}'s environment and sets {PYTHONS[major]}")
    file = tmp_path / "job.yaml"
    file.write_text(laid_over_base(VPC + f"channels: {{a: s3://bucket/a/, fsx: {{{FSX}}}, {CONNECTOR}}}\n"))
    code = f"""if True:
        import json
        from dataclasses import replace
        from launcher.errors import RefusedError
        from launcher.estimator import estimator_inputs
        made = estimator_inputs({str(file)!r})
        def shown(value):
            if isinstance(value, list):
                return [[type(each).__module__ + "." + type(each).__name__, each.channel_name] for each in value]
            return [[type(each).__module__ + "." + type(each).__name__, name] for name, each in value.items()]
        printed = {{"channels": shown(made.channels()), "some": shown(made.channels("fsx")), "inputs": shown(made.inputs)}}
        try:
            replace(made, entries=({{**made.entries[0], "Newer": 1}},)).input_data_config
        except RefusedError as error:
            printed["refused"] = str(error)
        print(json.dumps(printed))
    """
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/entrypoints", "HOME": str(tmp_path)}
    command = [python, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    printed = json.loads(done.stdout.splitlines()[-1])
    assert "itself reads from S3" in done.stderr  # the warning
    core = {2: "sagemaker", 3: "sagemaker.core"}[major]
    inputs = [[f"{core}.inputs.TrainingInput", "a"], [f"{core}.inputs.FileSystemInput", "fsx"]]
    channels = [["sagemaker.core.shapes.shapes.Channel", name] for name in ("a", "fsx")]
    assert printed["inputs"] == inputs
    assert printed["channels"] == (inputs if major == 2 else channels)
    assert printed["some"] == printed["channels"][1:]
    assert re.fullmatch(
        rf"channels\.a: SDK {major}\.[0-9.]+'s Channel cannot carry this channel: newer: Extra inputs are not permitted; use .*",
        printed["refused"],
    )
