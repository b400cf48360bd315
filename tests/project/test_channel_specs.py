"""Every bundled spec plans to exactly the request in tests/golden, and runs locally on the demo's data.

`pytest tests/project/test_channel_specs.py --rewrite-golden` rewrites those files.
"""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import launcher
import make_docs
from forked import LAUNCHER, run
from launcher import bundled, demo
from launcher.rules import find_problems
from launcher.spec.channels import KINDS
from sagemaker_channels.formats import format_of
from sagemaker_channels.samples.digest import MODULUS, Tally

GOLDEN = Path(__file__).parents[1] / "golden"
PLAN_ONLY = ("image-classification-built-in", "serverless-dataset")  # AWS's images contain the code
TRAINING = ("image-classification",)
RESHARDING = ("reshard",)
MEASURING = ("measure",)
RUNNABLE = [name for name in bundled.spec_names() if name not in (*PLAN_ONLY, *TRAINING, *RESHARDING, *MEASURING)]
OF_IMAGES = [name for name in RUNNABLE if name not in ("s3-augmented-manifest", "s3-pipe-lines", "twenty-channels")]
WARNINGS = {"twenty-channels": ["code-needs-toolkit"]}  # all 20 channels are the user's
SPLIT = (250, 25, 25)  # images of train (two shards), validation, test


