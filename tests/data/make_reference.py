"""The pages of the reference that are derived from docstrings and from the tables of codes, as Markdown for make_docs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pydantic import BaseModel

import launcher
import sagemaker_channels
from launcher.jobs.causes import SCRIPT_FAILED, explained, rows
from launcher.reference.problem_codes import distinct_lines
from launcher.rules.codes import offline_codes
from launcher.rules.examples import details, examples

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$", re.MULTILINE)
_WIDTH = 100
_PARAGRAPH = "\n\n"
_OURS = ("launcher", "sagemaker_channels")


def codes() -> str:
    """Return a section for each code: the rules in the order of their checks, then the others."""
    return "\n\n".join(_code(code, severity, why) for code, (severity, why) in offline_codes().items())


def _code(code: str, severity: str, why: str) -> str:
    both = zip(("wrong", "right"), examples().get(code, ()), strict=False)
    lines = [line for which, example in both for line in (f"# {which}", distinct_lines(example).rstrip())]
    shown = "\n".join(["```yaml", *lines, "```"]) if lines else ""
    reason = f"{severity.capitalize()}. {_escaped(inspect.cleandoc(why))}"
    return "\n\n".join(filter(None, (f"## `{code}`", reason, _escaped(details(code).strip()), shown)))


def causes() -> str:
    """Return a section for each likely cause of a failed job, with its remedies."""
    parts = []
    for code in dict.fromkeys([*(row.code for row in rows()), SCRIPT_FAILED]):
        _, *texts = (explained(code) or "").strip().split("\n\n")
        pairs = (text.split("\n") for text in texts)
        parts += [f"## `{code}`", *(f"*Cause:* {_escaped(cause)}.\n\n*Remedy:* {_escaped(do)}." for cause, do in pairs)]
    return "\n\n".join(parts)


def launcher_api() -> str:
    """Return the public names of `launcher`, with it in front, as they are used."""
    return _names(launcher, "launcher.")


def library_api() -> str:
    """Return the public names of `sagemaker_channels`."""
    return _names(sagemaker_channels)


def _names(module: ModuleType, above: str = "") -> str:
    return "\n\n".join(_name(f"{above}{name}", getattr(module, name)) for name in sorted(module.__all__, key=str.lower))


def _name(path: str, value: Any) -> str:
    parts = [f"## {path}", _signature(path.rpartition(".")[2], value), _as_markdown(inspect.getdoc(value) or "")]
    if inspect.isclass(value) and not issubclass(value, BaseException):
        parts += [f"`.{name}`: {' '.join(text.partition(_PARAGRAPH)[0].split())}" for name, text in members(value)]
    return "\n\n".join(filter(None, parts))


def members(value: type) -> Iterator[tuple[str, str]]:
    """Yield the public methods and properties that a class of ours defines, each as it is called, with its docstring."""
    for name, member in inspect.getmembers(value):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__.startswith(_OURS):
            parameters = _parameters(inspect.signature(function))
            call = f"({', '.join(each for each in parameters if each != 'self')})" if function is member else ""
            yield f"{name}{call}", inspect.getdoc(member) or ""


def _signature(name: str, value: Any) -> str:
    """Return a call as a block of code; none of exceptions and of a spec, whose keys have a page of their own."""
    if isinstance(value, type) and issubclass(value, BaseException | BaseModel):
        return ""
    parameters = list(_parameters(inspect.signature(value)))
    text = f"{name}({', '.join(parameters)})"
    if len(text) > _WIDTH:
        text = f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + ")"
    return f"```python\n{text}\n```"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    star = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        annotation = getattr(each.annotation, "__forward_arg__", each.annotation)  # a NamedTuple's are ForwardRefs
        text = str(each.replace(annotation=annotation)).replace(repr(annotation), str(annotation))
        yield re.sub(r"<.* at 0x\w+>", "...", text)


def _as_markdown(text: str) -> str:
    """Return a docstring in google style as paragraphs, and its sections as lists."""
    first, *others = _SECTION.split(text)
    parts = [_escaped(first.strip())]
    for title, body in zip(others[::2], others[1::2], strict=True):
        lines = inspect.cleandoc(body)
        if title in ("Returns", "Yields"):
            parts.append(f"**{title}** {_escaped(' '.join(lines.split()))}")
        else:
            entries = re.split(r"\n(?=\S)", lines)
            rows = [re.sub(r"^([\w.*, ]+): ", r"`\1`: ", " ".join(each.split())) for each in entries]
            parts.append("\n".join([f"**{title}**", "", *(f"- {_escaped(row)}" for row in rows)]))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, apart from what is in backticks."""
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(text.split("`")))
