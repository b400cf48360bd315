"""URIs of AWS's own training images, for `image: {framework: pytorch, version: "2.5"}`, without a network.

The account differs by region, the domain by partition and the tag by processor. AWS publishes these only in the SageMaker Python
SDK; launcher/data/images.json has them with the SDK's version and date. As in the SDK, the tag has the version as written: `2.5`
moves along with 2.5's patches, `2.5.1` stays. Three images are refused that the SDK resolves wrongly: another version of a
framework with only one (pytorch 2.5 on Trainium gives 1.11), Hugging Face on Trainium (an inference image), and an ARM processor
(an inference image, or one for x86). Unlike in the SDK, images of PyTorch on Amazon Linux are versions of `pytorch`, too,
py_version defaults to the newest of the version, base_framework_version to the only one, and a built-in algorithm needs no
version. JumpStart's algorithms (LightGBM, ...) are not built-in algorithms in this sense: they run in the frameworks' images.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from launcher.errors import did_you_mean
from launcher.request.instance_types import instance_type as facts_of
from launcher.spec.aws_model import shown
from launcher.tables import read_data

WANTED = ("framework", "algorithm", "version", "py_version", "base_framework_version")  # the keys of `wanted`

_Build = dict[str, Any]  # {registries: index, images: {processor or family: repository:tag}, py_version?, base_...?}

_DOMAINS = {  # botocore's partitions.json
    "cn-": "amazonaws.com.cn",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "eu-isoe-": "cloud.adc-e.uk",
    "us-isof-": "csp.hci.ic.gov",
}
# ACCOUNT.dkr.ecr.REGION.amazonaws.com/..., its FIPS twin dkr.ecr-fips., and the dual-stack ACCOUNT.dkr-ecr.REGION.on.aws/...
ECR = re.compile(
    r"(\d{12})\.dkr[.-]ecr(?:-fips)?\.([a-z]+(?:-[a-z]+)+-\d+)\.[a-z0-9.-]+/([^:@]+)(?:[:@].*)?", re.DOTALL
)
_PROCESSORS = {"GPU": "gpu", "Trainium": "trn", "Inferentia": "inf"}  # accelerator -> as in images.json
_OTHER_NAMES = {"deepar": "forecasting-deepar", "scikit-learn": "sklearn", "transformers": "huggingface"}
# What the repositories of AWS's images contain -> the package whose version begins their tags.
_PACKAGES = {"pytorch": "torch", "tensorflow": "tensorflow", "xgboost": "xgboost", "scikit-learn": "scikit-learn"}
_REMEDY = "write the image's URI to use another"


class ImageError(ValueError):
    """No image is known for these settings.

    `key` is the one to correct: one of WANTED, "region", "instance_type", or an unknown key of `wanted`.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def resolve_image(wanted: Mapping[str, str], *, region: str, instance_type: str | None) -> str:
    """Return the URI of AWS's training image for `wanted`, such as `{"framework": "pytorch", "version": "2.5.1"}`.

    `wanted` has the keys of WANTED. `framework` (or `algorithm`, which is looked up in the same way) is required, and so is
    `version` unless there is only one; `py_version` (`py311`) defaults to the newest; `base_framework_version` (`pytorch2.5.1`)
    chooses among several that a Hugging Face version was built on. The image must support the processor of `instance_type`, which
    can be None if there is only one image. Raises ImageError, which names the nearest known name.
    """
    name = _name(wanted)
    versions: dict[str, list[_Build]] = image_table()["images"][name]
    version = _version(name, versions, wanted)
    what = f"{name} {version}"
    builds = _of_base(versions[version], what, wanted.get("base_framework_version"))
    processor = _processor(what, builds, instance_type)
    builds = [build for build in builds if _image(build, processor)]
    build = _of_python(builds, what, wanted.get("py_version"))
    accounts: dict[str, str] = image_table()["registries"][build["registries"]]
    if region not in accounts:
        hint = _hint(region, accounts)
        raise ImageError("region", f"{shown(region)} is not a region in which {_source()} has {what}{hint}; {_REMEDY}")
    return f"{accounts[region]}.dkr.ecr.{region}.{registry_domain(region)}/{_image(build, processor)}"


