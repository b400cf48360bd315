"""The pages of docs/migrate: what is shown before and after is the same request, or reads the same samples.

With `make sdk-test`, SageMaker's SDKs run the scripts. What they sent is in data/sdk_requests.json, to which the specs are
compared without an SDK.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import re
import runpy
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from accelerate.commands.config.config_args import SageMakerConfig
from accelerate.commands.launch import launch_command_parser
from accelerate.utils.launch import prepare_sagemager_args_inputs
from PIL import Image

import launcher
from delivered_channels import config
from launcher.importing.from_request import import_request
from launcher.importing.sdk_code import without_packed_code
from launching import launch
from sagemaker_channels import contract
from served_bucket import served_bucket
from tar_archives import written

ROOT = Path(launcher.__file__).parents[1]
RECORDED = ROOT / "tests/data/sdk_requests.json"
VARIABLES = {"ROLE_ARN": "arn:aws:iam::123456789012:role/Training", "ACCOUNT_ID": "123456789012"}
SDK_PAGES = {"estimator": 2, "model-trainer": 3, "huggingface": 2}
ADDED = {
    "profiler_config": {"disable_profiler": True},
    "enable_sage_maker_metrics_time_series": True,
}  # as huggingface.md says


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / f"docs/migrate/{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _start_method() -> Iterator[None]:
    """Start workers as this Python does by default."""
    method = multiprocessing.get_start_method()
    multiprocessing.set_start_method(None, force=True)
    yield
    multiprocessing.set_start_method(method, force=True)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files that the scripts name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    Path("src").mkdir()
    for name in ("src/train.py", "src/run_glue.py", "train.py"):
        Path(name).touch()


def planned(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a spec without its code, its name and modes of channels that are the job's own."""
    (Path("job.yaml")).write_text(yaml.safe_dump(spec))
    loaded = launcher.load("job.yaml", environ=VARIABLES)
    request = launcher.plan(loaded.model_copy(update={"code": None})).request
    for entry in request.get("InputDataConfig", ()):
        if entry.get("InputMode") == request["AlgorithmSpecification"]["TrainingInputMode"]:
            del entry["InputMode"]
    return {key: value for key, value in request.items() if key != "TrainingJobName"}


def after(page: str) -> dict[str, Any]:
    """Return the page's spec, with what it says that the SDK adds."""
    spec, *more = map(yaml.safe_load, blocks(page, "yaml"))
    return {**spec, **(more[0] if page == "estimator" else ADDED if page == "huggingface" else {})}


@pytest.mark.parametrize("page", SDK_PAGES)
def test_spec_of_a_page_plans_to_the_request_that_the_sdk_sent(page: str) -> None:
    recorded = json.loads(RECORDED.read_text())[page]
    imported = import_request(without_packed_code(recorded))
    assert planned({**imported, "region": "eu-west-1"}) == planned(after(page))


@pytest.mark.sdk
@pytest.mark.parametrize(("page", "major"), SDK_PAGES.items())
def test_script_of_a_page_is_imported_as_its_spec(page: str, major: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAGEMAKER_ADMIN_CONFIG_OVERRIDE", "SAGEMAKER_USER_CONFIG_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)  # the SDKs refuse a path that does not exist
    if (python := os.environ.get(f"LAUNCHER_SDK_V{major}_PYTHON")) is None:
        pytest.skip(f"make sdk-test makes SDK v{major}'s environment")
    if page == "model-trainer":
        Path("src/requirements.txt").touch()
    Path("train_job.py").write_text(blocks(page, "python")[0])
    done = launch("import", "train_job.py", "--python", python)
    assert done.returncode == 0, done.stderr
    found, expected = yaml.safe_load(done.stdout), after(page)
    assert (found["code"], found["base_name"]) == (expected["code"], expected["base_name"])
    assert planned(found) == planned(expected)


def test_spec_for_accelerate_plans_to_what_accelerate_asks_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "any")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "any")  # accelerate overwrites both
    _, before, spec = (yaml.safe_load(text) for text in blocks("huggingface", "yaml"))
    options = ["--mixed_precision", before["mixed_precision"], "--dynamo_backend", "no"]
    script = launch_command_parser().parse_args([*options, "train.py"])
    expected, _ = prepare_sagemager_args_inputs(SageMakerConfig(**before), script)
    request = planned(spec)
    assert request["RoleArn"].endswith(f":role/{expected['role']}")
    assert request["Environment"].items() <= expected["environment"].items()
    resources = request["ResourceConfig"]
    assert resources["InstanceType"] == expected["instance_type"]
    assert resources["InstanceCount"] == expected["instance_count"]
    image = request["AlgorithmSpecification"]["TrainingImage"]
    versions = (expected[f"{name}_version"] for name in ("pytorch", "transformers", "py"))
    assert all(version in image for version in versions)
    assert (spec["region"], spec["profile"]) == (os.environ["AWS_DEFAULT_REGION"], os.environ["AWS_PROFILE"])
    assert (spec["base_name"], spec["code"]["directory"]) == (expected["base_job_name"], expected["source_dir"])


