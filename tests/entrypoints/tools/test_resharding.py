"""Resharding: whole samples in verified shards, the same after any interruption."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

import reshard
from faulty_s3 import Store
from format_channels import file_of
from launcher.bundled import SCRIPTS
from patience import wait_for
from resharded import COUNT, OUTPUT, channels, content, index, options, samples, set_up, shards
from sagemaker_channels import contract
from sagemaker_channels.formats import FORMATS, format_of
from sagemaker_channels.formats.shards import writer_of
from sagemaker_channels.samples.digest import Tally
from sagemaker_channels.tools.resharding import Target

Run = Callable[..., None]


@pytest.mark.parametrize("format", [form.name for form in FORMATS if form.holds and not form.framing])
def test_shards_hold_each_object_once_with_the_digest_of_the_index(format: str, bucket: Path) -> None:
    reshard.main(options(format))
    found = samples(bucket / "out", format)
    field = "jpg" if format_of(format).named else "data"
    assert [sample[field] for sample in found] == list(map(content, range(COUNT)))
    tally = Tally()
    for sample in found:
        tally.add(sample)
    about = index(bucket / "out")
    assert (about["count"], about["digest"]) == (COUNT, tally.hex)
    assert {row["name"]: row["bytes"] for row in about["shards"]} == {
        name: len(data) for name, data in shards(bucket / "out").items()
    }
    assert len(about["shards"]) >= 2 or format == "parquet"


def test_shuffled_shards_depend_on_the_seed_only(bucket: Path) -> None:
    found = []
    for folder, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        reshard.main(["--output", f"s3://bucket/{folder}", "--seed", seed, "--shard-bytes", "20000"])
        found.append(shards(bucket / folder))
    assert found[0] == found[1] != found[2]
    assert len({index(bucket / folder)["digest"] for folder in "abc"}) == 1


@pytest.mark.parametrize(
    ("source", "format", "written"),
    [
        ("tar", "zip", "zip"),
        ("zip", "recordio", "recordio"),
        ("recordio", "tar", "tar"),
        ("tfrecord", "zip", "zip"),
        ("parquet", "tar", "tar"),
        ("tar", "parquet", "parquet"),
        ("lines", "tfrecord", "tfrecord"),
        ("jsonl", "tar", "tar"),
        ("csv", "parquet", "parquet"),
        ("image-recordio", "tar", "tar"),
        ("image-recordio", "recordio", "image-recordio"),
        ("image-recordio", "tfrecord", "tfrecord-example"),
        ("tfrecord-example", "tfrecord", "tfrecord-example"),
    ],
)
def test_shards_are_repacked_in_other_formats(source: str, format: str, written: str, bucket: Path) -> None:
    """Two shards of fifty samples, whose own names are kept if they have any, become shards of another size."""
    root = Path(os.environ[contract.BASE_DIR_VARIABLE])
    data, form = root / contract.DATA_DIR / "data", format_of(source)
    for file in data.iterdir():
        file.unlink()
    for part in (0, 1):
        originals = [form.example(n, content(n)) for n in range(50 * part, 50 * part + 50)]
        (data / f"part-{part}{writer_of(source).ending}").write_bytes(file_of(form, originals))
    channels(root, "data", ContentType=source)
    reshard.main(options(format))
    found = samples(bucket / "out", written)
    assert len({sample.get("__key__") for sample in found}) == COUNT or format not in ("tar", "zip")
    for number, sample in enumerate(found):
        assert any(content(number) in value for value in map(as_bytes, sample.values())), sample
    assert len(found) == COUNT


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def test_two_hosts_killed_and_started_again_write_the_same_shards(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is killed twice, after another number of stored shards, in another place of its work."""
    roots = [tmp_path / "ml-0", tmp_path / "ml-1"]
    hosts = ["algo-1", "algo-2"]
    for number, root in enumerate(roots):
        set_up(root, range(number, COUNT, 2))
        channels(root, "data", S3DistributionType="ShardedByS3Key")
        config = {"current_host": hosts[number], "hosts": hosts, "network_interface_name": "eth0"}
        (root / contract.CONFIG_DIR / "resourceconfig.json").write_text(json.dumps(config))
    own = options("tar", "--seed", "3", size=5_000)

    def run(output: str) -> None:
        for root in roots:
            assert not (bucket / output / "manifest.json").exists()
            monkeypatch.setenv(contract.BASE_DIR_VARIABLE, str(root))
            reshard.main([*own, "--output", f"s3://bucket/{output}"])

    run("whole")
    for stored in (1, 5):
        for number, root in enumerate(roots):
            environ = {**os.environ, contract.BASE_DIR_VARIABLE: str(root), "TMPDIR": str(tmp_path)}  # shards are left
            command = [sys.executable, str(SCRIPTS / "reshard.py"), *own]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environ) as process:
                shard = bucket / f"out/shards/{number:04d}-{stored:06d}.tar"
                wait_for(lambda shard=shard, process=process: shard.exists() or process.poll() is not None)  # type: ignore[misc]
                process.send_signal(signal.SIGKILL)
            assert process.returncode == -signal.SIGKILL
    run("out")
    assert shards(bucket / "out") == shards(bucket / "whole")
    assert index(bucket / "out") == index(bucket / "whole")
    assert len({sample["__key__"] for sample in samples(bucket / "out", "tar")}) == COUNT


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (["--format", "zip"], "format tar, not zip"),
        (["--shard-bytes", "10000"], "shard-size 20000, not 10000"),
        (["--seed", "1"], "shuffle-seed None, not 1"),
        (["--source", "s3://bucket/other/"], "source None, not s3://bucket/other/"),
    ],
)
def test_prefix_with_shards_of_other_options_is_refused(other: list[str], differs: str, bucket: Path) -> None:
    reshard.main(options("tar"))
    before = shards(bucket / "out")
    with pytest.raises(SystemExit, match=f"{differs}; continue with the same options, write to an empty prefix, or"):
        reshard.main([*options("tar"), *other])
    assert shards(bucket / "out") == before


