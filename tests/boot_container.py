"""A container's root with the code channel, and the start of boot.py in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.code.archive import read_code
from patience import PATIENCE
from sagemaker_channels import contract

SHOW = "import json, os, sys; print(json.dumps([sys.argv, dict(os.environ), os.getcwd()]))\n"


class Container:
    """A root as SageMaker makes it, with the code channel as the launcher uploads it."""

    flags: Sequence[str] = ()  # of Python

    def __init__(self, root: Path, code: Mapping[str, str], **files: Any) -> None:
        self.root = root
        source = root.parent / f"{root.name}-source"
        for name, content in code.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(content, encoding="utf-8")
        archive = read_code(source if code else None)
        channel = root / contract.DATA_DIR / contract.CODE_CHANNEL
        channel.mkdir(parents=True)
        (root / contract.CONFIG_DIR).mkdir(parents=True)
        (channel / contract.BOOT_FILE).write_bytes(archive.boot())
        with (channel / contract.CODE_ARCHIVE).open("wb") as file:
            archive.write_tar_gz(file)
        for name, content in files.items():
            (root / contract.CONFIG_DIR / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """The container's first program; its root is found by the place of boot.py."""
        program = self.root / contract.DATA_DIR / contract.CODE_CHANNEL / contract.BOOT_FILE
        # An image has a `python`, which a machine may have in its environment only.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        kept = {"PATH": path, "HOME": os.environ.get("HOME", "/")}
        return subprocess.Popen(
            [sys.executable, *self.flags, str(program), *arguments],
            env=kept | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **environ)
        output, errors = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    @property
    def archive(self) -> Path:
        return self.root / contract.DATA_DIR / contract.CODE_CHANNEL / contract.CODE_ARCHIVE

    @property
    def failure(self) -> str | None:
        path = self.root / contract.FAILURE_FILE
        return path.read_text(encoding="utf-8") if path.exists() else None


def shown(finished: subprocess.CompletedProcess[str]) -> tuple[list[str], dict[str, str], str]:
    """What the script SHOW saw: its arguments, variables and directory."""
    assert finished.returncode == 0, finished.stderr
    arguments, environ, directory = json.loads(finished.stdout.splitlines()[-1])
    return arguments, environ, directory
