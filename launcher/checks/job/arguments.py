"""Rules on how hyperparameters reach a script as its arguments."""

from __future__ import annotations

from collections.abc import Iterator

from entrypoints.job.hyperparameters import argument, decoded
from launcher.checks.job.code import code_by_toolkit
from launcher.checks.rule import Mistake, error, warning
from launcher.request.aws_model import shown
from launcher.request.view import Draft


@error("code-arguments-toolkit")
def toolkit_passes_arguments_in_its_own_style(draft: Draft) -> Iterator[Mistake]:
    """The toolkit passes hyperparameters in Python's forms; it does not know `code.argument_style`.

    Source: aws/sagemaker-training-toolkit, mapping.py.
    """
    code = code_by_toolkit(draft)
    if code and code.argument_style != "toolkit":
        message = "needs the launcher's boot.py, but the toolkit starts this code; free a channel, or write toolkit"
        yield ("code", "argument_style"), message


@warning("hyperparameter-changed")
def hyperparameters_arrive_as_written(draft: Draft) -> Iterator[Mistake]:
    """A script gets hyperparameters as AWS's launchers pass them: parsed as JSON and formatted again, so some texts change.

    By default (`code.argument_style: toolkit`) they get Python's forms, as in SDK v2: `1e-3` becomes `0.001`, `["a"]` becomes
    `['a']`, `{a: 1}` becomes `a=1`. With `json`, as in SDK v3's ModelTrainer, `["a"]` and `{"a": 1}` stay, and `1e-3` becomes
    `0.001`. The same holds for SM_HP_*; hyperparameters.json has each text as written. `true` gets no warning: it becomes
    Python's `True` by default and stays `true` with `json`.
    Source: sagemaker-training 5.1.4, mapping.py; sagemaker-train 1.27.0, container_drivers/common/utils.py.
    """
    code = draft.spec.code
    if code is None:
        return
    for name, text in draft.request.get("HyperParameters", {}).items():
        value = decoded(text)
        arrives = argument(value, code.argument_style)
        if arrives == text or isinstance(value, bool):
            continue
        if ("HyperParameters", name) in draft.spec.masked:
            message = "changes on its way to the script; set the variable to plain text, or to JSON in its usual form"
        elif code.argument_style == "toolkit" and isinstance(value, dict | list):
            as_json = shown(argument(value, "json"))
            message = f"reaches the script as {shown(arrives)}; code.argument_style: json passes {as_json}"
        elif isinstance(value, str):  # not shown, since it can be a secret
            message = "reaches the script without the quotes inside; delete them, which changes nothing else"
        else:
            message = f"reaches the script as {shown(arrives)}; write it so, which changes nothing else"
        yield ("hyperparameters", name), message
