"""How hyperparameters reach a training script: as its arguments, as SM_HPS and as SM_HP_*.

AWS's two launchers read each hyperparameter as JSON and write it in forms of their own, which scripts depend on:

- `toolkit`, the sagemaker-training toolkit, which SDK v2 starts: Python's forms (`True`, `0.001`, `['a']`), a mapping as `k=v`;
- `json`, the drivers of SDK v3's ModelTrainer: JSON (`true`, `{"k": "v"}`).

Source: sagemaker-training 5.1.4, `mapping.py`, `params.py`; sagemaker-train 1.27.0, `container_drivers/common/utils.py` and
`scripts/environment.py`. The tests compare with what both of them passed. Standard library only: the launcher imports it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# Hyperparameters that the SDK sends to the toolkit, not to the script. The toolkit knows these itself, and passes all others that
# begin with the prefix to the framework (SM_FRAMEWORK_PARAMS).
TOOLKIT_PREFIX = "sagemaker_"
TOOLKIT_HYPERPARAMETERS = frozenset(
    {
        "sagemaker_program",
        "sagemaker_submit_directory",
        "sagemaker_enable_cloudwatch_metrics",
        "sagemaker_region",
        "sagemaker_container_log_level",
        "sagemaker_job_name",
        "default_user_module_name",
        "_tuning_objective_metric",
        "sagemaker_s3_output",
    }
)

# How an argument is written; `name=value` is Hydra's, and with `none` a script reads SM_HPS.
FORMS = ("--name value", "--name=value", "name=value", "none")


def decoded(value: object) -> Any:
    """Return a hyperparameter's value as both launchers read it: as JSON if it is JSON, else the text itself."""
    if not isinstance(value, str):
        return value  # local set-ups write numbers
    try:
        return json.loads(value)
    except ValueError:
        return value


def user_hyperparameters(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters that the toolkit passes to the script."""
    return {
        name: value
        for name, value in hyperparameters.items()
        if name not in TOOLKIT_HYPERPARAMETERS and not name.startswith(TOOLKIT_PREFIX)
    }


def argument(value: Any, style: str) -> str:
    """Return a decoded hyperparameter as the script's argument, in the style `toolkit` or `json`."""
    if style == "json":
        return _json_text(decoded(value))  # SDK v3 decodes twice: JSON's text '"5"' becomes 5
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return "" if value is None else str(value)


def command_line_arguments(hyperparameters: Mapping[str, Any], style: str, form: str = FORMS[0]) -> list[str]:
    """Return the script's arguments, in one of FORMS.

    `toolkit`: sorted by name, `-n value` for a name of one letter, without the toolkit's own; `json`: all, in their order.
    """
    passed = [*hyperparameters.items()] if style == "json" else sorted(user_hyperparameters(hyperparameters).items())
    arguments = []
    for name, value in passed if form != "none" else ():
        option = ("--" if style == "json" else ("", "-", "--")[min(len(name), 2)]) + name
        passed_as = argument(value, style)
        if form == FORMS[0]:
            arguments += [option, passed_as]
        else:
            arguments.append(f"{option if form.startswith('--') else name}={passed_as}")
    return arguments


def hyperparameter_variables(hyperparameters: Mapping[str, Any], style: str) -> dict[str, str]:
    """Return SM_HPS and SM_HP_*. Under `toolkit`, SDK v3's names with the hyphens folded are set besides the toolkit's."""
    if style == "json":
        folded = {_folded(name): _json_text(value) for name, value in hyperparameters.items()}
        return {**folded, "SM_HPS": _json_text(dict(hyperparameters))}
    passed = user_hyperparameters(hyperparameters)
    folded = {_folded(name): text(value) for name, value in passed.items()}
    return {
        **folded,
        **{f"SM_HP_{name.upper()}": text(value) for name, value in passed.items()},
        "SM_HPS": text(passed),
    }


def text(value: object) -> str:
    """Return a value as the toolkit writes it into a variable."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _json_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _folded(name: str) -> str:
    """A shell cannot read SM_HP_LEARNING-RATE, so SDK v3 folds the hyphen."""
    return f"SM_HP_{name.replace('-', '_').upper()}"
