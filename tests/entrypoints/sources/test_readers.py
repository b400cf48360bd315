"""The table of readers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from object_channels import on_disk
from sagemaker_channels.errors import ChannelError
from sagemaker_channels.sources.readers import READERS, reader_of

REPOSITORY = Path(__file__).parents[3]


def test_unknown_mode_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match=r"input mode 'FasFile' is not one of File, FastFile"):
        reader_of(on_disk(tmp_path, "FasFile"))
    assert {"File", "FastFile", "Pipe"} <= set(READERS)


def test_importing_the_readers_needs_only_the_standard_library() -> None:
    code = (
        "import sys, read_channels, sagemaker_channels.samples.lst\n"
        "third = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "assert third <= {'sagemaker_channels', 'read_channels', '__main__'}, third\n"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True, cwd=REPOSITORY / "entrypoints")