def built_in_algorithm(image: str) -> str | None:
    """Return the built-in algorithm of an image, such as `image-classification`, by account and repository; None for others.

    Its newer repository sagemaker-xgboost counts as `xgboost`, although with a user's script it is a framework.
    """
    match = ECR.fullmatch(image)
    return _algorithms().get((match[1], match[3])) if match else None


def image_region(image: str) -> str | None:
    """Return the region of an image in ECR, such as `us-east-1`; None for other registries, and for ECR's public one."""
    match = ECR.fullmatch(image)
    return match[2] if match else None


def versions_of(image: str) -> dict[str, str]:
    """Return the versions that the tag of one of AWS's images names: `Python`, and packages such as `torch`."""
    if not is_of_aws(image):
        return {}
    repository, _, tag = image.rpartition("/")[2].partition(":")
    package = next((package for name, package in _PACKAGES.items() if name in repository), None)
    patterns = {
        "Python": r".*-py(\d)(\d+)",
        package: r"(\d+)((?:\.\d+)+)",
        "transformers": r".*-transformers(\d+)((?:\.\d+)+)",
    }
    matches = {name: re.match(pattern, tag) for name, pattern in patterns.items() if name}
    return {name: f"{match[1]}.{match[2].removeprefix('.')}" for name, match in matches.items() if match}


def newest_of(repository: str, processor: str) -> str | None:
    """Return the newest `repository:tag` for `cpu` or `gpu` in one of AWS's repositories, such as `pytorch-training`."""
    found = [each.tag for each in images() if (each.repository, each.processor) == (repository, processor)]
    return f"{repository}:{max(found, key=_numbers)}" if found else None


def registry_domain(region: str) -> str:
    """Return the domain of ECR in a region's partition, such as `amazonaws.com.cn`."""
    return next((domain for prefix, domain in _DOMAINS.items() if region.startswith(prefix)), "amazonaws.com")


def is_of_aws(image: str) -> bool:
    match = ECR.fullmatch(image)
    return match is not None and any(match[1] in accounts.values() for accounts in image_table()["registries"])


def image_table() -> dict[str, Any]:
    table: dict[str, Any] = read_data("images")
    return table


class KnownImage(NamedTuple):
    name: str  # of the framework or algorithm
    processor: str
    repository: str
    tag: str
    accounts: Mapping[str, str]  # by region


@cache
def images() -> tuple[KnownImage, ...]:
    """Return AWS's images for training."""
    table = image_table()
    return tuple(
        KnownImage(
            name, processor, image.partition(":")[0], image.partition(":")[2], table["registries"][build["registries"]]
        )
        for name, versions in table["images"].items()
        for builds in versions.values()
        for build in builds
        for processor, image in build["images"].items()
    )


@cache
def _algorithms() -> dict[tuple[str, str], str]:
    """Return the names by account and repository."""
    known = [each for each in images() if each.name in image_table()["algorithms"]]
    return {(account, each.repository): each.name for each in known for account in each.accounts.values()}


def _source() -> str:
    return f"the bundled table ({image_table()['source']} of {image_table()['date']})"


def _name(wanted: Mapping[str, str]) -> str:
    for key in wanted:
        if key not in WANTED:
            raise ImageError(key, f"is not a key of image{_hint(key, WANTED)}; its keys are {', '.join(WANTED)}")
    names = [(key, wanted[key]) for key in ("framework", "algorithm") if key in wanted]
    if len(names) > 1:
        raise ImageError("algorithm", "and framework are both written, but an image has only one of them; delete one")
    if not names:
        raise ImageError("framework", "is missing; write framework: pytorch, or algorithm: image-classification")
    key, name = names[0]
    known = image_table()["images"]
    if name not in known:
        other = _OTHER_NAMES.get(name.casefold())
        hint = f"; did you mean {other}?" if other else _hint(name, known)
        raise ImageError(key, f"{shown(name)} is not a {key} in {_source()}{hint}; {_REMEDY}")
    return name


