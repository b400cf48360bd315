"""The report of what a local run had as in SageMaker: what it finds, and how each channel has arrived."""

from __future__ import annotations

import platform
import re
from importlib import metadata
from pathlib import Path

import pytest

import launcher
from launcher import LocalOptions
from launcher.local.fidelity import in_rows
from launcher.local.workspace import hosts_of
from launcher.request.image_uris import versions_of
from local_jobs import EFS, launch, namespaces, result, write_job

ECR = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
IMAGE = f"{ECR}/pytorch-training:1.2.3-cpu-py{platform.python_version_tuple()[0]}{platform.python_version_tuple()[1]}"


def test_result_has_what_was_as_in_sagemaker_and_what_was_not(here: Path, fuse: None) -> None:
    namespaces()
    overlay = (
        f"image: {IMAGE}\nvpc_config: {{security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}}\n"
        "resource_config: {instance_type: ml.c6i.32xlarge, instance_count: 2, volume_size_in_gb: 16000}\n"
        "channels:\n  file: s3://bucket/train/\n"
        "  shard: {s3_uri: s3://bucket/train/, s3_data_distribution_type: ShardedByS3Key}\n"
        "  fast: {s3_uri: s3://bucket/train/, input_mode: FastFile}\n"
        "  pipe: {s3_uri: s3://bucket/train/, input_mode: Pipe}\n"
        f"  efs: {{source: EFS, file_system_id: {EFS}, directory_path: /lists}}\n"
    )
    write_job(here, "print('trained')", overlay)
    output = launch(here, "--instance-count", "1", "--sample", "2", "-v")
    facts = result(here)["Fidelity"]
    channels = {what: (fact["Here"], fact["Same"]) for what, fact in facts.items() if what.startswith("channel ")}
    assert channels == {
        "channel file": ("a copy", True),
        "channel shard": ("a copy", True),
        "channel fast": ("a FUSE mount", True),
        "channel pipe": ("a FIFO for each epoch", True),
        "channel efs": ("a bound folder of this machine", False),
    }
    assert facts["Python"]["Here"] == platform.python_version()
    assert facts["Python"]["Same"] is True
    torch = metadata.version("torch")
    assert facts["torch"] == {"Here": torch, "InSageMaker": "1.2.3", "Same": False}
    assert facts["network"] == {"Here": "this machine's", "InSageMaker": "that of vpc_config", "Same": False}
    assert facts["hosts"] == {"Here": "1", "InSageMaker": "2", "Same": False}
    assert "start of the code" not in facts  # SageMaker starts it by boot.py, too
    assert "  differs    objects: 2 of each channel, not all\n" in output
    assert f"  differs    torch: {torch}, not 1.2.3\n" in output
    assert "channel fast (a FUSE mount)" in output


def test_run_without_mounts_reports_what_takes_their_place(here: Path) -> None:
    overlay = (
        "vpc_config: {security_group_ids: [sg-0123456789abcdef0], subnets: [subnet-0123456789abcdef0]}\n"
        "channels:\n  fast: {s3_uri: s3://bucket/train/, input_mode: FastFile}\n"
        f"  efs: {{source: EFS, file_system_id: {EFS}, directory_path: /lists}}\n"
    )
    write_job(here, "print('trained')", overlay, code=", delivery: submit_directory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")  # without mount programs
        output = launch(here, "--no-namespaces", "-v")
    assert "  differs    start of the code: boot.py, not the image's toolkit\n" in output
    assert "  differs    channel fast: a copy, not FastFile\n" in output
    assert "  differs    channel efs: a copied folder of this machine, not EFS\n" in output


def test_members_without_a_part_in_a_local_run_are_named(here: Path) -> None:
    members = (
        "debug_hook_config: {s3_output_path: s3://bucket/debug/}\n"
        "experiment_config: {experiment_name: cats}\n"
        "request: {RemoteDebugConfig: {EnableRemoteDebug: true}}\nchannels: null\n"
    )
    write_job(here, "print('trained')", members)
    output = launch(here, "--no-namespaces")
    assert re.search(
        r"differs    in \d+ ways: .*debug_hook_config, experiment_config, request.RemoteDebugConfig",
        output,
    )


def test_member_that_aws_adds_is_left_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    write_job(here, "print('trained')", "channels: null\n")
    plan = launcher.plan(str(here / "job.yaml"), name="job")
    plan.request["CarbonBudget"] = {"Grams": 5}
    launcher.run_local(plan, options=LocalOptions(no_namespaces=True))
    assert result(here)["Fidelity"]["carbon_budget"]["Here"] == "left out"


def test_facts_are_grouped_in_rows() -> None:
    facts: dict[str, dict[str, str | bool | None]] = {
        "image": {"Here": "a", "InSageMaker": "b", "Same": False},
        "torch": {"Here": "2.5.1", "InSageMaker": "2.5", "Same": True},
        "Python": {"Here": "not found", "InSageMaker": "", "Same": None},
        "GPU": {"Here": "1", "InSageMaker": "GPU", "Same": True},
    }
    assert list(in_rows(facts, verbose=False)) == [("differs", "in 1 way: image (-v shows how)")]
    assert list(in_rows(facts, verbose=True)) == [
        ("faithful", "torch (2.5.1), GPU (1)"),
        ("unknown", "Python (not found)"),
        ("differs", "image: a, not b"),
    ]


@pytest.mark.parametrize(
    ("image", "versions"),
    [
        (f"{ECR}/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker", {"Python": "3.11", "torch": "2.5.1"}),
        (f"{ECR}/pytorch-training:2.10-cpu-py313", {"Python": "3.13", "torch": "2.10"}),
        (
            f"{ECR}/huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04",
            {"Python": "3.12", "torch": "2.9.0", "transformers": "5.3.0"},
        ),
        (f"{ECR}/tensorflow-training:2.21-cpu-py312", {"Python": "3.12", "tensorflow": "2.21"}),
        ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", {"xgboost": "1.7"}),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.5.1-py311", {}),
    ],
)
def test_tag_of_an_aws_image_names_versions(image: str, versions: dict[str, str]) -> None:
    assert versions_of(image) == versions


def test_hosts_are_those_of_the_first_preference() -> None:
    types = [{"InstanceType": "ml.g5.xlarge", "InstanceCount": 2}, {"InstanceType": "ml.m5.xlarge"}]
    hosts = hosts_of({"ResourceConfig": {"InstancePreferences": types, "VolumeSizeInGB": 30}})
    assert [(each.name, each.instance_type) for each in hosts] == [
        ("algo-1", "ml.g5.xlarge"),
        ("algo-2", "ml.g5.xlarge"),
    ]
