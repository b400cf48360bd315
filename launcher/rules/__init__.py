"""All problems of a spec: limits of botocore's model (`aws_model`), and rules across fields (the table below).

A new rule is a decorated function in a subject's module and an example of its code in examples.yaml beside it; a new subject is a
module and its name in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any

from launcher.errors import Location, Problem, SpecPath, without_repetitions
from launcher.request.build import Built, build_request
from launcher.request.image_uris import WANTED as IMAGE_KEYS
from launcher.request.origin import Origin
from launcher.request.view import IMAGE, Draft
from launcher.rules.built_in import algorithms as built_in
from launcher.rules.channels import content_types, data_sources, entries, modes, uris
from launcher.rules.instances import resources, stopping
from launcher.rules.job import code, container_image, network, output, settings
from launcher.rules.remedies import remedy
from launcher.rules.rule import Rule
from launcher.rules.team_rules import team_problems
from launcher.spec.aws_model import violations
from launcher.spec.job import JobSpec
from launcher.spec.names import MadeName, beginning

_IMAGE_PLACES: dict[str, SpecPath] = {"region": ("region",), "instance_type": ("ResourceConfig", "InstanceType")}
# In the order of the documentation.
SUBJECTS = (
    *(settings, code, container_image, network, output),
    *(resources, stopping),
    *(uris, entries, content_types, modes, data_sources),
    built_in,
)
RULES = tuple(rule for subject in SUBJECTS for rule in vars(subject).values() if isinstance(rule, Rule))


def find_problems(
    spec: JobSpec,
    job_name: str | None = None,
    unknown: Iterable[SpecPath] = (),
    built: Built | None = None,
    today: date | None = None,
) -> list[Problem]:
    """Return every problem of a spec that can be known offline: the service model's limits first, then the rules'.

    A rule that looks at something that is wrong already reports nothing: what it would find follows from the first error.
    Problems of a `job_name` that is not made from the spec have the place of `--name`. `unknown` are the places of the spec that
    were left out because of their errors. Without `today`, no image is too old.
    """
    given = job_name if job_name is not None and not isinstance(job_name, MadeName) else None
    request, origin, image_error = built or build_request(spec, given or "")
    if given is None and origin.place(("TrainingJobName",))[0] != "request":
        made = "name" if spec.base_name is None else beginning(spec.base_name)
        request = {**request, "TrainingJobName": made if spec.training_job_name is None else spec.training_job_name}
    broken = list(violations(request))
    problems = list(_of_limits(broken, request, origin, spec, given))
    if image_error is not None:
        key = image_error.key
        path = ("image", key) if key in IMAGE_KEYS else origin.place(_IMAGE_PLACES.get(key, IMAGE))
        if not any(each.path == path for each in problems):  # such as an instance type without ml.
            problems.append(Problem(path, str(image_error), "image-unknown", location=spec.locate(path)))
    right = _without(request, [found.path for found in broken if found.code in ("aws-type", "aws-unknown-member")])
    wrong = _wrong_members(right, origin, unknown, broken)
    for rule in RULES:
        draft = Draft(spec, right, given is not None, today, wrong=wrong)  # one for each, since it notes what is read
        for path, message in rule.find(draft):
            place = origin.place(path)
            if not any(_follows(place, cause) for cause in draft.causes):
                problems.append(Problem(place, message, rule.code, rule.severity, spec.locate(place)))
    return [*problems, *without_repetitions(list(team_problems(spec, origin)))]


def _of_limits(
    broken: Iterable[Problem], request: dict[str, Any], origin: Origin, spec: JobSpec, given: str | None
) -> Iterator[Problem]:
    """Yield broken limits of the service model at their places in the spec, those of a `given` name at `--name`, with remedies."""
    for violation in broken:
        by_a_rule = violation.path == ("InputDataConfig",) and violation.code == "aws-max"
        if by_a_rule or _is_the_jobs_mode(violation, request, spec):
            continue
        path = origin.place_of_member(violation.path)
        message = violation.message + remedy(violation, request, str(path[-1]))
        location = spec.locate(path)
        if given is not None and violation.path == ("TrainingJobName",) and path[0] != "request":
            path, location = (), Location("--name", 1, 1, given)
        yield Problem(path, message, violation.code, location=location)


def _wrong_members(
    right: dict[str, Any], origin: Origin, unknown: Iterable[SpecPath], broken: Iterable[Problem]
) -> dict[SpecPath, SpecPath]:
    """Return the members whose value is missing or wrong because of an error, each with the error's place in the spec."""
    places = [(_innermost(right, member), path) for path in unknown for member in origin.set_by(path)]
    ends = [_innermost(right, each.path) for each in broken if each.path and each.code != "aws-required"]
    places += [(end, origin.place_of_member(end)) for end in ends]
    # Of a channel that is wrong as a whole, the rest is judged as it is.
    whole = {member for member, _ in places if isinstance(member[-1], int)}
    return {member: path for member, path in places if member[:2] not in whole}


def _is_the_jobs_mode(violation: Problem, request: dict[str, Any], spec: JobSpec) -> bool:
    """Return whether a wrong mode of a channel is the job's, which is reported there."""
    match violation.path:
        case ("InputDataConfig", int(index), "InputMode") if "InputDataConfig" not in (spec.request or {}):
            channel = spec.all_channels[request["InputDataConfig"][index]["ChannelName"]]
            return "input_mode" not in channel.model_fields_set
    return False


def _follows(place: SpecPath, cause: SpecPath) -> bool:
    """Return whether a finding at `place` of a rule that read what is wrong at `cause` may follow from it.

    A finding about one channel does not follow from another channel.
    """
    return not (_channel(place) and _channel(cause)) or _channel(place) == _channel(cause)


def _channel(place: SpecPath) -> SpecPath:
    """Return the place of the channel that a place is in; an empty one if it is in none."""
    return place[:2] if place[:1] == ("channels",) else place[:3] if place[:2] == ("request", "InputDataConfig") else ()


def _without(value: Any, paths: Iterable[SpecPath]) -> Any:
    """Return a copy of a request without the members at `paths`, whose type is wrong, so that rules can rely on types.

    A wrong item takes its list with it, so that the others keep their places.
    """
    below: dict[str | int, list[SpecPath]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    if isinstance(value, list):
        return [_without(item, below[at]) if at in below else item for at, item in enumerate(value)]
    ends = {key: 1 if isinstance(item, list) else 0 for key, item in value.items()}
    kept = {key: item for key, item in value.items() if all(len(rest) > ends[key] for rest in below.get(key, ()))}
    return {key: _without(item, below[key]) if key in below else item for key, item in kept.items()}


def _innermost(value: Any, member: SpecPath) -> SpecPath:
    """Return the place of a member in a request, or of the first around it that has no members there."""
    for end, part in enumerate(member, 1):
        value = value.get(part) if isinstance(value, dict) else value[part]
        if not isinstance(value, dict | list):
            return member[:end]
    return member
