"""Further ways to read samples, which a job can hardly use or which need data of their own format, measured as by `launch measure`.

    python tests/benchmarks/further_ways.py --ways rclone,iopath --format tar

It is `entrypoints/measure.py` with more ways, and reads the job that the environment describes: `s3`, a channel of the S3
Connector, and `fast_file`, a folder. `make measure` runs it. FUSE needs /dev/fuse, which containers of SageMaker do not have;
Energon reads shards that it indexes, and MDS and litdata read shards that their own writers made.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import measure
from launcher.local.channels.mounted import View, mounted_by, rclone_command, rclone_environ
from launcher.s3.uri import S3Location
from sagemaker_channels.tools.ways import (
    CONNECTOR,
    FOLDERS,
    WAYS,
    WEBDATASET,
    Need,
    Opener,
    Source,
    Way,
    plain_files,
    web_dataset,
)

BOTO3 = Need("boto3", "pip install boto3")
S3FS = Need("s3fs", "pip install s3fs")
_log = logging.getLogger(__name__)


def _files(source: Source, opened: Opener) -> Any:
    from sagemaker_channels.tools.opened_files import Files

    return Files(source.urls(), opened, source.format)


def _iopath(source: Source) -> Any:
    """TorchData's IoPathFileOpener was this, before our own formats."""
    from iopath.common.file_io import PathManager
    from iopath.common.s3 import S3PathHandler

    manager = PathManager()
    manager.register_handler(S3PathHandler(profile=None))  # its default is a profile named saml
    return _files(source, partial(manager.open, mode="rb"))


def _by_fsspec(url: str) -> Any:
    """TorchData's FSSpecFileOpener was this."""
    import fsspec

    return fsspec.open(url, "rb").open()


def _s3fs() -> Opener:
    import s3fs

    opener: Opener = s3fs.S3FileSystem().open
    return opener


def _over_mount(program: str, source: Source) -> Any:
    """Mount the prefix until `source.exits` is closed, and read its files by `open()`: what is nearest to FastFile elsewhere."""
    scratch = Path(source.exits.enter_context(tempfile.TemporaryDirectory(prefix=f"{program}-"))).resolve()
    (directory := scratch / "mount").mkdir()
    bucket, _, prefix = str(source.channel.s3_uri).removeprefix("s3://").partition("/")
    key = f"{prefix}/" if prefix and not prefix.endswith("/") else prefix
    store = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    view = View(S3Location(bucket, key), directory, scratch, store)
    region, endpoint = store.get("AWS_REGION", "us-east-1"), store.get("AWS_ENDPOINT_URL", "")
    commands = {
        "rclone": rclone_command(view),
        "mount-s3": [
            *("mount-s3", "--foreground", "--read-only", "--region", region),
            *(("--endpoint-url", endpoint, "--force-path-style") if endpoint else ()),
            *(("--prefix", key) if key else ()),
            *(bucket, str(directory)),
        ],
        "s3fs": [
            *("s3fs", f"{bucket}:/{key.rstrip('/')}" if key else bucket, str(directory), "-f", "-o"),
            # compat_dir shows folders that exist only as parts of keys: the default until 1.91, an option since.
            f"ro,endpoint={region},tmpdir={scratch},compat_dir"
            + f",url={endpoint},use_path_request_style" * bool(endpoint),
        ],
        "goofys": [
            *("goofys", "-f", "-o", "ro", "--region", region, *(("--endpoint", endpoint) if endpoint else ())),
            *(f"{bucket}:{key}" if key else bucket, str(directory)),
        ],
    }
    environ = rclone_environ(view, os.environ) if program == "rclone" else {**os.environ, **store}
    source.exits.enter_context(mounted_by(commands[program], environ, directory, scratch / f"{program}.log"))
    return plain_files(replace(source, channel=replace(source.channel, path=directory)))


