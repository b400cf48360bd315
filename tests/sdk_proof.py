"""Trains with a real SDK, in that SDK's own environment: what the tests of launcher.estimator start.

    <python of SDK v2 or v3> sdk_proof.py FOLDER NAME...

Each FOLDER/*.yaml is a spec; each FOLDER/*.json has InputDataConfig entries that no spec can express; FOLDER/example.py is run
as it is. The specs are passed to every trainer of the SDK; a ModelTrainer has its own code for the specs of each NAME.
FOLDER/found then has the results: {file: {trainer: {"sent": request} or {"refused": why}}}. A request is the body of
CreateTrainingJob as it was sent, caught by botocore's event: moto answers it, but loses its Environment.

The SDK uploads code, asks STS at AWS's own address whatever AWS_ENDPOINT_URL says, and sends telemetry. So this process can
reach nothing but this machine, and starts only in a folder made for it.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

LOOPBACK = ("127.0.0.1", "localhost")
STAGING = "staging"  # the bucket for the SDK's uploads; unnamed, it would ask the real STS for the account


def only_this_machine(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook: it cannot be taken away, and sees whatever library connects."""
    address = args[1] if event == "socket.connect" else args if event == "socket.getaddrinfo" else None
    if isinstance(address, tuple) and address[0] not in LOOPBACK:
        raise OSError(f"refused: {address[0]} is not this machine")


def recording() -> tuple[Any, list[dict[str, Any]]]:
    """The default session of boto3, and the CreateTrainingJob requests that leave it. One for all: v2 keeps its first."""
    import boto3

    sent: list[dict[str, Any]] = []

    def record(request: Any, **_: Any) -> None:
        sent.append(json.loads(request.body))

    boto3.setup_default_session()
    session = boto3.DEFAULT_SESSION
    assert session is not None
    session.events.register("before-send.sagemaker.CreateTrainingJob", record)
    return session, sent


def inputs_of(file: Path) -> Any:
    from launcher.estimator import estimator_inputs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they have tests of their own
        if file.suffix == ".yaml":
            return estimator_inputs(file)
        like = estimator_inputs(file.parent / "plain.yaml")
        return replace(like, entries=tuple(json.loads(file.read_text())), environment={})


def job_of(file: Path) -> dict[str, Any]:
    """The request's other parts, which a trainer's owner has given it already."""
    import launcher

    spec = launcher.load(str(file if file.suffix == ".yaml" else file.parent / "plain.yaml"))
    return launcher.plan(spec.model_copy(update={"code": None})).request


def fit(file: Path, session: Any) -> None:
    """SDK v2's Estimator."""
    from sagemaker import Session
    from sagemaker.instance_group import InstanceGroup
    from sagemaker.pytorch import PyTorch

    inputs, job = inputs_of(file), job_of(file)
    resources, network = job["ResourceConfig"], job.get("VpcConfig", {})
    if groups := resources.get("InstanceGroups"):
        names = ("InstanceGroupName", "InstanceType", "InstanceCount")
        compute = {"instance_groups": [InstanceGroup(*(group[name] for name in names)) for group in groups]}
    else:
        compute = {"instance_type": resources["InstanceType"], "instance_count": resources["InstanceCount"]}
    estimator = PyTorch(
        entry_point="train.py",
        source_dir="src",
        role=job["RoleArn"],
        image_uri=job["AlgorithmSpecification"]["TrainingImage"],
        sagemaker_session=Session(session, default_bucket=STAGING),
        environment={**inputs.environment},
        subnets=network.get("Subnets"),
        security_group_ids=network.get("SecurityGroupIds"),
        **compute,
    )
    estimator.fit(inputs.inputs, wait=False)


def train(file: Path, session: Any) -> None:
    """ModelTrainer: SDK v3's trainer, which v2 has too, elsewhere."""
    try:
        from sagemaker.core.helper.session_helper import Session
        from sagemaker.core.training.configs import Compute, InstanceGroup, Networking, SourceCode
        from sagemaker.train import ModelTrainer
    except ModuleNotFoundError:
        from sagemaker.modules import Session
        from sagemaker.modules.configs import Compute, InstanceGroup, Networking, SourceCode
        from sagemaker.modules.train import ModelTrainer

    inputs, job = inputs_of(file), job_of(file)
    resources, network = job["ResourceConfig"], job.get("VpcConfig", {})
    if groups := resources.get("InstanceGroups"):
        compute = Compute(
            instance_groups=[
                InstanceGroup(
                    instance_group_name=group["InstanceGroupName"],
                    instance_type=group["InstanceType"],
                    instance_count=group["InstanceCount"],
                )
                for group in groups
            ]
        )
    else:
        compute = Compute(instance_type=resources["InstanceType"], instance_count=resources["InstanceCount"])
    trainer = ModelTrainer(
        training_image=job["AlgorithmSpecification"]["TrainingImage"],
        role=job["RoleArn"],
        base_job_name=file.stem,
        sagemaker_session=Session(session, default_bucket=STAGING),
        source_code=SourceCode(source_dir="src", entry_script="train.py") if file.stem in sys.argv[2:] else None,
        environment={**inputs.environment},
        networking=Networking(subnets=network["Subnets"], security_group_ids=network["SecurityGroupIds"])
        if network
        else None,
        compute=compute,
    )
    trainer.train(input_data_config=inputs.input_data_config, wait=False, logs=False)


def main() -> None:
    sys.addaudithook(only_this_machine)
    folder = Path(sys.argv[1])
    assert Path.cwd() == folder and (folder / "src/train.py").is_file(), "start this in the folder made for it"
    assert os.environ["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")

    from launcher.errors import RefusedError
    from launcher.estimator import estimator_inputs

    session, sent = recording()
    found: dict[str, dict[str, Any]] = {}
    trainers = (fit, train) if estimator_inputs(folder / "plain.yaml").sdk.major == 2 else (train,)
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.json")]):
        found[file.stem] = {}
        for trainer in trainers:
            sent.clear()
            try:
                trainer(file, session)
                (found[file.stem][trainer.__name__],) = ({"sent": request} for request in sent)
            except RefusedError as error:
                assert not sent
                found[file.stem][trainer.__name__] = {"refused": str(error)}
    sent.clear()
    runpy.run_path(str(folder / "example.py"))
    (found["example"],) = ({trainers[0].__name__: {"sent": request}} for request in sent)
    (folder / "found").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
