"""ECR: DescribeImages of other accounts' registries, such as AWS's own for deep learning containers, which moto cannot hold.

GetDownloadUrlForLayer, which moto lacks, returns the `config` of a test's order as a data: URL, whatever the layer.

A test adds such images, which then exist in all regions; moto refuses a repository without any as not found. AWS lets any
account describe the images of its deep learning containers.

Source: ECR's API reference (DescribeImages, ImageDetail, ImageNotFoundException).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from aws_stand_in.errors import Answer, Refusal
from aws_stand_in.wire import Call


class Images:
    """Images by registry and repository."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all images."""
        self._images: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._config: dict[str, Any] = {"architecture": "amd64", "os": "linux"}

    def control(self, name: str, parameters: dict[str, Any]) -> Any:
        """Add an `image`: {"registry", "repository", "tag"} and members of ImageDetail. Set the `config` of all images."""
        if name == "config":
            self._config = parameters
            return {}
        if name != "image":
            raise Refusal("NoSuchControl", f"ecr/{name} is nothing that can be ordered", 404)
        registry, repository, tag = parameters.pop("registry"), parameters.pop("repository"), parameters.pop("tag")
        digest = "sha256:" + hashlib.sha256(f"{registry}/{repository}:{tag}".encode()).hexdigest()
        detail = {
            "registryId": registry,
            "repositoryName": repository,
            "imageDigest": digest,
            "imageTags": [tag],
            "imageSizeInBytes": 5_000_000_000,
            "imagePushedAt": 1700000000.0,
            "imageManifestMediaType": "application/vnd.docker.distribution.manifest.v2+json",
        }
        self._images.setdefault((registry, repository), []).append(detail | parameters)
        return detail | parameters

    def answer(self, call: Call) -> dict[str, Any] | Answer | None:
        """Return DescribeImages' answer; None leaves it to moto. Raises ImageNotFoundException."""
        parameters = call.parameters
        registry, repository = parameters.get("registryId", ""), parameters.get("repositoryName", "")
        if call.operation == "GetDownloadUrlForLayer":
            url = f"data:application/json,{quote(json.dumps(self._config))}"
            return {"downloadUrl": url, "layerDigest": parameters.get("layerDigest", "")}
        images = self._images.get((registry, repository))
        if call.operation != "DescribeImages" or images is None:
            return None
        found = []
        for wanted in parameters.get("imageIds") or [{}]:
            tag, digest = wanted.get("imageTag"), wanted.get("imageDigest")
            fits = [one for one in images if tag in (None, *one["imageTags"]) and digest in (None, one["imageDigest"])]
            if not fits:
                name = f"{{imageDigest:'{digest or 'null'}', imageTag:'{tag or 'null'}'}}"
                where = f"within the repository with name '{repository}' in the registry with id '{registry}'"
                raise Refusal("ImageNotFoundException", f"The image with imageId {name} does not exist {where}")
            found += fits
        return {"imageDetails": found}
