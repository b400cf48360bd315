"""Misspelt names of AWS's images and regions draw a warning with the right name; names of images that exist draw none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from launcher import parse_spec
from launcher.request.known_images import known_regions
from launcher.rules import find_problems
from launcher.rules.examples import laid_over_base

AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
XGBOOST = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost"
CODES = ("image-of-aws", "region-unknown")


def found(overlay: str) -> list[tuple[str, str]]:
    problems = find_problems(parse_spec(laid_over_base(overlay)))
    return [(problem.code, problem.message) for problem in problems if problem.code in CODES]


@pytest.mark.parametrize(
    ("image", "right"),
    [
        (f"{AWS}/pytorch-trainig:2.10.0-cpu-py313", "did you mean pytorch-training?"),
        (f"{AWS}/pytroch:2.13-cpu-amzn2023-sagemaker", "did you mean pytorch?"),
        (f"{AWS}/pytorch-training:2.10.0-cpu-py312", "did you mean 2.10.0-cpu-py313?"),
        (f"{AWS}/pytorch-training:2.8.0-gpuu-py312", "did you mean 2.8.0-gpu-py312?"),
        (f"{AWS}/pytorch-training:2.99.0-cpu-py313", "AWS's pytorch-training does not have; "),
        (f"{AWS}/pytorch-training:2.1-cpu-py313", "AWS's pytorch-training does not have; "),
        (f"{AWS}/pytorch:2.13-cu130-amzn2023-sagemaker", "did you mean 2.13-cu133-amzn2023-sagemaker?"),
        (f"{XGBOOST}:1.8-1", "did you mean 1.7-1?"),
        ("382416733822.dkr.ecr.us-east-1.amazonaws.com/kmeans:2", "; it has 1; "),
        (f"{AWS.replace('884', '848')}/pytorch:2.13-cpu-amzn2023-sagemaker", "in us-east-1 is 763104351884"),
        (f"{AWS.replace('us-east', 'af-south')}/pytorch:2.13-cpu-amzn2023-sagemaker", "in af-south-1 is 626614931356"),
    ],
)
def test_misspelt_image_of_aws_is_found_with_the_right_name(image: str, right: str) -> None:
    ((code, message),) = found(f"image: {image}")
    assert code == "image-of-aws"
    assert right in message


@pytest.mark.parametrize(
    "image",
    [
        # Tags in aws/deep-learning-containers, docs/src/data.
        f"{AWS}/pytorch-training:2.10.0-gpu-py313-cu130-ubuntu22.04-sagemaker",
        f"{AWS}/pytorch-training:2.8-cpu-py312-ubuntu22.04-sagemaker-v1",
        f"{AWS}/pytorch:2.12.1-cu130-amzn2023-sagemaker",
        f"{AWS}/huggingface-pytorch-training:2.9-gpu-py312",
        f"{AWS}/autogluon-training:1.5.0-gpu-py312-cu128-ubuntu22.04",
        f"{AWS}/tensorflow-training:2.19.0-cpu-py312-ubuntu22.04-sagemaker",
        f"{AWS}/pytorch-training@sha256:{'0' * 64}",
        f"{AWS}/pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04",
        f"{AWS}/pytorch:2.15-cu134-amzn2023-sagemaker",
        f"{XGBOOST}:3.2-0-cpu-py3",
        f"{XGBOOST.replace('xgboost', 'scikit-learn')}:1.9-0",
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-trainig:2.10.0-cpu-py313",
        "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/mine:1",
        "mine:1",
    ],
)
def test_right_image_and_other_peoples_image_draw_no_warning(image: str) -> None:
    assert found(f"image: {image}") == []


def test_every_image_of_the_sdk_draws_no_warning() -> None:
    sample = json.loads((Path(__file__).parents[2] / "data/sdk_images.json").read_text())["images"]
    images = [row[3] for row in sample if row[3]]
    assert len(images) > 100
    assert [image for image in images if found(f"image: {image}")] == []


@pytest.mark.parametrize(
    ("overlay", "right"),
    [
        ("region: us-esat-1", "did you mean us-east-1?"),
        ("region: eu-wset-1", "did you mean eu-west-1?"),
        ("image: 123456789012.dkr.ecr.eu-cental-1.amazonaws.com/mine:1", "did you mean eu-central-1?"),
        ("region: xx-nowhere-1", "that the installed botocore knows; if it is newer"),
    ],
)
def test_misspelt_region_is_found_with_the_right_name(overlay: str, right: str) -> None:
    ((code, message),) = found(overlay)
    assert code == "region-unknown"
    assert right in message


def test_region_of_the_image_table_is_known_if_botocore_is_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/partitions.json").write_text('{"partitions": [{"regions": {"us-east-1": {}}}]}')
    botocore = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: botocore)
    assert "me-west-1" in known_regions.__wrapped__()


def test_every_region_of_botocore_draws_no_warning() -> None:
    assert {"us-east-1", "cn-north-1", "us-gov-west-1", "eusc-de-east-1"} <= {*known_regions()}
    assert [region for region in known_regions() if found(f"region: {region}")] == []
