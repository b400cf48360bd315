"""The channels of a spec as objects of SageMaker's Python SDK, for users who have an Estimator or a ModelTrainer.

    inputs = estimator_inputs("job.yaml")
    trainer.train(input_data_config=inputs.input_data_config)     # ModelTrainer (SDK v3)
    estimator.fit(inputs.inputs)                                  # PyTorch and every other Estimator (SDK v2)

The objects have every member of the planned request's entries, so the SDK sends what `--dry-run` shows. SDK v3's `InputData` is
not used, since it has no input mode, compression, wrapper or shuffle seed. `code:` is left out, since a trainer has its own code.
The settings of S3Connector channels and of augmented manifests are environment variables: `environment`.

The SDK's two majors keep their classes in different modules and cannot share an environment; the modules are in a table and are
imported when an object is made. Nothing else of the launcher imports the SDK.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from os import PathLike
from typing import Any, NamedTuple

from pydantic import ValidationError

import launcher
from launcher.errors import RefusedError, SpecPath, did_you_mean, dotted
from launcher.planning import Plan
from launcher.request.build import channel_variables
from launcher.request.view import file_system_source, s3_source
from launcher.spec.job import JobSpec
from launcher.spec.model import spec_name
from sagemaker_channels import contract


class _Sdk(NamedTuple):
    """The modules of a major version of the SDK, and how its trainer treats channels."""

    major: int
    shapes: str  # the module of Channel
    serializing: str  # the module of `serialize`, which makes the request of a Channel
    inputs: str  # the module of TrainingInput and FileSystemInput
    mode_parameter: str  # the trainer's, for the mode of channels that have none of their own


_INSTALL = "pip install 'sagemaker-launch[sdk]'"
_V3_MODULES = ("sagemaker.core.shapes", "sagemaker.core.utils.utils", "sagemaker.core.inputs")
_SDKS = {
    "2": _Sdk(2, "sagemaker_core.shapes", "sagemaker_core.main.utils", "sagemaker.inputs", "input_mode"),
    "3": _Sdk(3, *_V3_MODULES, "training_input_mode"),
}


@dataclass(frozen=True)
class EstimatorInputs:
    """What a trainer needs for the channels of a spec. Every access makes new objects."""

    entries: tuple[Mapping[str, Any], ...]
    """The entries of InputDataConfig, as planned and as boto3 accepts them."""
    environment: Mapping[str, str]
    """Variables to add to the trainer's `environment`: the settings of S3Connector channels, and the attribute names of
    augmented manifests."""

    @property
    def sdk(self) -> _Sdk:
        """The installed SDK. Raises ImportError if there is none, RefusedError if its major version is unknown."""
        return _installed()[0]

    @property
    def version(self) -> str:
        """The installed SDK's version. Raises as `sdk` does."""
        return _installed()[1]

    @property
    def input_data_config(self) -> list[Any]:
        """Channel objects, for `ModelTrainer(input_data_config=...)`, `.train(...)` and `HyperparameterTuner.tune(...)`.

        Raises RefusedError for a member that the installed SDK's Channel lacks, and for a value that it drops: SDK 3.27
        and v2's ModelTrainer do not send values that are false in Python, such as a shuffle seed of 0.
        """
        return [self._channel(entry) for entry in self.entries]

    @property
    def inputs(self) -> dict[str, Any] | None:
        """Channel name -> TrainingInput or FileSystemInput, for `Estimator.fit(...)`; None if there are none.

        Raises RefusedError for a data source that neither can describe. (SDK v3 has the two classes, but none of its
        trainers accepts them.)
        """
        return {entry["ChannelName"]: self._input(entry) for entry in self.entries} or None

    def channels(self, *names: str) -> Any:
        """Return the channels, or those of these names: `input_data_config` for SDK v3, `inputs` for SDK v2.

        Raises KeyError for a name that SageMaker delivers no channel of.
        """
        known = [entry["ChannelName"] for entry in self.entries]
        for name in names:
            if name not in known:
                raise KeyError(f"{name!r} is not a channel that SageMaker delivers{did_you_mean(name, known)}")
        wanted = tuple(entry for entry in self.entries if not names or entry["ChannelName"] in names)
        chosen = replace(self, entries=wanted)
        return chosen.inputs if self.sdk.major == 2 else chosen.input_data_config

    def _channel(self, entry: Mapping[str, Any]) -> Any:
        shapes, serializing = import_module(self.sdk.shapes), import_module(self.sdk.serializing)
        try:
            made = shapes.Channel(**_snake_case(entry))
        except ValidationError as error:
            first = error.errors()[0]
            raise self._refusal(entry, "Channel", f"{dotted(first['loc'])}: {first['msg']}") from error
        for place, value in _changed_members(entry, serializing.serialize(made)):
            raise self._refusal(entry, "Channel", f"{dotted(place)}: {value!r} is dropped when it is sent")
        return made

    def _input(self, entry: Mapping[str, Any]) -> Any:
        """Return a TrainingInput or FileSystemInput whose `config` is the entry.

        Both document the attribute `config`, which `fit` sends unchanged with the channel's name. Their constructors are not
        enough: FileSystemInput has no mode, and TrainingInput adds a distribution.
        """
        inputs = import_module(self.sdk.inputs)
        if in_s3 := s3_source(entry):
            made = inputs.TrainingInput(in_s3["S3Uri"])
        elif source := file_system_source(entry):
            made = inputs.FileSystemInput(source["FileSystemId"], source["FileSystemType"], source["DirectoryPath"])
        else:
            raise self._refusal(entry, "TrainingInput", f"it has no {' or '.join(entry['DataSource'])}")
        made.config = {member: copy.deepcopy(value) for member, value in entry.items() if member != "ChannelName"}
        return made

    def _refusal(self, entry: Mapping[str, Any], name: str, why: str) -> RefusedError:
        return RefusedError(
            f"channels.{entry['ChannelName']}: SDK {self.version}'s {name} cannot carry this channel: {why}; "
            "use a newer SDK, or send the request with `launch`"
        )