def test_prefix_with_other_files_is_refused(bucket: Path) -> None:
    (bucket / "out/shards").mkdir(parents=True)
    (bucket / "out/shards/notes.txt").write_text("mine")
    with pytest.raises(SystemExit, match=r"has shards/notes.txt, which is not a shard of this run; write to an empty"):
        reshard.main(options())


def test_objects_added_to_a_complete_run_become_further_shards(bucket: Path) -> None:
    reshard.main(options())
    before = shards(bucket / "out")
    data = Path(os.environ[contract.BASE_DIR_VARIABLE]) / contract.DATA_DIR / "data"
    (data / "9999.jpg").write_bytes(b"last")
    reshard.main(options())
    assert samples(bucket / "out", "tar")[-1] == {"__key__": "9999", "jpg": b"last"}
    assert before.items() < shards(bucket / "out").items()
    assert index(bucket / "out")["count"] == COUNT + 1
    (data / "0000.jpg").unlink()
    with pytest.raises(SystemExit, match="the data has changed; remove everything below s3://bucket/out"):
        reshard.main(options())


@pytest.mark.parametrize("mode", ["FastFile", "S3Connector"])
def test_object_edited_in_place_after_a_run_is_refused(
    mode: str, bucket: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards with the earlier content were reported as verified."""
    root = Path(os.environ[contract.BASE_DIR_VARIABLE])
    data = root / contract.DATA_DIR / "data"
    data.rename(store.folder / "in")
    data.symlink_to(store.folder / "in")
    if mode == "S3Connector":
        channels(root)
        entry = {"channel": "data", "s3_uri": "s3://bucket/in/", "style": "iterable"}
        monkeypatch.setenv(f"{contract.CONNECTOR_VARIABLE}0", json.dumps(entry))
    words = [*options(), "--source", "s3://bucket/in/"]
    reshard.main(words)
    before = shards(bucket / "out")
    (data / "9999.jpg").write_bytes(b"last")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")  # this process keeps the listing of the other region
    reshard.main(words)
    assert before.items() < shards(bucket / "out").items()
    (data / "0003.jpg").write_bytes(content(4))
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    with pytest.raises(
        SystemExit, match=r"up to in/9999.jpg, some have been changed, added or removed since; write to"
    ):
        reshard.main(words)


def test_denied_output_is_refused_before_anything_is_read(store: Store, bucket: Path) -> None:
    store.faults["/bucket/out/progress/0000.json"] = [404, *[403] * 9]
    with pytest.raises(SystemExit, match=r"progress/0000.json cannot be written: access is denied \(403"):
        reshard.main(options())
    assert not bucket.exists()


def test_full_disk_ends_with_what_to_do(bucket: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # no file may be longer: the kernel refuses the rest
    try:
        with pytest.raises(SystemExit, match=r"no room for two shards of 0\.02 MB in /.*; make room there, or set TMP"):
            reshard.main(options())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_shard_that_changed_in_the_store_is_noticed(bucket: Path) -> None:
    reshard.main(options())
    (bucket / "out/index.json").unlink()
    (bucket / "out/shards/0000-000001.tar").write_bytes(b"short")
    with pytest.raises(SystemExit, match=r"shards/0000-000001\.tar has 5 bytes, expected"):
        reshard.main(options())
    assert not (bucket / "out/index.json").exists()


def test_sample_that_does_not_fit_the_format_ends_with_its_name(bucket: Path) -> None:
    root = Path(os.environ[contract.BASE_DIR_VARIABLE])
    (root / contract.DATA_DIR / "data" / "0005.png").write_bytes(b"x")
    with pytest.raises(SystemExit, match=r"sample 6 \(__key__ '0005'\): the sample before has the same __key__"):
        reshard.main(options())


def test_progress_that_another_host_replaces_while_it_is_read_is_one_version_of_it(bucket: Path) -> None:
    target, texts = Target(OUTPUT + "/", "tar", 1, {}), [["x" * number] for number in range(100)]
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(lambda: [*map(target.write, repeat("progress/0001.json"), texts)])
        values = iter(lambda: None if writing.done() else target.read(1) or [""], None)
        lengths = [len(value[0]) for value in values]
        writing.result()
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 1