def _version(name: str, versions: Mapping[str, Any], wanted: Mapping[str, str]) -> str:
    newest = max(versions, key=_numbers)
    version = wanted.get("version")
    if version is None:
        if len(versions) > 1:
            raise ImageError("version", f"is missing; the newest of {name} in {_source()} is {newest}")
        return newest
    if version not in versions:
        tables = image_table()["images"]
        others = [other for other in tables if other.startswith(f"{name}-") and version in tables[other]]
        release = _release(version)
        same = [known for known in versions if _release(known) == release]
        meant = max(same, key=_numbers, default=None)
        hint = f"; did you mean {meant}?" if meant else _hint(version, versions)
        if others:
            hint = f"; framework: {others[0]} has it" + (f", of {name} there is {meant}" if meant else "")
        where = f"in the bundled table (newest {newest}, of {image_table()['date']})"
        raise ImageError("version", f"{shown(version)} is not a version of {name} {where}{hint}; {_REMEDY}")
    return version


def _of_base(builds: list[_Build], what: str, wanted: str | None) -> list[_Build]:
    """Return the builds on one base framework, wanted as `pytorch2.5.1` or `pytorch2.5`."""
    key = "base_framework_version"
    bases = _distinct(build.get(key) for build in builds)
    if wanted is None:
        if len(bases) > 1:
            raise ImageError(key, f"is missing; {what} was built on {' and on '.join(bases)}")
        return builds
    if not bases:
        raise ImageError(key, f"is not for {what}, which has no base framework; delete it")
    found = [base for base in bases if base == wanted or base.startswith(f"{wanted}.")]
    if len(found) != 1:
        raise ImageError(key, f"{what} was built on {', '.join(bases)}, not on {shown(wanted)}{_hint(wanted, bases)}")
    return [build for build in builds if build[key] == found[0]]


def _of_python(builds: list[_Build], what: str, wanted: str | None) -> _Build:
    """Return the build for the wanted Python, by default for the newest."""
    pythons = sorted(_distinct(build.get("py_version") for build in builds), key=_numbers)
    if wanted is None:
        return max(builds, key=lambda build: _numbers(build.get("py_version", "")))
    if not pythons:
        raise ImageError("py_version", f"is not for {what}, which has no choice of Python; delete it")
    if wanted not in pythons:
        has = f"{', '.join(pythons)}{_hint(wanted, pythons)}"
        raise ImageError("py_version", f"{shown(wanted)} is not a Python of {what}, which has {has}")
    return next(build for build in builds if build["py_version"] == wanted)


def _processor(what: str, builds: list[_Build], instance_type: str | None) -> tuple[str, str]:
    """Return the (family, processor) to look images up by: those of the instance type, or twice the only processor."""
    known = _distinct(processor for build in builds for processor in build["images"])
    if instance_type is None:
        if len(known) > 1:
            raise ImageError("instance_type", f"decides between the images of {what} for {', '.join(known)}; write it")
        return known[0], known[0]
    facts = facts_of(instance_type)
    if facts.architecture is None:
        raise ImageError("instance_type", f"{shown(instance_type)} is not an instance type such as ml.g5.xlarge")
    family = instance_type.split(".")[1]
    processor = "ARM" if facts.architecture == "arm64" else _PROCESSORS.get(facts.accelerator or "", "cpu")
    if not any(_image(build, (family, processor)) for build in builds):
        has = f"has {what} for {'cpu and gpu' if known == ['any'] else ' and '.join(known)}"
        message = f"{instance_type} needs an image for {processor}, but {_source()} {has}; {_REMEDY}"
        raise ImageError("instance_type", message)
    return family, processor


def _image(build: _Build, processor: tuple[str, str]) -> str | None:
    """Return a build's most specific `repository:tag` for a (family, processor)."""
    family, kind = processor
    found: dict[str, str] = build["images"]
    fits_any = found.get("any") if kind in ("cpu", "gpu", "any") else None
    return found.get(family) or found.get(kind) or fits_any


def _hint(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name[:60], known)  # comparing a text of a megabyte would be slow


def _numbers(version: str) -> tuple[int, ...]:
    """Return the key to sort versions by: 2.10.0 after 2.9.1, py310 after py39; words like `latest` first."""
    return tuple(map(int, re.findall(r"\d+", version)))


def _release(version: str) -> list[str]:
    """Return the first two numbers: 2.5 of 2.5.1, and 1.7 of 1.7-1."""
    return re.split("[.-]", version, maxsplit=2)[:2]


def _distinct(names: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name is not None))
