"""Every way to read samples, measured here: `python tests/benchmarks/ways.py docs/benchmarks.md [ROUNDS]` (make measure).

Makes toy data, runs `launch measure` on it as each way needs it, and further_ways.py on what a job can hardly use. Writes
ways.json beside this file and the table into the page; 0 rounds only write the table again. A way whose packages or programs are
missing has the reason in its row. The shards of MDS and litdata hold the samples of the toy data's shards, and their digests must
be equal.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import further_ways
from far_store import far_store
from rounds import interleaved

from launcher import bundled
from launcher.bundled import SCRIPTS
from sagemaker_channels import contract
from sagemaker_channels.formats import format_of
from sagemaker_channels.tools.results import FILE as RESULTS
from sagemaker_channels.tools.results import summary
from sagemaker_channels.tools.ways import REMOVED, plain

FILE = Path(__file__).with_name("ways.json")
BEGIN, END = "<!-- ways: made by `make measure` -->\n", "<!-- end of the ways -->"
SPEC = """\
image: 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cpu-amzn2023-sagemaker
base_name: measure
role_arn: arn:aws:iam::123456789012:role/trainer
code: {entry_point: entrypoints/measure.py}
resource_config: {instance_type: ml.m5.xlarge, instance_count: 1, volume_size_in_gb: 10}
stopping_condition: {max_runtime_in_seconds: 3600}
output_data_config: {s3_output_path: s3://my-bucket/output/}
vpc_config: {subnets: [subnet-0123456789abcdef0], security_group_ids: [sg-0123456789abcdef0]}
channels:
  train_efs: {source: EFS, file_system_id: fs-0123456789abcdef0, directory_path: /toy, file_system_access_mode: ro}
  train_fsx: {source: FSxLustre, file_system_id: fs-0fedcba9876543210, directory_path: /fsx/toy, file_system_access_mode: ro}
"""
TOY = ("launch", "toy-data", "data/s3/my-bucket/toy", "--shards", "8", "--samples", "250", "--size", "200")
# The commands, and the data each of them reads.
COMMANDS: Mapping[str, str] = {
    "launch measure s3://my-bucket/toy/ --format tar": "8 tar shards of 40 MB, 2,000 samples",
    "launch measure job.yaml train_efs train_fsx --format tar --ways efs,fsx": "the same shards on file systems",
    "launch measure s3://my-bucket/images/": "2,000 objects of 120 KB",
    "launch measure s3://my-bucket/toy/ --format tar --ways fast-file,connector-tar --step 20ms": "the shards, steps of 20 ms",
    "further_ways.py --format tar": "8 tar shards of 40 MB, 2,000 samples",
    "further_ways.py --format objects": "2,000 objects of 120 KB",
    "further_ways.py --format mds": "the same samples in its own shards",
    "further_ways.py --format litdata": "the same samples in its own shards",
}
PREFIXES = {"tar": "toy", "objects": "images"}  # of the data of a format; the others have their own names
MIXED = "image-classification"
SAVED_BYTES = 400_000_000
# Systems that are no way to read samples: what they are, how to see them work, and the figure if it is not measured here.
OTHERS: Mapping[int, tuple[str, str, str]] = {
    6: ("mixed sources in one job", f"`launch channel_specs/{MIXED}.yaml --local --data DIR`", ""),
    9: ("S3 Connector, checkpoints", "`Checkpoints`", ""),
    11: ("S3-compatible stores", "`AWS_ENDPOINT_URL`", "every figure by `s3` here: the store is such a server"),
    17: (
        "; ".join(REMOVED),
        "",
        "removed by their authors: " + ", ".join(f"{a} is now `{b}`" for a, b in REMOVED.items()),
    ),
    18: ("an empty training step", "`launch measure`", "every row without another step"),
}


def run(words: Sequence[str], folder: Path) -> str:
    """Run a command of ours, and return what it prints."""
    command = [sys.executable, "-m", "launcher.cli", *words[1:]]
    if (ended := subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)).stdout == "":
        ended.check_returncode()  # a measurement of ways that are not installed fails, and its results say so
    return ended.stdout


def make_data(folder: Path) -> float:
    """Make the data of all commands in a folder, and return the seconds that the toy data took."""
    (folder / "job.yaml").write_text(SPEC)
    shards = folder / "data/s3/my-bucket/toy"
    shards.parent.mkdir(parents=True)
    begin = time.perf_counter()
    run(TOY, folder)
    seconds = time.perf_counter() - begin
    for copy in ("efs/fs-0123456789abcdef0/toy", "fsx/fs-0fedcba9876543210/toy"):
        shutil.copytree(shards, folder / "data" / copy)
    images = shards.with_name("images")
    for shard in shards.iterdir():
        with tarfile.open(shard) as tar:
            tar.extractall(images, [member for member in tar if member.name.endswith(".image")], filter="data")
    (folder / "scratch").mkdir()  # where litdata deletes a folder `data`
    for way in (further_ways.FURTHER["mds"], further_ways.FURTHER["litdata"]):
        command = [sys.executable, __file__, way.name, str(shards), str(shards.with_name(way.name))]
        if way.missing() is None:
            subprocess.run(command, cwd=folder, env={**os.environ, "TMPDIR": str(folder / "scratch")}, check=True)
        else:
            shards.with_name(way.name).mkdir()
    return seconds


def write_library_shards(format: str, shards: Path, folder: Path) -> None:
    """Write the samples of tar shards by the writer of another library."""
    samples = []
    for shard in sorted(shards.iterdir()):
        with shard.open("rb") as stream:
            samples += [plain(sample) for sample in format_of("tar").split(stream, shard.name)]
    if format == "mds":
        import streaming

        columns = dict.fromkeys(samples[0], "bytes")
        with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=40_000_000) as writer:
            for sample in samples:
                writer.write(sample)
    else:
        import litdata

        litdata.optimize(dict, samples, str(folder), chunk_bytes=40_000_000, num_workers=1)


def further(folder: Path, format: str, rounds: str) -> dict[str, Any]:
    """Measure the further ways that read a format, over the store and over its folder, and return their results."""
    root, prefix = folder / f"further-{format}", PREFIXES.get(format, format)
    for name in (contract.CONFIG_DIR, contract.DATA_DIR):
        (root / name).mkdir(parents=True)
    channels = {"fast_file": {"TrainingInputMode": "FastFile"}}
    (root / contract.CONFIG_DIR / contract.INPUT_DATA_CONFIG_FILE).write_text(json.dumps(channels))
    (root / contract.DATA_DIR / "fast_file").symlink_to(folder / "data/s3/my-bucket" / prefix)
    connector = {"channel": "s3", "s3_uri": f"s3://my-bucket/{prefix}/", "style": "iterable"}
    ways = [name for name, way in further_ways.FURTHER.items() if way.why_not(("s3", "fast_file"), format) is None]
    with far_store(folder / "data", 0.0):
        environ = {
            contract.BASE_DIR_VARIABLE: str(root),
            f"{contract.CONNECTOR_VARIABLE}0": json.dumps(connector),
            "PYTHONPATH": str(SCRIPTS),
        }
        command = [sys.executable, further_ways.__file__, "--ways", ",".join(ways), "--format", format]
        subprocess.run([*command, "--rounds", rounds], cwd=folder / "scratch", env={**os.environ, **environ})
    results: dict[str, Any] = json.loads((root / contract.OUTPUT_DATA_DIR / RESULTS).read_text())
    return results


def mixed_sources(folder: Path) -> str:
    """Train the demo's model from channels of all kinds, and return how fast each of them was read."""
    subprocess.run([sys.executable, "-m", "launcher.demo", "demo"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    found = json.loads(run(["launch", str(bundled.spec_path(MIXED)), "--local", "--data", "demo", "--json"], folder))
    log = Path(found["Folder"], "algo-1.log").read_text()
    rows = re.findall(r"^ +(\w+) +(\w+) +[\d,]+ +[\d,]+ +\d+ +([\d,]+)$", log, re.MULTILINE)
    return "images/s: " + ", ".join(f"{name} by {mode} {speed}" for name, mode, speed in rows)


def checkpoints(folder: Path, rounds: int) -> str:
    """Save and load a checkpoint in S3, and return how fast."""
    import torch  # only measuring needs it

    from sagemaker_channels import Checkpoints

    (folder / "s3/bucket").mkdir(parents=True)
    model = torch.nn.Linear(SAVED_BYTES // 4, 1, bias=False)
    with far_store(folder, 0.0), Checkpoints("s3://bucket", keep=1) as checkpoints:

        def save() -> None:
            checkpoints.save(1, model=model)
            checkpoints.wait()

        def load() -> None:
            checkpoints.load(model=model)

        found = interleaved({"saved": save, "loaded": load}, rounds)
    return ", ".join(f"{SAVED_BYTES / 1e6 / statistics.median(each):,.0f} MB/s {name}" for name, each in found.items())


def measured(folder: Path, rounds: str) -> dict[str, Any]:
    """Run all commands, with as many rounds, and return their results and how fast the toy data was made."""
    seconds = make_data(folder)
    size = sum(file.stat().st_size for file in (folder / "data/s3/my-bucket/toy").iterdir())
    runs, digests = [], set[str]()
    for command in COMMANDS:
        program, *words = shlex.split(command)
        if program == "launch":
            words = [program, *words, "--rounds", rounds, "--local", "--data", "data", "--json"]
            results = json.loads(run(words, folder))
        else:
            results = further(folder, words[-1], rounds)
        runs.append({"command": command, **{name: results[name] for name in results if name != "summary"}})
        if "images" not in command and "objects" not in command:
            digests |= {way["digest"] for way in results["ways"] if "digest" in way and not way["error"]}
    assert len(digests) == 1, "the formats of the same samples have other samples"
    toy = {"command": shlex.join(TOY), "megabytes_per_second": size / seconds / 1e6}
    return {"toy_data": toy, "runs": runs, "6": mixed_sources(folder), "9": checkpoints(folder, int(rounds))}


def lines(results: Mapping[str, Any]) -> list[str]:
    """Return the page's text: the machine, and a row for each system."""
    machine = results["runs"][0]["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    loads = [run["machine"]["load_at_start"] for run in results["runs"]]
    where = f"{machine['cores']} cores, {machine['memory_gb']} GB, Python {machine['python']}"
    text = [
        f"Measured on {machine['date']} with {where}, {versions}; load {min(loads):.0f} to {max(loads):.0f}.",
        f"Rounds: {results['runs'][0]['rounds']}; a figure is their median, with the slowest and the fastest in brackets.",
        "",
        "| # | system | command | samples/s | MB/s | first batch | s/100 steps (variance) | p99 wait | CPU | memory |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows: list[tuple[int, str]] = []
    for each in results["runs"]:
        for row in summary(each):
            command = f"`{each['command'].partition(' --ways')[0]} --ways {row['name']}`"
            what = f"{row['title']}: {COMMANDS[each['command']]}"
            if each["step"]:
                share = f"{row['data_share']:.0%} of a step is data" if "data_share" in row else row["error"]
                rows.append(
                    (19, f"| 19 | {what} | {command[:-1]} --step {each['step']}` | {share} |  |  |  |  |  |  |")
                )
            elif "rounds" in row:
                rows.append((row["row"], f"| {row['row'] or ''} | {what} | {command} | {_figures(row)} |"))
            else:
                missing = f"| {row['row'] or ''} | {what} | {command} | {row['error']} |  |  |  |  |  |  |"
                rows.append((row["row"], missing))
    for n, (what, how, figure) in OTHERS.items():
        rows.append((n, f"| {n} | {what} | {how} | {results.get(str(n), figure)} |  |  |  |  |  |  |"))
    toy = results["toy_data"]
    rows.append((20, f"| 20 | toy data | `{toy['command']}` | | {toy['megabytes_per_second']:,.0f} |  |  |  |  |  |"))
    return [*text, *(row for _, row in sorted(rows, key=lambda row: row[0]))]


def _figures(row: Mapping[str, Any]) -> str:
    def shown(name: str, form: Callable[[float], str]) -> str:
        return form(row[name]) if name in row else ""

    return " | ".join(
        (
            f"{row['samples_per_second']:,.0f}"
            + (f" ({row['slowest']:,.0f} to {row['fastest']:,.0f})" if row["rounds"] > 1 else ""),
            shown("megabytes_per_second", "{:,.0f}".format),
            shown("first_batch", "{:.2f} s".format),
            f"{shown('mean_100', '{:.2f}'.format)} ({shown('variance_100', '{:.2g}'.format)})",
            shown("p99_ms", "{:.0f} ms".format),
            shown("cpu_seconds", "{:.1f} s".format),
            shown("memory_mb", "{:,.0f} MB".format),
        )
    )


def write_ways(page: Path, results: Mapping[str, Any]) -> None:
    """Write the table between the page's marks."""
    before, mark, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    if not mark or END not in rest:
        raise SystemExit(f"{page} has no {BEGIN.strip()} with {END} behind it")
    text = "\n".join(lines(results))
    page.write_text(f"{before}{BEGIN}{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    """Measure, unless only the table is asked for, and write the table."""
    if sys.argv[1] in ("mds", "litdata"):
        write_library_shards(sys.argv[1], *map(Path, sys.argv[2:]))
        return
    page, rounds = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "3"
    if rounds != "0":
        with tempfile.TemporaryDirectory(prefix="ways-") as folder:
            FILE.write_text(json.dumps(measured(Path(folder), rounds), indent=1) + "\n")
    write_ways(page, json.loads(FILE.read_text()))


if __name__ == "__main__":
    main()
