"""Rules on `code.command`: what bash reads in it, and whether its launcher knows of all hosts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from launcher.request.view import Draft
from launcher.rules.rule import Mistake, error, warning
from sagemaker_channels.start.command import has_arguments, program_of

# What a line can end with or have in it, so that a word at its end is no argument of the training.
_SPLITTING = {"|", "|&", "&", "<<", "<<<"}
_ENDING = {";", ";;", "&&", "||", "fi", "done", "esac", "}", ")"}
_OF_HOSTS = {  # launcher -> the options by which it knows of several hosts, any of which is enough, and what to write
    "accelerate": (
        ("--num_machines", "--num-machines", "--config_file", "--config-file"),
        "accelerate launch --num_machines $SM_HOST_COUNT --machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR"
        " --main_process_port $MASTER_PORT --num_processes N",
    ),
    "deepspeed": (
        ("--no_ssh",),
        "deepspeed --no_ssh --hostfile $LAUNCHER_HOSTFILE --node_rank $NODE_RANK --master_addr $MASTER_ADDR"
        " --master_port $MASTER_PORT",
    ),
}


@error("code-command")
def hyperparameters_have_a_place(draft: Draft) -> Iterator[Mistake]:
    r"""Hyperparameters follow a shell line, or take the place of its `"$@"`, and `${NAME}` would be this machine's variable."""
    code = draft.spec.code
    if code is None or code.command is None:
        return
    if any(place[:2] == ("code", "command") for place in draft.spec.variables.written):
        message = "has ${NAME}, which is a variable of this machine; write $NAME for one of the container"
        yield ("code", "command"), message
    passes = draft.get("HyperParameters") and code.arguments != "none"
    if passes and isinstance(code.command, str) and not has_arguments(code.command) and _ends_open(code.command):
        message = 'is more than one command; write "$@" where the hyperparameters belong, or arguments: none'
        yield ("code", "command"), message


@warning("code-command-hosts")
def launcher_knows_of_all_hosts(draft: Draft) -> Iterator[Mistake]:
    """A command runs on every host, so without the options for several hosts each host trains a model of its own."""
    code = draft.spec.code
    if code is None or code.command is None or (draft.instance_count or 1) == 1:
        return
    options, instead = _OF_HOSTS.get(program_of(code.command), ((), ""))
    words: Sequence[str] = code.command.split() if isinstance(code.command, str) else code.command
    if options and not any(word.partition("=")[0] in options for word in words):
        message = f"runs on each of {draft.instance_count} hosts, each by itself; write {instead}"
        yield ("code", "command"), message


def _ends_open(line: str) -> bool:
    """Return whether words that are added to the end of a line may be no arguments of its last command."""
    lexer = shlex.shlex(line.strip(), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = [*lexer]
    except ValueError:  # an open quote, as in a here-document
        return True
    if not words:
        return False
    last_line = line.strip().rpartition("\n")[2]
    return not _SPLITTING.isdisjoint(words) or words[-1] in _ENDING or re.search(r"(^|\s)#", last_line) is not None
