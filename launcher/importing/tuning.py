"""Tuning jobs -> the training jobs that they create, without the search for hyperparameters."""

from __future__ import annotations

from typing import Any

from launcher.spec.model import value_at
from sagemaker_channels.job.hyperparameters import decoded

_STATIC, _RANGES, _RESOURCES = "StaticHyperParameters", "HyperParameterRanges", "HyperParameterTuningResourceConfig"
_NOT_OF_A_JOB = {"DefinitionName", "TuningObjective", _STATIC, _RANGES, _RESOURCES}


def training_jobs(value: Any, left_out: dict[str, str]) -> Any:
    """Return data with each tuning job as its training jobs, by name; `left_out` gets what each is without, by name."""
    if isinstance(value, list):
        return [training_jobs(item, left_out) for item in value]
    if not isinstance(value, dict):
        return value
    one, several = value.get("TrainingJobDefinition"), value.get("TrainingJobDefinitions")
    if not isinstance(one, dict) and not isinstance(several, list):
        return {key: training_jobs(item, left_out) for key, item in value.items()}
    jobs = {}
    for definition in several if isinstance(several, list) else [one]:
        if isinstance(definition, dict):
            name = str(definition.get("DefinitionName") or value.get("HyperParameterTuningJobName") or "tuned")
            around = {key: value[key] for key in ("Tags", "region") if value.get(key)}
            jobs[name] = {"Name": name, "TrainingJob": {**_training_job(definition), **around}}
            left_out[name] = _search(value.get("HyperParameterTuningJobConfig"), definition.get(_RANGES))
    return jobs


def named_jobs(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the training jobs of one recorded or described job after `training_jobs`, by name."""
    tuned = {
        name: each["TrainingJob"] for name, each in found.items() if isinstance(each, dict) and "TrainingJob" in each
    }
    return tuned or {str(found["TrainingJobName"]): found}


def _training_job(definition: dict[str, Any]) -> dict[str, Any]:
    job = {key: value for key, value in definition.items() if key not in _NOT_OF_A_JOB}
    if _STATIC in definition:
        job["HyperParameters"] = definition[_STATIC]
    if isinstance(resources := definition.get(_RESOURCES), dict):
        choices = resources.get("InstanceConfigs")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        kept = {key: value for key, value in resources.items() if key not in ("InstanceConfigs", "AllocationStrategy")}
        job["ResourceConfig"] = {**kept, **first}
    return job


def _search(config: Any, ranges: Any) -> str:
    """Return what is left out, and the option of launch that tries the ends of its ranges and each of its choices."""
    ranges = ranges or value_at(config, ("ParameterRanges",))
    axes = []
    for kind in ("ContinuousParameterRanges", "IntegerParameterRanges", "CategoricalParameterRanges"):
        found = value_at(ranges, (kind,))
        for each in found if isinstance(found, list) else ():
            values = value_at(each, ("Values",)) or [value_at(each, ("MinValue",)), value_at(each, ("MaxValue",))]
            axes.append(f"--matrix {value_at(each, ('Name',))}={','.join(str(decoded(value)) for value in values)}")
    most, at_once = (
        value_at(config, ("ResourceLimits", f"Max{each}TrainingJobs")) for each in ("NumberOf", "Parallel")
    )
    if at_once:
        axes.append(f"--max-parallel {at_once}")
    search = f"the search of the tuning job ({value_at(config, ('Strategy',))}, at most {most} jobs)"
    return f"Left out: {search}; similar is launch job.yaml {' '.join(axes)}"
