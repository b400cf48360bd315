"""Local runs that are killed at random moments and restarted with other numbers: `python tests/killed_jobs.py FIRST LAST [MODE]`.

A trial's seed (FIRST to LAST - 1) chooses everything but the speed of the machine: the mode of the channel (five channels with the
MODE `mixed`), ranks, threads or workers, order, the place of the checkpoints, and what is killed when: the launcher, a random
process of the job (PID 1, a rank, a worker, the checkpoints' writer, the mount's program), or all by SIGTERM or Ctrl-C.
At the end the journal, which each checkpoint commits with the position, must have every sample once per epoch. After each life, no
process, FIFO or mount may be left.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from local_jobs import EFS, FSX, assert_nothing_is_left, command, processes_of, write_job
from patience import PATIENCE

SCRIPT = Path(__file__).parent / "data/elastic_script.py"
TYPE = "content_type: text/plain"
CHANNELS = {
    "file": f"{{s3_uri: s3://bucket/data/, input_mode: File, {TYPE}}}",
    "fast": f"{{s3_uri: s3://bucket/data/, input_mode: FastFile, {TYPE}}}",
    "pipe": f"{{s3_uri: s3://bucket/data/, input_mode: Pipe, {TYPE}}}",
    "connector": f"{{s3_uri: s3://bucket/data/, source: S3Connector, {TYPE}}}",
    "efs": f"{{source: EFS, file_system_id: {EFS}, directory_path: /data, {TYPE}}}",
    "fsx": f"{{source: FSxLustre, file_system_id: {FSX}, directory_path: /abcdefgh/data, {TYPE}}}",
}
MIXED = sorted(CHANNELS.keys() - {"pipe"})  # A Pipe in a mixture allows one reader only.
STATE = f"{{source: EFS, file_system_id: {EFS}, directory_path: /state, file_system_access_mode: rw}}"
VPC = "vpc_config: {subnets: [subnet-0123456789abcdef0], security_group_ids: [sg-0123456789abcdef0]}"
OBJECTS, LINES, EPOCHS = 6, 9, 2


def make_data(here: Path) -> None:
    """Write the channels' objects, and an empty folder for what the job keeps."""
    for folder in ("s3/bucket/data", f"efs/{EFS}/data", f"fsx/{FSX}/abcdefgh/data"):
        (here / "data" / folder).mkdir(parents=True)
        for number in range(OBJECTS):
            lines = "".join(f"{number}-{line}\n" for line in range(LINES))
            (here / "data" / folder / f"{number}.txt").write_text(lines)
    (here / f"data/efs/{EFS}/state").mkdir()
    (here / "src").mkdir()