@pytest.mark.parametrize("name", bundled.spec_names())
def test_bundled_spec_yields_its_golden_request(name: str, request: pytest.FixtureRequest) -> None:
    # Whether the examples' images are still patched is the subject of a test of its own, since it depends on the day.
    plan = launcher.plan(bundled.spec_path(name), name="golden", ignore=("image-out-of-patch",))
    # The code's digest changes with every line of our scripts; that it is the archive's is tested with the plan.
    digest = plan.code.digest if plan.code is not None else "none"
    planned = json.loads(json.dumps(plan.request).replace(digest, "<digest of the code>"))
    file = GOLDEN / f"{name}.json"
    if request.config.getoption("--rewrite-golden"):
        file.write_text(json.dumps(planned, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    assert file.is_file(), f"{file} is missing: pytest {Path(__file__).name} --rewrite-golden"
    assert planned == json.loads(file.read_text(encoding="utf-8"))
    assert [problem.code for problem in plan.warnings] == WARNINGS.get(name, [])


@pytest.mark.parametrize("name", bundled.spec_names())
def test_bundled_spec_has_an_image_that_is_patched_on_the_day_of_the_table(name: str) -> None:
    table = json.loads((Path(launcher.__file__).parent / "data/image_support.json").read_text())
    spec = launcher.load(bundled.spec_path(name))
    found = find_problems(spec, today=date.fromisoformat(table["date"]))
    assert "image-out-of-patch" not in {problem.code for problem in found}


def test_every_golden_file_has_its_spec() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.json")) == list(bundled.spec_names())


def test_first_line_of_every_spec_states_what_it_shows() -> None:
    assert bundled.spec_names(), "no spec is found"
    summaries = [make_docs.spec_summary(name) for name in bundled.spec_names()]
    assert all(re.fullmatch(r"[A-Z][^#\n]{30,130}\.", summary) for summary in summaries), summaries
    assert len(set(summaries)) == len(summaries)


def test_unknown_spec_name_lists_the_known_names() -> None:
    with pytest.raises(KeyError, match=r"no bundled spec 's3-files'.* s3-file,"):
        bundled.spec_path("s3-files")


@dataclass(frozen=True)
class Reading:
    """The report of read_channels on a channel's epoch, added up over the ranks."""

    mode: str
    count: int
    digest: int


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("specs")
    demo.make_demo(folder / "data", SPLIT)
    return folder


@cache  # several tests look at the same run
def read(name: str, workplace: Path) -> dict[tuple[str, int], Reading]:
    """Run a spec with read_channels, and return its reports by channel and epoch."""
    launch(str(bundled.spec_path(name)), "--name", name, workplace=workplace)
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    with tarfile.open(output(name, workplace)) as tar:
        for member in tar:
            content = tar.extractfile(member)
            for result in json.load(content) if content is not None else ():
                found[result["channel"], result["epoch"]].append(result)
    return {
        key: Reading(
            parts[0]["mode"],
            sum(part["count"] for part in parts),
            sum(int(part["digest"], 16) for part in parts) % MODULUS,
        )
        for key, parts in found.items()
    }


def launch(*words: str, workplace: Path) -> str:
    done = run(LAUNCHER, ["-m", "launcher", *words, "--local", "--data", "data"], cwd=workplace)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def output(name: str, workplace: Path) -> Path:
    return workplace / ".launch" / name / f"s3/my-bucket/output/{name}/output/output.tar.gz"


@pytest.mark.usefixtures("fuse")
@pytest.mark.parametrize("name", RUNNABLE)
def test_bundled_spec_runs_locally(name: str, workplace: Path) -> None:
    spec = launcher.load(str(bundled.spec_path(name)))
    epochs = int((spec.hyperparameters or {}).get("epochs", 1))
    read_here = read(name, workplace)
    assert set(read_here) == {(channel, epoch) for channel in spec.all_channels for epoch in range(epochs)}
    for (channel, _), reading in read_here.items():
        keys = spec.all_channels[channel].model_dump()
        assert reading.mode == ("S3Connector" if keys["source"] == "S3Connector" else keys["input_mode"] or "File")
        assert reading.count > 0
        assert reading == read_here[channel, 0]  # every epoch has the same samples


@pytest.mark.usefixtures("fuse")
def test_every_input_mode_yields_the_same_samples(workplace: Path) -> None:
    """In particular, every storage kind that a local run delivers needs a spec with such a channel `train`."""
    channels = {name: launcher.load(str(bundled.spec_path(name))).all_channels["train"] for name in OF_IMAGES}
    found = {name: (str(channel.source), channel.content_type) for name, channel in channels.items()}
    assert {source for source, _ in found.values()} == {source for source, kind in KINDS.items() if kind.DATA}
    tars = [name for name, (_, content_type) in found.items() if content_type == "application/x-tar"]
    for alike in (tars, [name for name in OF_IMAGES if name not in tars]):
        assert len(alike) >= 3
        readings = {name: read(name, workplace)["train", 0] for name in alike}
        assert {reading.count for reading in readings.values()} == {SPLIT[0]}
        assert len({reading.digest for reading in readings.values()}) == 1, readings
    twenty = {channel: reading.digest for (channel, _), reading in read("twenty-channels", workplace).items()}
    for alike in (
        ["train_file", "train_manifest", "train_recordio_fast", "train_recordio_pipe", "train_efs", "train_fsx"],
        ["train_tar_file", "train_tar_fast", "train_tar_pipe", "images"],
        ["validation_file", "validation_fast", "validation_pipe"],
        ["test_file", "test_pipe"],
    ):
        assert len({twenty[channel] for channel in alike}) == 1, alike
    assert twenty["train_file"] == read("s3-file", workplace)["train", 0].digest
    sharded = read("two-hosts-sharded", workplace)
    assert sharded["train", 0].digest == sharded["stream", 0].digest == twenty["images"]
    assert sharded["validation", 0].digest == twenty["validation_file"]


@pytest.mark.usefixtures("fuse")
def test_each_line_is_one_sample(workplace: Path) -> None:
    assert read("s3-augmented-manifest", workplace)["train", 0].count == SPLIT[0]
    lines = read("s3-pipe-lines", workplace)
    assert lines["train", 0].count == lines["table", 0].count == SPLIT[0]
    # Unzipped on the way: the digest is that of the lines themselves.
    expected = Tally()
    for file in (workplace / "data/s3/my-bucket/digits/train-lines").iterdir():
        for line in gzip.decompress(file.read_bytes()).splitlines():
            expected.add({"data": line})
    assert lines["train", 0].digest == expected.digest


@pytest.mark.usefixtures("fuse")
def test_two_resharding_hosts_write_each_image_once(workplace: Path) -> None:
    launch(str(bundled.spec_path("reshard")), "--name", "reshard", workplace=workplace)
    root = workplace / ".launch/reshard/s3/my-bucket/digits-shards"
    index = json.loads((root / "index.json").read_text())
    assert {shard["name"][:4] for shard in index["shards"]} == {"0000", "0001"}
    keys, tally = [], Tally()
    for shard in index["shards"]:
        with (root / "shards" / shard["name"]).open("rb", buffering=0) as stream:
            for sample in format_of("tar").split(stream):
                keys.append(f"{sample['__key__']}.png")
                tally.add(sample)
    images = workplace / "data/s3/my-bucket/digits/train"
    assert sorted(keys) == sorted(file.name for file in images.iterdir())
    expected = Tally()
    for file in images.iterdir():
        expected.add({"png": file.read_bytes()})
    assert index["digest"] == expected.hex == tally.hex
    names = [shard["name"] for shard in index["shards"]]
    manifest = json.loads((root / "manifest.json").read_text())
    assert manifest == [{"prefix": "s3://my-bucket/digits-shards/shards/"}, *names]


@pytest.mark.usefixtures("fuse")
def test_way_that_fails_says_why_and_the_others_are_measured(workplace: Path) -> None:
    (workplace / "broken").mkdir()
    (workplace / "broken/s3torchconnector.py").write_text("raise ImportError('a broken library')")
    options = ["--ways", "fast-file,s3-map-dataset", "--rounds", "1", "--num-workers", "0", "--name", "measure"]
    broken = ("--set", f"environment.PYTHONPATH={workplace / 'broken'}")
    shown = launch("measure", "s3://my-bucket/digits/train/", *options, *broken, workplace=workplace)
    results = json.loads((workplace / ".launch/measure/algo-1/ml/output/data/measure.json").read_text())
    fast_file, connector = results["ways"]
    assert (fast_file["error"], fast_file["samples"]) == (None, SPLIT[0])
    [run] = fast_file["runs"]
    assert (run["samples"], run["steps"], run["interval"]) == (250, 63, 12)
    assert run["seconds"] > 0 < run["cpu_seconds"]
    assert fast_file["memory"] > 10**7
    assert (connector["error"], connector["runs"]) == ("a broken library", [])
    assert len(re.findall(r"^algo-1 \| fast-file +[\d,.]+ ", shown, re.MULTILINE)) == 1
    assert shown.count("s3-map-dataset: a broken library\n") == 1


@pytest.mark.usefixtures("fuse")
def test_demo_trains_a_model_to_95_percent_accuracy(tmp_path: Path) -> None:
    name = TRAINING[0]
    demo.make_demo(tmp_path / "data")
    log = launch(str(bundled.spec_path(name)), "--name", name, workplace=tmp_path)
    assert re.search(r"images holds the same samples as train: 1,297 samples, digest [0-9a-f]{16}", log)
    for row in (
        r"train +Pipe +1,297 ",
        r"validation +FastFile +250 ",
        r"test +File +250 ",
        r"images +S3Connector +1,297 ",
    ):
        assert re.search(row, log), log
    result = json.loads((tmp_path / ".launch" / name / "result.json").read_text())
    assert set(result["Metrics"]) == {"train:loss", "validation:loss", "validation:accuracy", "test:accuracy"}
    assert result["Metrics"]["validation:accuracy"] >= 0.95
    assert result["Metrics"]["test:accuracy"] >= 0.95
