"""The spec of a training job, as a user writes it.

This module defines keys and types only, and of these only what is ours: all other keys are AWS's members (`structures`). Required
members, enums, patterns and bounds come from botocore's service model, too (`aws_model`), and rules across keys are in `rules`. So
no field is required here, and an incomplete spec can be checked for all its other problems.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, PrivateAttr, Tag, create_model

from launcher.errors import Location, SpecPath
from launcher.spec.aws_model import ALGORITHM, REQUEST
from launcher.spec.channels import Channel
from launcher.spec.model import Section, spec_name
from launcher.spec.own_keys import OwnKeys
from launcher.spec.structures import fields, members
from launcher.spec.team import Team
from launcher.spec.values import Setting, Text
from launcher.spec.variables import Variables


class Image(Section):
    """One of AWS's own images, looked up by framework or algorithm and versions."""

    framework: Text | None = None
    """The framework: pytorch, tensorflow, huggingface, sklearn, xgboost, ..."""
    algorithm: Text | None = None
    """A built-in algorithm, in place of `framework`: image-classification, linear-learner, ..."""
    version: Text | None = None
    """The version of the framework or algorithm, such as '2.13'."""
    py_version: Text | None = None
    """The version of Python, such as py312; by default the newest that the framework's version has."""
    base_framework_version: Text | None = None
    """For huggingface, the framework that it is built on, such as pytorch2.9.0."""


if TYPE_CHECKING:
    ImageOrUri = Image | str
else:
    ImageOrUri = Annotated[
        Annotated[Image, Tag("image")] | Annotated[Text, Tag("uri")],
        Discriminator(lambda value: "image" if isinstance(value, dict | Image) else "uri"),
    ]


class JobKeys(OwnKeys):
    """The keys of ours, and those of AWS's that are more than their member, or have other keys below."""

    training_job_name: Text | None = None
    """The job's name, used as it is; it can be used once per account and region."""
    image: ImageOrUri | None = None
    """The container image: its URI, or `{framework: pytorch, version: ...}` for AWS's own, which needs `region`."""
    training_input_mode: Text | None = "File"
    """The input mode of channels without `input_mode`."""
    hyperparameters: dict[Text, Setting] | None = None
    """Settings of the training, passed to the script as arguments; numbers are sent as written."""
    environment: dict[Text, Setting] | None = None
    """Environment variables of the container."""
    tags: dict[Text, Setting] | None = None
    channels: dict[Text, Channel] | None = None

    _variables: Variables = PrivateAttr(default_factory=Variables)
    _locate: Callable[[SpecPath], Location | None] | None = PrivateAttr(default=None)
    _team: Team | None = PrivateAttr(default=None)

    def __repr__(self) -> str:
        """The spec's name and file, without its settings, which may be secret."""
        file = self.locate(())
        return f"<JobSpec of {self.training_job_name or self.base_name}{f' in {file.file}' if file else ''}>"

    def locate(self, path: SpecPath) -> Location | None:
        """Return the location of `path`, or of the innermost key around it, in the file that it was read from."""
        return self._locate(path) if self._locate else None

    def folder_of(self, path: SpecPath) -> str:
        """Return the folder of the file in which `path` is written, from which its relative path starts."""
        location = self.locate(path)
        return str(Path(location.file).parent) if location else "."

    @property
    def variables(self) -> Variables:
        """The texts that name environment variables."""
        return self._variables

    @property
    def team(self) -> Team:
        """The files below the spec, with what they demand; empty if the spec was made without them."""
        return self._team or Team()

    @property
    def all_channels(self) -> Mapping[str, Channel]:
        """The channels by name, in the file's order."""
        return self.channels or {}


if TYPE_CHECKING:

    class JobSpec(JobKeys):
        """One training job, as written."""

        def __init__(self, **keys: Any) -> None:
            """Make a spec of keys of ours and AWS's."""

        def __getattr__(self, key: str) -> Any:
            """Return the value of one of AWS's keys, which the installed botocore defines."""
else:
    _OF_AWS = fields(REQUEST) | fields(ALGORITHM)
    _KEYS = {key: _OF_AWS[spec_name(place[-1])] for key, place in members().items() if key not in JobKeys.model_fields}
    JobSpec = create_model("JobSpec", __base__=JobKeys, __doc__="One training job, as written.", **_KEYS)