@pytest.mark.parametrize("page", SDK_PAGES)
def test_specs_of_a_page_have_no_warning_but_of_patches(page: str) -> None:
    ignored = ("image-out-of-patch", "volume-size-has-no-effect")
    for text in blocks(page, "yaml"):
        if "role_arn" in text:
            if "requirements:" in text:
                Path("src/requirements.txt").touch()
            Path("job.yaml").write_text(text)
            assert launcher.plan(launcher.load("job.yaml", environ=VARIABLES), ignore=ignored).warnings == ()


IMAGES = np.random.default_rng(0).integers(0, 255, (10, 2, 3, 3), np.uint8)


def png(image: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "png")
    return stream.getvalue()


class Steps:
    """The `train_step` of a page, which notes the samples: the label or key of each, and its bytes."""

    def __init__(self) -> None:
        self.samples: list[tuple[Any, bytes]] = []

    def __call__(self, *batch: Any) -> None:
        keys, images = batch if isinstance(batch[0], Sequence) else (batch[1].tolist(), batch[0])
        self.samples += [(key, bytes(image.numpy().tobytes())) for key, image in zip(keys, images, strict=True)]


def read(*code: str) -> list[tuple[Any, bytes]]:
    """Run the code of a page as a script, which workers import, and return the samples that it reads, in order."""
    steps = Steps()
    Path("page.py").write_text("\n".join(code))
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # It has an earlier test's variables.
    runpy.run_path(str(Path("page.py").resolve()), {"train_step": steps}, "__main__")
    return sorted(steps.samples)


def job(folder: Path, page: str, number: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the container of the job of a page's spec, and return the channel's folder."""
    spec = {**after("estimator"), **yaml.safe_load(blocks(page, "yaml")[number])}
    request = planned(spec)
    entries = {
        entry["ChannelName"]: {"TrainingInputMode": entry["InputMode"], "ContentType": entry["ContentType"]}
        for entry in request.get("InputDataConfig", ())
    }
    config(folder, 0, 1, entries)
    for name, value in request.get("Environment", {}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(folder))
    (folder / contract.DATA_DIR / "train").mkdir()
    return folder / contract.DATA_DIR / "train"


def test_webdataset_and_its_page_read_the_same_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, reader = blocks("webdataset", "python")
    folder = job(tmp_path / "job", "webdataset", 0, monkeypatch)
    samples = [{"__key__": str(n), "png": png(image), "cls": b"%d" % n} for n, image in enumerate(IMAGES)]
    for number in range(2):
        (folder / f"train-{number:06d}.tar").write_bytes(written(samples[number::2]))
    # In place of the AWS CLI, with which test_public_scripts.py reads.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/aws").write_text(f'#!/bin/sh\ncat "{folder}/$(basename "$3")"\n')
    (tmp_path / "bin/aws").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    expected = sorted((n, np.ascontiguousarray(image.transpose(2, 0, 1)).tobytes()) for n, image in enumerate(IMAGES))
    assert read(before) == read(reader) == sorted(expected * 2)


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with served_bucket(tmp_path, monkeypatch) as folder:
        images = folder.with_name("my-bucket") / "images"
        images.mkdir(parents=True)
        for number, image in enumerate(IMAGES):
            (images / f"{number}.png").write_bytes(png(image))
        yield


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize("style", [0, 1], ids=["iterable", "map"])
def test_connector_and_its_page_read_the_same_samples(
    style: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterable, iterable_after, map_style, map_after = blocks("s3torchconnector", "python")
    job(tmp_path / "job", "s3torchconnector", style, monkeypatch)
    expected = sorted((f"{n}.png", image.tobytes()) for n, image in enumerate(IMAGES))
    torch.manual_seed(0)
    if style == 0:
        assert read(iterable) == read(iterable_after) == expected
    else:
        load = iterable_after[: iterable_after.index("\ndataset")]
        assert read(map_style) == read(load, map_after) == expected