class Trial:
    """One job in a folder of its own, through all its lives."""

    def __init__(self, here: Path, seed: int, channels: list[str] | None = None) -> None:
        self.chance = chance = random.Random(seed)
        self.here, self.story = here, [f"seed {seed}"]
        self.channels = channels or [chance.choice(sorted(CHANNELS))]
        self.in_s3 = chance.random() < 0.3
        self.settings: dict[str, Any] = {
            "channels": self.channels,
            "epochs": EPOCHS,
            "every": chance.choice([1, 2, 5]),
            "shuffle": chance.random() < 0.5,
            "place": "s3://bucket/checkpoints" if self.in_s3 else "/opt/ml/input/data/state/checkpoints",
            "journal": "/opt/ml/input/data/state/journal.json",
        }
        make_data(here)

    def run(self, lives: int) -> None:
        """Kill and restart the job so many times, then let it end. Raises AssertionError with the story if something is wrong."""
        try:
            for life in range(lives + 1):
                if not life or self.chance.random() < 0.5:
                    kind = self.chance.choice(["threads", "workers"])
                    self.settings |= {"ranks": self.chance.choice([1, 2, 3]), "kind": kind}
                    self.settings["size"] = self.chance.choice([1, 2, 4] if kind == "threads" else [0, 2])
                self._live(life, is_last=life == lives)
                if self._journal().exists():
                    break
            found = Counter(tuple(each) for each in json.loads(self._journal().read_text()))
            lines = [f"{number}-{line}" for number in range(OBJECTS) for line in range(LINES)]
            expected = Counter((e, f"{name} {line}") for e in range(EPOCHS) for name in self.channels for line in lines)
            more, less = found - expected, expected - found
            assert found == expected, f"{len(more)} too often: {[*more][:5]}; {len(less)} missing: {[*less][:5]}"
        except AssertionError as error:
            raise AssertionError("\n".join([*self.story, str(error)])) from error

    def _journal(self) -> Path:
        return self.here / f"data/efs/{EFS}/state/journal.json"

    def _live(self, life: int, *, is_last: bool) -> None:
        how = None if is_last else self.chance.choice(["launcher", "process", "process", "SIGTERM", "SIGINT"])
        steps = self.chance.choice([0, 1, 2, 5, 10, 20])
        moment = steps, self.chance.uniform(0, 0.3 if steps else 3)
        self.story.append(f"life {life}: {self.settings}, {how} at {moment}")
        channels = ", ".join(f"{name}: {CHANNELS[name]}" for name in self.channels)
        environment = f"environment: {{SETTINGS: {json.dumps(json.dumps(self.settings))}}}"
        write_job(self.here, SCRIPT.read_text(), f"{environment}\n{VPC}\nchannels: {{{channels}, state: {STATE}}}")
        log = self.here / f"life-{life}.log"
        with log.open("wb") as out:
            launched = subprocess.Popen(
                command("--name", f"life-{life}"), cwd=self.here, stdout=out, stderr=subprocess.STDOUT
            )
        try:
            deadline = time.monotonic() + PATIENCE
            while how and launched.poll() is None and log.read_text().count("| step") < moment[0]:
                assert time.monotonic() < deadline, f"no step; see {log}"
                time.sleep(0.01)
            if how and launched.poll() is None:
                time.sleep(moment[1])
                self._kill(launched, how)
            else:
                how = None
            code = launched.wait(PATIENCE)
        finally:
            if launched.poll() is None:
                launched.kill()
                launched.wait()
        self.story.append(f"  ended with {code}")
        # At its very start, and when all is stored, Python itself ends by the signal.
        ended = {"SIGTERM": (0, 5, -signal.SIGTERM), "SIGINT": (0, 130, -signal.SIGINT), None: (0,)}.get(how, (code,))
        assert code in ended or not steps, log.read_text()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._is_left():
            time.sleep(0.05)
        if how == "launcher":  # It cannot remove the FIFOs of its run, which no process has open.
            shutil.rmtree(self.here / f".launch/life-{life}/algo-1", ignore_errors=True)
        assert_nothing_is_left(self.here)
        kept = self.here / f".launch/life-{life}/s3/bucket/checkpoints"
        if self.in_s3 and kept.exists():
            shutil.copytree(kept, self.here / "data/s3/bucket/checkpoints", dirs_exist_ok=True)

    def _is_left(self) -> bool:
        return bool(processes_of(self.here)) or str(self.here) in Path("/proc/self/mounts").read_text()

    def _kill(self, launched: subprocess.Popen[bytes], how: str) -> None:
        pid = launched.pid
        if how == "process":
            pids = [each for each in job_processes(self.here) if each != launched.pid]
            if not pids:
                return
            pid = self.chance.choice(pids)
        with suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:90]
            self.story.append(f"  {how}: {words!r}")
            os.kill(pid, signal.SIGKILL if how in ("launcher", "process") else signal.Signals[how])


def job_processes(here: Path) -> list[int]:
    """Return the processes of a local run, by number."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if f"{here}/.launch".encode() in text:
                found.append(int(process.name))
    return sorted(found)


def main(first: int, last: int, modes: str = "") -> None:
    # A shell's `&` and nohup leave it ignored, and the trials' processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = 0
    for seed in range(first, last):
        here = Path(tempfile.mkdtemp(prefix=f"kill-{seed}-"))
        channels = MIXED if modes == "mixed" else [modes] if modes else None
        trial = Trial(here, seed, channels)
        try:
            trial.run(random.Random(seed).choice([1, 2, 3]))
        except Exception as error:  # noqa: BLE001 - the next trial follows
            failed += 1
            print(f"FAILED in {here}: {error}", flush=True)
            continue
        print("\n".join(trial.story) if "-v" in os.environ.get("KILLS", "") else trial.story[0], "passed", flush=True)
        shutil.rmtree(here)
    print(f"{last - first} trials, {failed} failed", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
