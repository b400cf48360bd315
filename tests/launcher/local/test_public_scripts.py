"""Scripts that use other libraries as articles and these libraries' documentation do, run unchanged by `launch --local`."""

from __future__ import annotations

import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest

from local_jobs import launch, namespaces, write_job
from tar_archives import written

SCRIPTS = {script.stem: script for script in (Path(__file__).parents[2] / "data/public_scripts").glob("*.py")}
NEEDS = {"fsspec_tar": "s3fs", "iopath_tar": "iopath", "webdataset_pipe_aws": "awscli", "webdataset_s3fs": "s3fs"}
IMAGES = [bytes([number]) * 700 for number in range(6)]
CHANNELS = """channels:
  training: {s3_uri: s3://bucket/shards/, input_mode: FastFile}
  train: {s3_uri: s3://bucket/shards/, input_mode: Pipe}
"""
# Each script is __main__ in a process of its own, forked after the imports that take seconds; to take them apart takes a second.
FORK_EACH = """
import multiprocessing, os, pathlib, runpy, sys
from contextlib import suppress
import boto3, torch, webdataset
with suppress(ImportError):
    import s3fs

multiprocessing.set_start_method("fork")  # as the images' Python, before 3.14
children = []
for script in sorted(pathlib.Path(__file__).parent.glob("scripts/*.py")):
    children.append(os.fork())
    if not children[-1]:
        sys.stdout = open(1, "w", closefd=False)  # one write for a script's line, which others would interrupt
        runpy.run_path(str(script), run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
for child in children:
    os.waitpid(child, 0)
os._exit(0)
"""


def is_installed(script: str) -> bool:
    return find_spec(NEEDS.get(script, "torch")) is not None


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run every script in one job, over the images in two shards and as objects; return what they print."""
    namespaces()
    here = tmp_path_factory.mktemp("here")
    for folder in ("src/scripts", "data/s3/bucket/images", "data/s3/bucket/shards"):
        (here / folder).mkdir(parents=True)
    samples = [{"__key__": str(number), "png": image, "cls": b"7"} for number, image in enumerate(IMAGES)]
    for number in range(2):
        (here / f"data/s3/bucket/shards/{number:06d}.tar").write_bytes(written(samples[number::2]))
    for number, image in enumerate(IMAGES):
        (here / f"data/s3/bucket/images/{number}.png").write_bytes(image)
    for name, script in SCRIPTS.items():
        if is_installed(name):
            (here / "src/scripts" / script.name).write_bytes(script.read_bytes())
    write_job(here, FORK_EACH, CHANNELS)
    return launch(here)


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_public_script_reads_every_image(script: str, request: pytest.FixtureRequest, fuse: None) -> None:
    if not is_installed(script):
        pytest.skip(f"needs pip install {NEEDS[script]}")
    output = request.getfixturevalue("output")
    result = "True" if script == "connector_checkpoint" else f"{len(IMAGES)} {sum(map(zlib.crc32, IMAGES))}"
    assert f"| {script} {result}\n" in output, output