def _energon(source: Source) -> Any:
    """Index the shards, which Energon does by reading them once, and read them as one epoch without shuffling."""
    from megatron import energon
    from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

    class Encoder(energon.TaskEncoder):  # type: ignore[misc]
        cookers = (energon.Cooker(energon.stateless(lambda sample: sample)),)
        decoder = None

        def batch(self, samples: Sequence[Any]) -> list[Any]:
            return list(samples)

    folder = Path(source.exits.enter_context(tempfile.TemporaryDirectory(prefix="energon-")))
    shards = {f"{number:06d}.tar": path for number, path in enumerate(source.paths())}
    for name, path in shards.items():
        (folder / name).symlink_to(path)
    workers = max(1, source.workers)
    WebdatasetPreparator.prepare_dataset(folder, list(shards), split_parts_ratio=[("val", 1.0)], workers=workers)
    (folder / ".nv-meta/dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=source.workers)
    options = {"batch_size": source.batch_size, "task_encoder": Encoder()}
    return energon.get_loader(energon.get_val_dataset(folder, worker_config=config, **options))


def _mds(source: Source) -> Any:
    import streaming

    local = source.exits.enter_context(tempfile.TemporaryDirectory(prefix="mds-"))
    size = source.batch_size
    dataset = streaming.StreamingDataset(remote=source.channel.s3_uri, local=local, batch_size=size, shuffle=False)
    return streaming.StreamingDataLoader(dataset, batch_size=size, num_workers=source.workers, collate_fn=list)


def _litdata(source: Source) -> Any:
    import litdata

    _allow_http()
    cache = source.exits.enter_context(tempfile.TemporaryDirectory(prefix="litdata-", ignore_cleanup_errors=True))
    dataset = litdata.StreamingDataset(source.channel.s3_uri, cache_dir=cache, shuffle=False)
    return litdata.StreamingDataLoader(
        dataset,
        batch_size=source.batch_size,
        num_workers=source.workers,
        collate_fn=_fields,
        worker_init_fn=_allow_http,
    )


def _allow_http(worker: int = 0) -> None:
    """Let litdata's client, obstore, use a store without TLS, for which litdata has no setting."""
    if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") and find_spec("obstore"):
        module: Any = import_module("obstore.store")
        store = module.S3Store
        module.S3Store = lambda *args, client_options, **options: store(
            *args, client_options={**client_options, "allow_http": True}, **options
        )


def _fields(samples: list[dict[str, Any]]) -> list[dict[str, bytes]]:
    """Return the samples as bytes that pickle: litdata yields views of its chunks."""
    return [{name: bytes(value) for name, value in sample.items() if name != "__key__"} for sample in samples]


_s3 = partial(Way, arrivals=("s3",))
FUSE = tuple(
    _s3(
        name=name,
        title=f"{name} mount",
        row=15,
        needs=(Need(program, install, is_program=True), Need("fusermount3", "apt-get install fuse3", is_program=True)),
        open=partial(_over_mount, program),
    )
    for name, program, install in (
        ("rclone", "rclone", "apt-get install rclone"),
        ("s3fs-fuse", "s3fs", "apt-get install s3fs"),
        ("mount-s3", "mount-s3", "see https://github.com/awslabs/mountpoint-s3"),
        ("goofys", "goofys", "see https://github.com/kahing/goofys"),
    )
)
FURTHER = {
    way.name: way
    for way in (
        _s3(
            name="webdataset-s3fs",
            title="WebDataset over s3fs",
            row=14,
            needs=(CONNECTOR, WEBDATASET, S3FS),
            formats=("tar",),
            start_method="spawn",  # s3fs's event loop does not survive a fork
            open=lambda source: web_dataset(source.urls(), _s3fs),
        ),
        _s3(
            name="iopath",
            title="iopath file opener",
            row=16,
            needs=(CONNECTOR, Need("iopath", "pip install iopath"), BOTO3),
            open=_iopath,
        ),
        _s3(
            name="fsspec",
            title="fsspec file opener",
            row=14,
            needs=(CONNECTOR, S3FS),
            start_method="spawn",  # as above
            open=lambda source: _files(source, _by_fsspec),
        ),
        *FUSE,
        Way(
            name="energon",
            title="Energon over a folder of shards",
            row=12,
            arrivals=FOLDERS,
            needs=(Need("megatron", "pip install megatron-energon"),),
            formats=("tar",),
            open=_energon,
        ),
        _s3(
            name="mds",
            title="MosaicML Streaming (MDS)",
            row=0,  # none of its own
            needs=(
                Need("streaming", "pip install mosaicml-streaming"),
                Need("torchvision", "pip install torchvision"),
            ),
            formats=("mds",),
            open=_mds,
        ),
        _s3(
            name="litdata",
            title="litdata",
            row=0,  # none of its own
            needs=(Need("litdata", "pip install litdata"),),
            formats=("litdata",),
            open=_litdata,
        ),
    )
}


if __name__ == "__main__":
    WAYS.update(FURTHER)  # of this process
    measure.main(script=__file__)
