"""AWS's images: the same URIs as the SDK's, errors that name the key and the remedy, and the way back from a URI."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.request import image_uris
from launcher.request.image_support import support_of
from launcher.request.image_uris import (
    ImageError,
    built_in_algorithm,
    image_region,
    registry_domain,
    resolve_image,
    versions_of,
)
from make_image_support import OUTPUT as SUPPORT
from make_image_support import make_image_support
from make_images import OUTPUT, make_images, to_text

SAMPLE = json.loads((Path(__file__).parents[2] / "data" / "sdk_images.json").read_text())["images"]
TABLE = json.loads(OUTPUT.read_text())


def found(region: str = "us-east-1", instance_type: str | None = "ml.g5.xlarge", **wanted: str) -> str:
    return resolve_image(wanted, region=region, instance_type=instance_type)


def refused(region: str = "us-east-1", instance_type: str | None = "ml.g5.xlarge", **wanted: str) -> tuple[str, str]:
    with pytest.raises(ImageError) as caught:
        resolve_image(wanted, region=region, instance_type=instance_type)
    return caught.value.key, str(caught.value)


@pytest.mark.parametrize("name", sorted(TABLE["images"]))
def test_image_uri_equals_the_sdks(name: str) -> None:
    rows = [row for row in SAMPLE if row[0]["framework"] == name]
    assert len([row for row in rows if row[3]]) >= 4
    for wanted, region, instance_type, uri in rows:
        if uri is None:
            with pytest.raises(ImageError):
                resolve_image(wanted, region=region, instance_type=instance_type)
        else:
            assert resolve_image(wanted, region=region, instance_type=instance_type) == uri


def test_sdk_sample_has_every_partition() -> None:
    domains = {row[3].split("/")[0].split(row[1])[1] for row in SAMPLE if row[3]}
    assert domains >= {".amazonaws.com", ".amazonaws.com.cn", ".c2s.ic.gov", ".sc2s.sgov.gov", ".amazonaws.eu"}


def test_domains_equal_botocores() -> None:
    package = importlib.util.find_spec("botocore")
    assert package is not None and package.origin is not None
    partitions = json.loads(Path(package.origin).with_name("data").joinpath("partitions.json").read_text())[
        "partitions"
    ]
    regions = {region for accounts in TABLE["registries"] for region in accounts}
    for region in sorted(regions):
        [suffix] = [part["outputs"]["dnsSuffix"] for part in partitions if re.match(part["regionRegex"], region)]
        assert registry_domain(region) == suffix, region


def test_short_version_gives_a_tag_as_written() -> None:
    assert found(framework="pytorch", version="2.5").endswith("/pytorch-training:2.5-gpu-py311")
    assert found(framework="pytorch", version="2.5.1").endswith("/pytorch-training:2.5.1-gpu-py311")


@pytest.mark.parametrize("version", ["2.11", "2.12", "2.13", "2.14"])
def test_pytorch_on_amazon_linux_is_a_version_of_pytorch(version: str) -> None:
    uri = found(framework="pytorch", version=version)
    assert re.fullmatch(rf".*/pytorch:{re.escape(version)}-cu13\d-amzn2023-sagemaker", uri)
    assert uri == found(framework="pytorch-amzn2023", version=version)
    cpu = found(framework="pytorch", version=version, instance_type="ml.m5.large")
    assert cpu.endswith(f"/pytorch:{version}-cpu-amzn2023-sagemaker")
    assert versions_of(cpu)["torch"] == version


def test_python_is_known_of_images_whose_tags_lack_it() -> None:
    support = support_of(found(framework="pytorch", version="2.13"))
    assert support is not None
    assert (support.framework, support.version, support.python) == ("pytorch", "2.13", "3.12")


def test_missing_py_version_gives_the_newest() -> None:
    assert found(framework="pytorch", version="1.4.0").endswith(":1.4.0-gpu-py36")
    assert found(framework="pytorch", version="1.4.0", py_version="py2").endswith(":1.4.0-gpu-py2")
    assert found(framework="sagemaker-base-python").endswith("/sagemaker-base-python-310:1.0")


def test_instance_type_decides_the_processor() -> None:
    for instance_type, tag in (
        ("ml.m5.large", "1.11-cpu-py38"),
        ("ml.g4dn.xlarge", "1.11-gpu-py38"),
        ("ml.p5.48xlarge", "1.11-gpu-py38"),
        ("ml.trn1.2xlarge", "1.11-neuron-py38-sdk2.4.0-ubuntu20.04"),
    ):
        assert found(framework="pytorch", version="1.11", instance_type=instance_type).endswith(f":{tag}")


def test_single_image_needs_no_instance_type() -> None:
    assert found(algorithm="kmeans", instance_type=None).endswith("/kmeans:1")
    assert found(framework="sklearn", version="1.2-1", instance_type=None).endswith(":1.2-1-cpu-py3")
    assert refused(framework="pytorch", version="2.5", instance_type=None) == (
        "instance_type",
        "decides between the images of pytorch 2.5 for cpu, gpu; write it",
    )


def test_hugging_face_needs_full_versions() -> None:
    uri = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:"
    uri += "1.10.2-transformers4.17.0-gpu-py38-cu113-ubuntu20.04"
    assert found(framework="huggingface", version="4.17", base_framework_version="pytorch1.10") == uri
    assert found(framework="huggingface", version="4.17.0", base_framework_version="pytorch1.10.2") == uri
    assert "/huggingface-pytorch-training:2.1.0-transformers4.36.0-" in found(framework="huggingface", version="4.36")
    key, message = refused(framework="huggingface", version="4.17")
    assert key == "base_framework_version"
    assert message == "is missing; huggingface 4.17 was built on pytorch1.10.2 and on tensorflow2.6.3"


SOURCE = f"the bundled table ({TABLE['source']} of {TABLE['date']})"


@pytest.mark.parametrize(
    ("wanted", "key", "message"),
    [
        (
            {"framework": "pytorch", "version": "2.99"},
            "version",
            f"'2.99' is not a version of pytorch in the bundled table (newest 2.14, of {TABLE['date']}); "
            "did you mean 2.9?; write the image's URI to use another",
        ),
        ({"framework": "pytorch", "version": "2.5.0"}, "version", "; did you mean 2.5.1?;"),
        ({"framework": "pytorch", "version": "latest"}, "version", "; framework: pytorch-amzn2023 has it;"),
        ({"framework": "xgboost", "version": "1.7"}, "version", "; did you mean 1.7-1?;"),
        ({"framework": "pytorch"}, "version", f"is missing; the newest of pytorch in {SOURCE} is 2.14"),
        ({"algorithm": "kmeans", "version": "2"}, "version", "(newest 1, of "),
        (
            {"framework": "pytoch", "version": "2.5"},
            "framework",
            f"'pytoch' is not a framework in {SOURCE}; did you mean pytorch?; write the image's URI to use another",
        ),
        ({"algorithm": "deepar"}, "algorithm", "; did you mean forecasting-deepar?;"),
        ({"algorithm": "linear_learner"}, "algorithm", "; did you mean linear-learner?;"),
        ({}, "framework", "is missing; write framework: pytorch, or algorithm: image-classification"),
        ({"framework": "pytorch", "algorithm": "kmeans"}, "algorithm", "delete one"),
        ({"framework": "pytorch", "versoin": "2.5"}, "versoin", "did you mean version?"),
        (
            {"framework": "pytorch", "version": "2.5", "py_version": "3.11"},
            "py_version",
            "'3.11' is not a Python of pytorch 2.5, which has py311; did you mean py311?",
        ),
        (
            {"framework": "xgboost", "version": "1.7-1", "py_version": "py3"},
            "py_version",
            "no choice of Python; delete",
        ),
        (
            {"framework": "huggingface", "version": "4.36", "base_framework_version": "pytorch2.2"},
            "base_framework_version",
            "was built on pytorch2.1.0, not on 'pytorch2.2'; did you mean pytorch2.1.0?",
        ),
        (
            {"framework": "pytorch", "version": "2.5", "base_framework_version": "pytorch2.5"},
            "base_framework_version",
            "which has no base framework; delete it",
        ),
    ],
    ids=str,
)
def test_wrong_image_key_is_named_with_a_remedy(wanted: dict[str, str], key: str, message: str) -> None:
    found_key, found_message = refused(**wanted)
    assert found_key == key
    assert message in found_message


@pytest.mark.parametrize(
    ("instance_type", "message"),
    [
        (
            "ml.trn1.2xlarge",
            f"ml.trn1.2xlarge needs an image for trn, but {SOURCE} has pytorch 2.5 for cpu and gpu; "
            "write the image's URI to use another",
        ),
        ("ml.p6e-gb200.36xlarge", "needs an image for ARM"),
        ("ml.m7g.large", "needs an image for ARM"),
        ("g5.xlarge", "'g5.xlarge' is not an instance type such as ml.g5.xlarge"),
    ],
)
def test_unsupported_instance_type_is_refused(instance_type: str, message: str) -> None:
    key, found_message = refused(framework="pytorch", version="2.5", instance_type=instance_type)
    assert key == "instance_type"
    assert message in found_message


def test_built_in_algorithms_and_hugging_face_have_no_image_for_every_processor() -> None:
    assert "needs an image for trn" in refused(algorithm="kmeans", instance_type="ml.trn1.2xlarge")[1]
    assert "needs an image for cpu" in refused(framework="huggingface", version="4.36", instance_type="ml.m5.large")[1]


def test_text_of_a_megabyte_gives_a_short_message() -> None:
    long = "1." * 500_000
    for key in image_uris.WANTED[1:]:
        wanted = {"algorithm": "xgboost", "version": "0.90-1", key: long}
        assert len(refused(**wanted)[1]) < 400
    assert len(refused(framework="pytorch", version="2.5", region=long)[1]) < 400
    assert len(refused(framework="pytorch", version="2.5", instance_type=long)[1]) < 400
    assert image_region(long) is None


def test_unknown_region_is_refused_with_the_nearest() -> None:
    key, message = refused(framework="pytorch", version="2.5", region="eu-wst-1")
    assert key == "region"
    assert message == (
        f"'eu-wst-1' is not a region in which {SOURCE} has pytorch 2.5; did you mean eu-west-1?; "
        "write the image's URI to use another"
    )


def test_built_in_algorithms_are_known_in_every_region() -> None:
    names = TABLE["algorithms"]
    assert {"image-classification", "object-detection", "linear-learner", "blazingtext", "kmeans", "xgboost"} <= set(
        names
    )
    for name in names:
        accounts = TABLE["registries"][TABLE["images"][name]["1"][0]["registries"]]
        for region in accounts:
            uri = found(algorithm=name, version="1", region=region)
            assert built_in_algorithm(uri) == name
            assert image_region(uri) == region


@pytest.mark.parametrize(
    ("image", "algorithm", "region"),
    [
        ("811284229777.dkr.ecr.us-east-1.amazonaws.com/image-classification:1", "image-classification", "us-east-1"),
        ("811284229777.dkr.ecr.us-east-1.amazonaws.com/image-classification", "image-classification", "us-east-1"),
        (
            "811284229777.dkr.ecr.us-east-1.amazonaws.com/image-classification@sha256:0a",
            "image-classification",
            "us-east-1",
        ),
        ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", "xgboost", "us-east-1"),
        (
            "390948362332.dkr.ecr.cn-north-1.amazonaws.com.cn/image-classification:1",
            "image-classification",
            "cn-north-1",
        ),
        ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3", None, "us-east-1"),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/image-classification:1", None, "us-east-1"),
        ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/a/b:1", None, "us-gov-west-1"),
        ("123456789012.dkr-ecr.eu-west-1.on.aws/a/b:1", None, "eu-west-1"),
        ("public.ecr.aws/docker/library/python:3.12", None, None),
        ("registry.example.com:5000/image-classification:1", None, None),
        ("image-classification:1", None, None),
        ("", None, None),
    ],
)
def test_image_uri_gives_its_algorithm_and_region(image: str, algorithm: str | None, region: str | None) -> None:
    assert built_in_algorithm(image) == algorithm
    assert image_region(image) == region


def test_image_table_is_small_and_has_its_source() -> None:
    assert OUTPUT.stat().st_size < 150_000
    assert re.fullmatch(r"sagemaker-core \d+\.\d+\.\d+", TABLE["source"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", TABLE["date"])


def test_support_table_equals_its_scripts_output(tmp_path: Path) -> None:
    (tmp_path / "legacy").mkdir()
    (tmp_path / "legacy/legacy_support.yml").write_text(
        'pytorch: [{version: "9.9", ga: "2024-01-01", eop: "2025-01-01"}]'
    )
    for name, keys in {
        "pytorch-training/9.10-cpu-sagemaker": 'version: "9.10"\npython: py313\neop: "2026-01-01"',
        "pytorch-training/9.10-cpu-ec2": 'version: "9.10"\neop: "2026-02-02"',
        "pytorch/9.11-cpu-sagemaker": 'version: "9.11"\npython: py312\neop: "2027-01-01"',
        "sagemaker-xgboost/3.0-5-cpu-sagemaker": 'version: "3.0-5"\neop: "2026-03-03"',
    }.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / f"{name}.yml").write_text(keys)
    made = make_image_support(tmp_path, "2020-01-01")["frameworks"]
    assert made["pytorch"]["end_of_patch"] == {
        "older": "2025-01-01",
        "9.9": "2025-01-01",
        "9.10": "2026-01-01",
        "9.11": "2027-01-01",
    }
    assert made["pytorch"]["python"] == {"9.10": "3.13", "9.11": "3.12"}
    assert made["xgboost"]["end_of_patch"] == {"3.0-5": "2026-03-03"}
    table = json.loads(SUPPORT.read_text())
    assert list(table["frameworks"]) == list(made)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", table["date"])


def test_image_table_equals_its_scripts_output(tmp_path: Path) -> None:
    """On two tables in the SDK's shape: an alias, two levels, one processor of its own, images for inference left out."""
    accounts = {"us-east-1": "111111111111"}

    def leaf(repository: str, **members: Any) -> dict[str, Any]:
        return {"repository": repository, "registries": accounts, **members}

    for name, content in {
        "mxnet": {
            "inference": {"versions": {"9.0": leaf("mxnet-inference")}},
            "training": {
                "processors": ["cpu", "gpu"],
                "version_aliases": {"1.4": "1.4.1"},
                "versions": {"1.4.1": {"py2": leaf("sagemaker-mxnet"), "py3": leaf("mxnet-training")}},
            },
        },
        "kmeans": {"scope": ["inference", "training"], "versions": {"1": leaf("kmeans")}},
        "kmeans-neo": {"scope": ["inference"], "versions": {"1": leaf("kmeans-neo")}},
        "sagemaker-base-python": {"versions": {"1.0": leaf("sagemaker-base-python")}},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    made = make_images(tmp_path, "sagemaker-core 0.0.0", "2020-01-01")
    assert json.loads(to_text(made)) == made
    assert made["registries"] == [accounts]
    assert made["algorithms"] == ["kmeans"]
    assert list(made["images"]) == ["kmeans", "mxnet", "sagemaker-base-python"]
    assert made["images"]["mxnet"]["1.4"] == [
        {
            "registries": 0,
            "images": {processor: f"{repository}:1.4-{processor}-{python}" for processor in ("cpu", "gpu")},
            "py_version": python,
        }
        for repository, python in (("sagemaker-mxnet", "py2"), ("mxnet-training", "py3"))
    ]
    assert to_text(TABLE) == OUTPUT.read_text(), "images.json was edited by hand"
