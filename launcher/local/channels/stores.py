"""The S3 that a run reads from: the `--data` folder, served to scripts, or the store that the environment names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from launcher.aws.remote_objects import RemoteObjects
from launcher.aws.session import Account, CredentialsError
from launcher.errors import RefusedError
from launcher.local.channels.objects import FolderObjects, Objects
from launcher.local.channels.selection import S3Object, list_objects
from launcher.request.view import s3_source

if TYPE_CHECKING:
    from launcher.spec.job import JobSpec

_LOCAL_REGION = "us-east-1"
_PASSED_ON = ("AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")


@dataclass(frozen=True)
class Store:
    """The S3 that a run reads from: the `--data` folder, or the store that the environment names."""

    objects: Objects
    environ: Mapping[str, str]  # AWS_* variables with which other programs (rclone, s3torchconnector) reach it
    remote: bool  # False for the folder
    _listed: dict[tuple[str, str, int | None], Sequence[S3Object]] = field(default_factory=dict)

    def listed(self, channel: Mapping[str, Any], sample: int | None = None) -> Sequence[S3Object]:
        """Return the channel's objects as `list_objects` does; they are listed once per run, however many hosts read them."""
        source = s3_source(channel)
        asked = (source["S3DataType"], source["S3Uri"], sample)
        if asked not in self._listed:
            self._listed[asked] = list_objects(channel, self.objects, sample)
        return self._listed[asked]


@contextmanager
def embedded_store(
    data: Path,
    overlay: Path,
    on_warning: Callable[[str], None] = lambda text: None,
    elsewhere: Mapping[str, Path] | None = None,
    *,
    address: str = "127.0.0.1",
) -> Iterator[Store]:
    """Read `data`/s3 in place, and serve it to scripts, with keys of its own; the job's writes go to `overlay`.

    `elsewhere` has the folders of buckets that are not below `data`; `address` is that of this machine to serve it at.
    """
    from launcher.local.s3_server import serve
    from launcher.local.s3_server.store import Store as FolderStore

    folder = FolderStore(data / "s3", overlay, on_warning, elsewhere)
    key_id, secret = f"LOCAL{token_hex(8).upper()}", token_hex(20)  # as long as AWS's
    with serve(folder, {key_id: secret}, address=address) as endpoint:
        direct = dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(dict.fromkeys((address, "127.0.0.1", "localhost"))))
        keys = {"AWS_ACCESS_KEY_ID": key_id, "AWS_SECRET_ACCESS_KEY": secret}
        environ = {**keys, "AWS_REGION": _LOCAL_REGION, "AWS_ENDPOINT_URL": endpoint, **direct}
        yield Store(FolderObjects(folder, data / "s3", overlay), environ, remote=False)


@contextmanager
def remote_store(spec: JobSpec) -> Iterator[Store]:
    """Open AWS, or the S3-compatible store that `AWS_ENDPOINT_URL` names, with the credentials that boto3 finds."""
    account = Account(region=spec.region, profile=spec.profile)
    try:
        keys = account.keys()
    except CredentialsError as error:
        local = "--channel NAME=PATH, or --data DIR for all channels"
        raise RefusedError(f"{error}; or read from this machine: {local}") from None
    environ: dict[str, str] = {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        **({"AWS_SESSION_TOKEN": keys.token} if keys.token else {}),
        "AWS_REGION": account.region,
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
    }
    # s3torchconnector honours AWS_ENDPOINT_URL only; boto3 prefers the service's own variable, and so do we.
    if endpoint := environ.get("AWS_ENDPOINT_URL_S3"):
        environ["AWS_ENDPOINT_URL"] = endpoint
    yield Store(RemoteObjects(account), environ, remote=True)
