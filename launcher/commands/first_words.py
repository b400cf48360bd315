"""First words that are neither a command nor a spec, and what to write in their place: the commands of other tools, and scripts."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.parsing.spec_text import is_spec

_SCRIPTS = (".py", ".sh", ".ipynb")
# What other tools call our commands -> what to write; {0} is the rest of the line.
MEANT = {
    **dict.fromkeys(("submit", "start", "train", "fit", "create", "apply", "up"), "launch {0}"),
    **dict.fromkeys(("check", "preflight", "doctor"), "launch {0} --check"),
    **dict.fromkeys(("local", "test", "debug"), "launch {0} --local --channel NAME=PATH"),
    **dict.fromkeys(("plan", "show", "render", "validate", "lint", "dry-run", "preview"), "launch {0} --dry-run"),
    **dict.fromkeys(("init", "new", "example"), "launch --example s3-file > job.yaml"),
    **dict.fromkeys(("peek", "inspect", "data"), "launch advise {0}"),
    **dict.fromkeys(("follow", "tail", "watch", "attach", "log"), "launch logs NAME --follow"),
    **dict.fromkeys(("describe", "get", "info"), "launch status NAME"),
    **dict.fromkeys(("ls", "ps", "jobs"), "launch list"),
    **dict.fromkeys(("kill", "cancel", "delete", "rm", "down"), "launch stop NAME"),
    **dict.fromkeys(("estimate", "price"), "launch cost {0}"),
    **dict.fromkeys(("import", "convert"), "launch --import FILE"),
    "explain": "launch --explain CODE",
    "schema": "launch --schema",
    "version": "launch --version",
}


def remedy(word: str, others: Sequence[str]) -> str:
    """Return what to write in place of a first word that is neither a command nor a spec; empty if that is unknown."""
    spec = " ".join(each for each in others if is_spec(each)) or "job.yaml"
    if word in MEANT:
        return f"; write {MEANT[word].format(spec)}"
    if word.endswith(_SCRIPTS):
        folder, _, name = word.rpartition("/")
        key = f"code: {{directory: {folder or '.'}, entry_point: {name}}}"
        return f"; name a script in the spec, by {key}, and write launch {spec}"
    return ""
