"""Rules on the code that is sent with the job: its start, its command in bash, and how hyperparameters reach it as arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from launcher.request.view import Draft
from launcher.rules.channels.entries import MAX_CHANNELS
from launcher.rules.rule import Mistake, error, warning
from launcher.spec.aws_model import ALGORITHM, shown
from launcher.spec.own_keys import Code
from sagemaker_channels import contract
from sagemaker_channels.job.hyperparameters import argument, decoded
from sagemaker_channels.start.command import has_arguments, program_of


@error("code-entry-point")
def entry_point_can_be_run(draft: Draft) -> Iterator[Mistake]:
    """The entry point is a file inside the folder: a .py file, or a program of any name. A command takes its place."""
    code = draft.spec.code
    if code is None:
        return
    if code.command is not None:
        if code.entry_point is not None:
            yield ("code", "command"), "cannot be used with entry_point; delete one of them"
        elif not any(word.strip() for word in ([code.command] if isinstance(code.command, str) else code.command[:1])):
            yield ("code", "command"), "is empty; write a line such as torchrun train.py, or a list of words"
    elif code.entry_point is None:
        message = "is missing; write the script to run, such as train.py or entrypoints/train.py, or a command"
        yield ("code", "entry_point"), message
    elif code.entry_point.endswith(".ipynb"):
        message = f"{code.entry_point!r} is a notebook, which Python cannot run; save it as a .py file"
        yield ("code", "entry_point"), message
    elif code.entry_point.startswith(("/", "~")) or ".." in code.entry_point.split("/"):
        yield ("code", "entry_point"), f"{code.entry_point!r} is outside code.directory; write a path inside it"


@error("code-or-container-entrypoint")
def code_or_container_entrypoint(draft: Draft) -> Iterator[Mistake]:
    """The launcher's own ContainerEntrypoint starts code that is sent with the job, so the spec cannot have another."""
    if draft.spec.code is not None:
        for member in ("ContainerEntrypoint", "ContainerArguments"):
            if draft.get(f"{ALGORITHM}.{member}") is not None:
                yield (ALGORITHM, member), "cannot be used with code, which has its own entrypoint; delete one of them"


@error("code-channel-name")
def code_channel_is_ours(draft: Draft) -> Iterator[Mistake]:
    """The code is sent in its own channel, so no other channel may have that name."""
    entry = draft.entry(contract.CODE_CHANNEL)
    if draft.spec.code is not None and entry is not None:
        yield entry.whole, "is the name of the channel that carries the code; choose another"


@error("code-places")
def code_goes_from_here_to_s3(draft: Draft) -> Iterator[Mistake]:
    """The code is sent from a folder of this machine to S3, so `directory` is a local path and `s3_uri` is in S3."""
    code = draft.spec.code
    if code is not None and code.s3_uri is not None and not re.match(r"s3://[^/]+", code.s3_uri):
        message = f"{code.s3_uri!r} is not an S3 URI; write where to send the code, such as s3://bucket/code"
        yield ("code", "s3_uri"), message
    if code is not None and (code.directory or "").startswith(("s3://", "https://")):
        yield ("code", "directory"), "is not on this machine; write a local folder, and its destination as code.s3_uri"


def goes_by_toolkit(code: Code, entries: Any) -> bool:
    """Return whether the sagemaker-training toolkit in the image fetches the code, beside these InputDataConfig entries."""
    return code.delivery == "submit_directory" or (code.delivery == "auto" and _fill_all_channels(entries))


def code_by_toolkit(draft: Draft) -> Code | None:
    code = draft.spec.code
    entries = draft.get("InputDataConfig") if code is not None and code.delivery == "auto" else None
    return code if code is not None and goes_by_toolkit(code, entries) else None


def _fill_all_channels(entries: Any) -> bool:
    return isinstance(entries, list) and len(entries) >= MAX_CHANNELS