def estimator_inputs(spec: JobSpec | str | PathLike[str]) -> EstimatorInputs:
    """Return the channels of a spec, or of a spec's file, for the installed SDK; `entries` needs none.

    Warns (UserWarning) about settings that the trainer needs besides, and with planning's warnings about the channels.

    Raises:
        SpecError: The spec is wrong; `problems` has everything that was found.
    """
    if not isinstance(spec, JobSpec):
        spec = launcher.load(str(spec))
    plan = launcher.plan(spec.model_copy(update={"code": None}))
    entries = tuple(plan.request.get("InputDataConfig", ()))
    variables = plan.request.get("Environment", {}).items()
    connectors = {name: text for name, text in variables if name.startswith(contract.CONNECTOR_VARIABLE)}
    made = EstimatorInputs(entries, connectors | channel_variables(entries))
    for warning in _warnings(plan, made):
        warnings.warn(warning, stacklevel=2)
    return made


def _installed() -> tuple[_Sdk, str]:
    """Return the installed SDK and its version, without importing it, which takes seconds."""
    try:
        version = metadata.version("sagemaker")
    except metadata.PackageNotFoundError:
        message = f"sagemaker is not installed, and the objects of its SDK need it: {_INSTALL}"
        raise ImportError(message, name="sagemaker") from None
    if (sdk := _SDKS.get(version.partition(".")[0])) is None:
        raise RefusedError(f"sagemaker {version} is installed, but this is written for sagemaker 2 and 3: {_INSTALL}")
    return sdk, version


def _warnings(plan: Plan, made: EstimatorInputs) -> Iterator[str]:
    """Yield the settings that the trainer needs besides the objects, and planning's warnings about channels."""
    yield from (str(problem) for problem in plan.warnings if problem.path[:1] == ("channels",))
    if connectors := [name for name in made.environment if name.startswith(contract.CONNECTOR_VARIABLE)]:
        yield (
            f"{len(connectors)} channel(s) that the script itself reads from S3 are environment variables: "
            "pass the trainer environment={**inputs.environment}"
        )
    if len(made.environment) > len(connectors):
        yield (
            "open_channel finds the names of an augmented manifest's attributes, and which Pipes are shuffled, in environment "
            "variables: pass the trainer environment={**inputs.environment}"
        )
    try:
        sdk = made.sdk
    except (ImportError, RefusedError):  # the entries need no SDK
        return
    mode = plan.request.get("AlgorithmSpecification", {}).get("TrainingInputMode", "File")
    without = [entry["ChannelName"] for entry in made.entries if "InputMode" not in entry]
    if without and mode != "File":
        yield f"{', '.join(without)}: no input mode of its own; pass the trainer {sdk.mode_parameter}={mode!r}"


def _changed_members(entry: Any, sent: Any, place: SpecPath = ()) -> Iterator[tuple[SpecPath, Any]]:
    """Yield the innermost members of an entry that are not sent unchanged, with their values."""
    if isinstance(entry, Mapping) and entry:
        for member, value in entry.items():
            inner = sent.get(member) if isinstance(sent, Mapping) else None
            yield from _changed_members(value, inner, (*place, member))
    elif entry != sent:
        yield place, entry


def _snake_case(value: Any) -> Any:
    """Return the request's members with the names of the SDK's shapes: `S3DataSource` -> `s3_data_source`."""
    if isinstance(value, Mapping):
        return {spec_name(member): _snake_case(inner) for member, inner in value.items()}
    return [_snake_case(item) for item in value] if isinstance(value, list) else value
