"""What a secret looks like: the names of files that hold keys and passwords, and the forms of keys and tokens in other files.

A file is a secret by its name if a program writes credentials to it, or if its format is that of a key or a state with
passwords. The names are those that gitrob, npm and GitHub's .gitignore templates list, without the ones that are usual for
code and data (`settings.py`, `*.log`, `*.sql`). The forms are those of gitleaks, which have a prefix of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

PRIVATE_KEY = "private key"
# Names and paths in lower case, since a file system may ignore case. `secrets.py` and `credentials.py` are code.
_FOLDERS = {".aws", ".ssh", ".gnupg", ".kube", ".kaggle", ".azure", ".oci", ".password-store"}
_ENDINGS = (
    *(".env", ".tfvars", ".tfvars.json", ".tfstate", "_history", "_rsa", "_dsa", "_ecdsa", "_ed25519", "deploy_key"),
    *(".pem", ".key", ".p12", ".pfx", ".pkcs12", ".p8", ".ppk", ".jks", ".keystore", ".keytab", "deploy-key", ".ovpn"),
    *(".kdb", ".kdbx", ".keychain", ".keychain-db", "credentials.json", "credentials.csv", "accesskeys.csv"),
)
_NAMES = {
    *(".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".gitconfig", ".pgpass", "pgpass.conf", ".my.cnf"),
    *(".mylogin.cnf", ".vault-token", ".dockercfg", ".dockerconfigjson", ".s3cfg", ".boto", ".htpasswd", "rclone.conf"),
    *(".terraformrc", ".databrickscfg", "kaggle.json", "accesstokens.json", "rootkey.csv", "credentials"),
    *(
        f"{name}.{ending}"
        for name in ("credentials", "secret", "secrets")
        for ending in ("json", "toml", "yaml", "yml")
    ),
}
_PATHS = {
    *(".docker/config.json", ".huggingface/token", "huggingface/token", "huggingface/stored_tokens", "gh/hosts.yml"),
    *(".m2/settings.xml", "gcloud/credentials.db", "gcloud/access_tokens.db"),
}
_JSON_BEGINNINGS = ("service-account", "service_account", "client_secret")
_COPY = r"(\.(bak|backup|old|orig|save|copy|tmp|swp|[0-9]+)|~)+$"  # what an editor or a user adds to a name


def is_secret_path(path: str) -> bool:
    """Return whether a file holds secrets by its name, or a file or folder (with a final slash) by a folder that it is in."""
    *folders, name = path.lower().split("/")
    if not _FOLDERS.isdisjoint(folders):
        return True
    name = re.sub(_COPY, "", name)
    return (
        name in _NAMES
        or name.endswith(_ENDINGS)
        or name.startswith(".env")
        # Private keys as ssh-keygen names them. With another ending, id_* is code or data: id_map.json, id_lookup.py.
        or (name.startswith("id_") and "." not in name.removesuffix(".pub"))
        or (name.startswith(_JSON_BEGINNINGS) and name.endswith(".json"))
        or "/".join([*folders[-1:], name]) in _PATHS
    )


class _Form(NamedTuple):
    what: str
    marks: tuple[
        bytes, ...
    ]  # one of them is in every such secret; to look for them is ten times as fast as the pattern
    pattern: bytes  # compiled only if needed, as are the others


_BEFORE, _AFTER = rb"(?<![A-Za-z0-9_-])", rb"(?![A-Za-z0-9_-])"
_FORMS = tuple(
    _Form(what, marks, _BEFORE + pattern + _AFTER)
    for what, marks, pattern in (
        ("Hugging Face token", (b"hf_",), rb"hf_[A-Za-z0-9]{30,}"),
        ("GitHub token", (b"ghp_", b"gho_", b"ghs_", b"ghu_"), rb"gh[posu]_[A-Za-z0-9]{36,}"),
        ("GitHub token", (b"github_pat_",), rb"github_pat_[A-Za-z0-9_]{22,}"),
        ("GitLab token", (b"glpat-",), rb"glpat-[A-Za-z0-9_.-]{20,}"),
        # Of a proxy or a package index; not `https://user:${TOKEN}@host` or `https://user:password@host` of a document.
        (
            "password in a URL",
            (b"http://", b"https://"),
            rb"https?://[^\s/:@'\"]*:(?!pass|secret|token|gh[posu]_|github_pat_|glpat-|hf_)[^\s/:@'\"${}<>*]+(?=@)",
        ),
        ("Slack token", (b"xoxb-", b"xoxp-"), rb"xox[bp]-[A-Za-z0-9-]{20,}"),
    )
)
# A header alone, as in code that looks for it, is not a key: the key begins on the next line, or after the `\n` of JSON.
_PRIVATE_KEY = rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[ \t]*(?:\\r)?(?:\\n|\r?\n|\r)\s*[A-Za-z0-9+/]"
_KEY_ID = rb"(?<![A-Z0-9])A(?:KI|SI)A[A-Z0-9]{16}(?![A-Z0-9])"
_SECRET_KEY = rb"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
_MOST = 100  # secrets that are reported of one piece of a file
_FEWEST_LETTERS = 8  # different ones in a token; `hf_xxxx...` in a document has fewer
OVERLAP = 1000  # bytes, more than a token or the beginning of a key has


def secrets_in(content: bytes) -> list[tuple[int, str]]:
    """Return the line and the kind of each secret that seems to be in a part of a file. Tokens are looked for in text only."""
    return sorted({(content.count(b"\n", 0, at) + 1, what) for at, what in islice(_found_in(content), _MOST)})


def _found_in(content: bytes) -> Iterator[tuple[int, str]]:
    if b"PRIVATE KEY" in content:
        for found in re.finditer(_PRIVATE_KEY, content):
            yield found.start(), PRIVATE_KEY
    if b"\0" in content:
        return
    for form in _FORMS:
        if any(mark in content for mark in form.marks):
            for found in re.finditer(form.pattern, content):
                if len(set(found[0])) >= _FEWEST_LETTERS:
                    yield found.start(), form.what
    for at in _aws_keys(content):
        yield at, "AWS secret access key"


def _aws_keys(content: bytes) -> Iterator[int]:
    """Yield the places of AWS secret access keys.

    Text in the form of a key counts only if an access key id is beside it, in the same part of the file, or if its line has
    the word "secret". An access key id alone is not a secret: it cannot sign anything, and AWS shows it in presigned URLs and
    CloudTrail.
    """
    has_id = (b"AKIA" in content or b"ASIA" in content) and re.search(_KEY_ID, content) is not None
    for begin, end in [(0, len(content))] if has_id else _lines_with_secret(content):
        for found in re.compile(_SECRET_KEY).finditer(content, begin, end):
            # A path, a word or a Git commit rarely has all three.
            if all(re.search(kind, found[0]) for kind in (rb"[a-z]", rb"[A-Z]", rb"[0-9]")):
                yield found.start()


def _lines_with_secret(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each line with the word, as far as it is near the word: a line can have megabytes."""
    lower, end = content.lower(), 0
    while (at := lower.find(b"secret", end)) >= 0:
        begin = max(end, at - OVERLAP, lower.rfind(b"\n", end, at) + 1)
        stop = lower.find(b"\n", at, at + OVERLAP)
        end = stop if stop >= 0 else min(at + OVERLAP, len(lower))
        yield begin, end
