"""Images in ECR: the parts of their URIs, and their manifests and configurations, without an engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.request import urlopen

from launcher.request.image_uris import image_region

_Ask = Callable[..., dict[str, Any]]  # as Account.call; an answer can be empty
_MANIFESTS = (  # that an image may have: of one architecture, and of several
    *("application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json"),
    *("application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json"),
)
_CHECK_SECONDS = 3.0  # for a check, which can do without


class EcrImage(NamedTuple):
    """The parts of `ACCOUNT.dkr.ecr.REGION.amazonaws.com/repository:tag`."""

    account: str
    region: str
    repository: str
    tag: str
    digest: str

    @property
    def in_repository(self) -> dict[str, str]:
        """The repository, as ECR's operations name it."""
        return {"registryId": self.account, "repositoryName": self.repository}

    @property
    def identity(self) -> dict[str, str]:
        return {"imageDigest": self.digest} if self.digest else {"imageTag": self.tag}


def ecr_image(uri: str) -> EcrImage | None:
    """Return the parts of an image in ECR; None for other registries."""
    region = image_region(uri)
    if region is None:
        return None
    name, _, digest = uri.partition("/")[2].partition("@")
    repository, _, tag = name.partition(":")
    return EcrImage(uri[:12], region, repository, tag if tag or digest else "latest", digest)


def read_manifest(ask: _Ask, image: EcrImage) -> dict[str, Any]:
    """Return an image's manifest, or the list of its manifests by architecture; empty if there is no such image."""
    asked = {**image.in_repository, "imageIds": [image.identity], "acceptedMediaTypes": list(_MANIFESTS)}
    found = ask("ecr", "batch_get_image", **asked).get("images")
    manifest: dict[str, Any] = json.loads(found[0]["imageManifest"]) if found else {}
    return manifest


def read_config(ask: _Ask, image: EcrImage, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that a manifest names: `architecture`, `config`, ...; empty if it cannot be read."""
    digest = manifest.get("config", {}).get("digest")
    layer = ask("ecr", "get_download_url_for_layer", **image.in_repository, layerDigest=digest) if digest else {}
    try:
        with urlopen(layer["downloadUrl"], timeout=_CHECK_SECONDS) as answer:
            config: dict[str, Any] = json.loads(answer.read())
            return config
    except (OSError, ValueError, KeyError):
        return {}
