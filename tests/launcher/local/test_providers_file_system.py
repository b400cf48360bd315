"""EFS and FSx for Lustre: which directory a channel means, and how it is shown where nothing can be mounted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.errors import RefusedError
from launcher.local.channels.delivery import Delivery, provide
from launcher.local.workspace import BindMount

FILE_SYSTEM = "fs-0123456789abcdef0"


def delivery_of(root: Path, kind: str, path: str, access: str = "ro", **changes: Any) -> Delivery:
    source = {
        "FileSystemId": FILE_SYSTEM,
        "FileSystemType": kind,
        "DirectoryPath": path,
        "FileSystemAccessMode": access,
    }
    store: Any = None  # no byte comes from S3
    delivery = Delivery(
        channel={"ChannelName": "lists", "InputMode": "File", "DataSource": {"FileSystemDataSource": source}},
        host="algo-1",
        hosts=("algo-1",),
        data_dir=root / "ml",
        scratch=root / "scratch",
        store=store,
        file_systems={FILE_SYSTEM: root / "fs"},
    )
    return Delivery(**{**vars(delivery), **changes})


@pytest.mark.parametrize(
    ("kind", "path", "there", "found", "said"),
    [
        ("EFS", "/lists/train", "fs/lists/train", "fs/lists/train", False),
        ("EFS", "/", "fs", "fs", False),
        ("FSxLustre", "/abcdefgh/lists", "fs/lists", "fs/lists", True),
        ("FSxLustre", "/abcdefgh", "fs", "fs", True),
        ("FSxLustre", "/abcdefgh/lists", "fs/abcdefgh/lists", "fs/abcdefgh/lists", False),
    ],
)
def test_directory_path_is_found(tmp_path: Path, kind: str, path: str, there: str, found: str, said: bool) -> None:
    (tmp_path / there).mkdir(parents=True)
    warnings: list[str] = []
    with provide(delivery_of(tmp_path, kind, path, on_warning=warnings.append, namespaces=True)) as binds:
        assert binds == [BindMount(tmp_path / found, tmp_path / "ml/lists", read_only=True)]
        assert list((tmp_path / "ml/lists").iterdir()) == []
    assert list((tmp_path / "ml").iterdir()) == []
    assert [("mount name" in warning and str(tmp_path / found) in warning) for warning in warnings] == [True] * said


@pytest.mark.parametrize(
    ("kind", "path", "message"),
    [
        (
            "EFS",
            "/gone",
            r"'/gone' is not a directory there \(looked for .*/fs/gone\); .*--mount fs-0123456789abcdef0=PATH",
        ),
        ("EFS", "/file", "'/file' is not a directory"),
        ("EFS", "/../outside", r"leaves the file system; write it without '\.\.'"),
        ("EFS", "/there/../../outside", "leaves the file system"),
        ("EFS", "/abcdefgh/there", "is not a directory"),
        ("FSxLustre", "/abcdefgh/gone", r"looked for .*/fs/abcdefgh/gone and .*/fs/gone\)"),
    ],
)
def test_missing_directory_is_refused(tmp_path: Path, kind: str, path: str, message: str) -> None:
    (tmp_path / "fs/there").mkdir(parents=True)
    (tmp_path / "fs/file").touch()
    (tmp_path / "outside").mkdir()
    with pytest.raises(RefusedError, match=message), provide(delivery_of(tmp_path, kind, path)):
        pytest.fail("entered")


def test_file_system_without_a_directory_is_refused(tmp_path: Path) -> None:
    delivery = delivery_of(tmp_path, "EFS", "/", file_systems={})
    with (
        pytest.raises(RefusedError, match=r"this file system has no directory on this machine; .*--mount"),
        provide(delivery),
    ):
        pytest.fail("entered")


def test_writable_file_system_causes_a_warning(tmp_path: Path) -> None:
    (tmp_path / "fs").mkdir()
    warnings: list[str] = []
    with provide(delivery_of(tmp_path, "EFS", "/", "rw", on_warning=warnings.append, namespaces=True)) as binds:
        assert [bind.read_only for bind in binds] == [False]
    assert f"can write to {tmp_path / 'fs'}" in warnings[0]


@pytest.mark.parametrize("taken", ["file", "folder"])
def test_existing_channel_directory_is_refused_and_kept(tmp_path: Path, taken: str) -> None:
    (tmp_path / "fs").mkdir()
    place = tmp_path / "ml/lists"
    if taken == "file":
        place.parent.mkdir()
        place.touch()
    else:
        (place / "something").mkdir(parents=True)
    with pytest.raises(RefusedError, match=r"cannot make .*/ml/lists"), provide(delivery_of(tmp_path, "EFS", "/")):
        pytest.fail("entered")
    assert place.exists()
