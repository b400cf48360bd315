"""What a secret looks like: the names of files that hold keys and passwords, and the forms of keys and tokens in other files.

A file is a secret by its name if a program writes credentials to it, or if its format is that of a key or a state with
passwords. The names are those that gitrob, npm and GitHub's .gitignore templates list, without the ones that are usual for
code and data (`settings.py`, `*.log`, `*.sql`). The forms are those of gitleaks, which have a prefix of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from launcher.masking import TOKEN_FORMS

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
    *(f"{name}.{end}" for name in ("credentials", "secret", "secrets") for end in ("json", "toml", "yaml", "yml")),
}
_PATHS = {
    *(".docker/config.json", ".huggingface/token", "huggingface/token", "huggingface/stored_tokens", "gh/hosts.yml"),
    *(".m2/settings.xml", "gcloud/credentials.db", "gcloud/access_tokens.db"),
}
# Private keys as ssh-keygen names them. With another ending, id_* is code or data: id_map.json, id_lookup.py.
_FORMS_OF_NAMES = re.compile(r"\.env.*|id_[^.]*(\.pub)?|(service-account|service_account|client_secret).*\.json")
_COPY = re.compile(r"(\.(bak|backup|old|orig|save|copy|tmp|swp|[0-9]+)|~)+$")  # what an editor or a user adds to a name


def is_secret_path(path: str) -> bool:
    """Return whether a file holds secrets by its name, or a file or folder (with a final slash) by a folder that it is in."""
    *folders, name = path.lower().split("/")
    name = _COPY.sub("", name)
    is_named = name in _NAMES or name.endswith(_ENDINGS) or _FORMS_OF_NAMES.fullmatch(name) is not None
    return is_named or not _FOLDERS.isdisjoint(folders) or "/".join([*folders[-1:], name]) in _PATHS


_FORMS = tuple(  # (what, pattern); a token is not a part of a longer word
    (what, re.compile(pattern + rb"(?![A-Za-z0-9_-])"))
    for what, pattern in (
        *((what, form.encode()) for what, form in TOKEN_FORMS),
        # Of a proxy or a package index; not `https://user:${TOKEN}@host` or `https://user:password@host` of a document.
        (
            "password in a URL",
            rb"https?://[^\s/:@'\"]*:(?!pass|secret|token|gh[posu]_|github_pat_|glpat-|hf_)[^\s/:@'\"${}<>*]+(?=@)",
        ),
    )
)
_IN_WORD = re.compile(rb"[A-Za-z0-9_-]")
# A header alone, as in code that looks for it, is not a key: the key begins on the next line, or after the `\n` of JSON.
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[ \t]*(?:\\r)?(?:\\n|\r?\n|\r)\s*[A-Za-z0-9+/]"
)
_KEY_ID = re.compile(rb"A(?:KI|SI)A[A-Z0-9]{16}(?![A-Z0-9])")
_SECRET_KEY = re.compile(rb"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_SECRET_WORD = re.compile(rb"secret", re.IGNORECASE)
_NEAR = 1000  # bytes from that word in its line, which can have megabytes
_MOST = 100  # secrets that are reported of one file
_FEWEST_LETTERS = 8  # different ones in a token; `hf_xxxx...` in a document has fewer


def secrets_in(content: bytes) -> list[tuple[int, str]]:
    """Return the line and the kind of each secret that seems to be in a file. Tokens are looked for in text only."""
    return sorted({(content.count(b"\n", 0, at) + 1, what) for at, what in islice(_found_in(content), _MOST)})


def _found_in(content: bytes) -> Iterator[tuple[int, str]]:
    for found in _PRIVATE_KEY.finditer(content):
        yield found.start(), PRIVATE_KEY
    if b"\0" in content:
        return
    for what, pattern in _FORMS:
        for found in pattern.finditer(content):
            is_inside = found.start() > 0 and _IN_WORD.match(content, found.start() - 1)
            if not is_inside and len(set(found[0])) >= _FEWEST_LETTERS:
                yield found.start(), what
    # Text in the form of an AWS secret key counts only if an access key id is in the same file, or if its line has the word
    # "secret". An access key id alone is not a secret: AWS shows it in presigned URLs and CloudTrail.
    has_id = _KEY_ID.search(content) is not None
    for begin, end in [(0, len(content))] if has_id else _lines_with_secret(content):
        for found in _SECRET_KEY.finditer(content, begin, end):
            # A path, a word or a Git commit rarely has all three.
            if all(re.search(kind, found[0]) for kind in (rb"[a-z]", rb"[A-Z]", rb"[0-9]")):
                yield found.start(), "AWS secret access key"


def _lines_with_secret(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each line with the word, as far as it is near the word."""
    for word in _SECRET_WORD.finditer(content):
        near = max(0, word.start() - _NEAR)
        end = content.find(b"\n", word.end(), word.end() + _NEAR)
        yield max(near, content.rfind(b"\n", near, word.start()) + 1), end if end >= 0 else word.end() + _NEAR
