"""Objects of another format than the channel's content type: the error says what they are and which key to change."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delivered_channels import feed, job, recordio_of, tar_of
from format_channels import file_of
from sagemaker_channels.epoch.channel import open_channel
from sagemaker_channels.errors import CorruptError
from sagemaker_channels.formats import FORMATS, format_of, parquet, signatures


def image(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (1, 2, 3)).save(file, kind)
    return file.getvalue()


def others() -> dict[str, bytes]:
    """Files as programs write them, by what they are."""
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros(100))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a.txt", "text" * 100)
    lines = b"a line\n" * 1000
    compressed = {
        "compressed by bzip2": bz2.compress(lines),
        "compressed by xz": lzma.compress(lines),
        "compressed by Zstandard": b"\x28\xb5\x2f\xfd\x04\x00" + bytes(range(250)),
    }
    images = {f"a {kind} image": image(kind) for kind in ("PNG", "JPEG", "GIF", "TIFF", "WebP")}
    ours = {"a tar": tar_of([{"cls": b"1"}], 0), "RecordIO": recordio_of([b"one", b"two"]), "a zip": archive.getvalue()}
    return {
        **images,
        **ours,
        **compressed,
        "a NumPy file": array.getvalue(),
        "a Parquet file": file_of(parquet.FORMAT, [{"a": 1}]),
    }


OTHERS = others()
IN_RECORDIO = ("recordio", "image-recordio", "recordio-protobuf", 'augmented; attributes="a"')
OWN = {"tar": "a tar", "zip": "a zip", "parquet": "a Parquet file", **dict.fromkeys(IN_RECORDIO, "RecordIO")}
NAMES = [*({form.name for form in FORMATS} - {"objects", "augmented"}), IN_RECORDIO[-1], "recordio-protobuf; batch=9"]
PAIRS = [(name, what) for name in sorted(NAMES) for what in OTHERS if OWN.get(name.removesuffix("; batch=9")) != what]


@pytest.mark.parametrize(("name", "what"), PAIRS)
def test_bytes_of_another_format_are_named(name: str, what: str) -> None:
    form = format_of(name)
    with pytest.raises(CorruptError, match=rf"object 'a/1', .*these bytes are {what}.*; (delete|set|store) "):
        list(form.split(io.BytesIO(OTHERS[what]), "a/1"))


@pytest.mark.parametrize("name", sorted({*NAMES} - {"lines"}))
def test_bytes_that_begin_as_no_known_format_name_what_to_check(name: str) -> None:
    with pytest.raises(CorruptError, match=r"byte \d+: .*; check the channel's content_type \(or format=\), and that"):
        list(format_of(name).split(io.BytesIO(b"\xfe" * 600), "a/1"))


@pytest.mark.parametrize("form", ["tar", "lines", "tfrecord"])
def test_content_of_a_gzip_stream_is_named(form: str) -> None:
    (card,) = (each for each in FORMATS if each.name == form)
    with pytest.raises(CorruptError, match=r"these bytes are a PNG image"):
        list(card.split(io.BytesIO(gzip.compress(OTHERS["a PNG image"])), "a.gz"))


@pytest.mark.parametrize("mode", ["File", "Pipe"])
def test_images_with_a_content_type_of_tar_name_the_key_to_delete(tmp_path: Path, mode: str) -> None:
    entry = {"TrainingInputMode": mode, "ContentType": "application/x-tar"}
    environment = job(tmp_path, train=entry)
    folder = environment.data_dir / "train"
    if mode == "File":
        (folder / "cat").mkdir(parents=True)
        (folder / "cat/1.png").write_bytes(OTHERS["a PNG image"])
        place = "object 'cat/1.png', byte 0"
    else:
        feed(folder.with_name("train_0"), [OTHERS["a PNG image"] * 100])
        place = "byte 0"
    remedy = r"delete the channel's content_type \(or format=\), and each object is one sample"
    with pytest.raises(CorruptError, match=rf"channel 'train': {place}: these bytes are a PNG image.*; {remedy}"):
        list(open_channel("train", environment=environment))


def test_text_has_no_signature() -> None:
    for text in (
        b"",
        b"MM,II\n",
        b"GIF images\n",
        b"PAR1,x\n",
        b"PK,id\n",
        b"%PDF-\n",
        b'{"a": 1}\n',
        "ÿØÿ\n".encode(),
    ):
        assert signatures.found_in(text) is None