@error("code-needs-channel")
def a_channel_is_free_for_code(draft: Draft) -> Iterator[Mistake]:
    """`delivery: channel` needs one of the 20 channels."""
    code = draft.spec.code
    if code is not None and code.delivery == "channel" and _fill_all_channels(draft.get("InputDataConfig")):
        message = f"needs a channel for the code, but all {MAX_CHANNELS} are taken; use auto or submit_directory"
        yield ("code", "delivery"), message


@warning("code-needs-toolkit")
def toolkit_fetches_the_code(draft: Draft) -> Iterator[Mistake]:
    """Without its own channel, the code is fetched by sagemaker-training, which the image must then contain."""
    if code := code_by_toolkit(draft):
        why = "as asked" if code.delivery == "submit_directory" else f"since all {MAX_CHANNELS} channels are taken"
        message = f"is sent by sagemaker_submit_directory, {why}; the image must hold the sagemaker-training toolkit"
        yield ("code",), message


@error("code-requirements-toolkit")
def toolkit_installs_requirements_txt(draft: Draft) -> Iterator[Mistake]:
    """The toolkit installs a requirements.txt at the top of the code, and no file of another name."""
    code = code_by_toolkit(draft)
    if code and code.requirements not in (None, "requirements.txt"):
        why = "is not installed by the toolkit, which fetches this code"
        yield ("code", "requirements"), f"{code.requirements!r} {why}; name it requirements.txt"


@warning("submit-directory-archive")
def submitted_code_is_an_archive(draft: Draft) -> Iterator[Mistake]:
    """The toolkit fetches sagemaker_submit_directory as one object, a gzipped tar; it cannot be a folder in S3."""
    given = (draft.get("HyperParameters.sagemaker_submit_directory") or "").strip('"')
    if given.startswith("s3://") and not re.search(r"\.(tar\.gz|tgz)$", given):
        message = "is not an archive; write the URI of a .tar.gz of the folder, or use code: {directory: FOLDER}"
        yield ("HyperParameters", "sagemaker_submit_directory"), message


@error("code-arguments-toolkit")
def toolkit_passes_arguments_in_its_own_style(draft: Draft) -> Iterator[Mistake]:
    """The toolkit passes hyperparameters in Python's forms; it does not know `code.argument_style`."""
    code = code_by_toolkit(draft)
    if code and code.argument_style != "toolkit":
        message = "needs the launcher's boot.py, but the toolkit starts this code; free a channel, or write toolkit"
        yield ("code", "argument_style"), message


@warning("hyperparameter-changed")
def hyperparameters_arrive_as_written(draft: Draft) -> Iterator[Mistake]:
    """A script gets hyperparameters as AWS's launchers pass them: parsed as JSON and formatted again, so some texts change."""
    code = draft.spec.code
    if code is None:
        return
    for name, text in (draft.get("HyperParameters") or {}).items():
        value = decoded(text)
        arrives = argument(value, code.argument_style)
        if arrives == text or isinstance(value, bool):
            continue
        is_written = {
            ("hyperparameters", name),
            ("request", "HyperParameters", name),
        } & draft.spec.variables.written.keys()
        if isinstance(value, float) and isfinite(value) and not is_written:
            continue  # the same number
        if is_written:
            message = "changes on its way to the script; set the variable to plain text, or to JSON in its usual form"
        elif code.argument_style == "toolkit" and isinstance(value, dict | list):
            as_json = shown(argument(value, "json"))
            message = f"reaches the script as {shown(arrives)}; code.argument_style: json passes {as_json}"
        else:
            # A text is not shown, since it can be a secret.
            what = "without the quotes inside" if isinstance(value, str) else f"as {shown(arrives)}"
            again = decoded(arrives)
            if type(again) is type(value) and again == value:
                message = f"reaches the script {what}; write it so, which changes neither SM_HPS nor SM_HP_*"
            else:  # such as a text that holds JSON: written without its quotes, it would become a mapping in SM_HPS
                message = (
                    f"reaches the script's arguments {what}; expect that there, or read it from SM_HPS, which keeps it"
                )
        yield ("HyperParameters", name), message


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
