"""Which settings are secrets, by their names and values: `sagemaker_channels.mask` hides them.

Every text that may repeat a secret is masked: problems of a spec, refusals of AWS, the failure reasons of jobs. Lines that a job
printed belong to its user and are shown unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sagemaker_channels import contract
from sagemaker_channels.mask import URL_PASSWORD

_SECRET_WORDS = (
    *("token", "key", "secret", "secrets", "password", "passwords", "passwd", "passphrase", "pwd"),
    *("credential", "credentials", "auth", "dsn", "cookie", "cookies", "jwt", "bearer"),
)
_WHOLE_WORDS = ("pass", "pat", "pgpass")  # ends of other words: bypass, spat
# Forms of tokens that have a prefix of their own, as in gitleaks.
TOKEN_FORMS = (
    ("Hugging Face token", r"hf_[A-Za-z0-9]{30,}"),
    ("GitHub token", r"gh[posu]_[A-Za-z0-9]{36,}"),
    ("GitHub token", r"github_pat_[A-Za-z0-9_]{22,}"),
    ("GitLab token", r"glpat-[A-Za-z0-9_.-]{20,}"),
    ("Slack token", r"xox[bp]-[A-Za-z0-9-]{20,}"),
)
_TOKEN = re.compile(rf"(?<![A-Za-z0-9_-])(?:{'|'.join(form for _, form in TOKEN_FORMS)})(?![A-Za-z0-9_-])")
_PASSWORDS = ("secret", "password", "passwd", "passphrase", "pwd", "pass")  # words that end the name of a password
_KEYS = ("token", "key", "jwt", "bearer", "pat")  # and those of a key, whose value looks random
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])(?!arn:)[A-Za-z0-9+/=_.~-]{16,}")
_REFERENCE = re.compile(contract.SECRET_REFERENCE)
_NAME = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s*[:=]\s*""")  # of a setting in YAML, or of --set
_FIRST = re.compile(r""""[^"]*"|'[^']*'|[^\s,{}]+""")  # of the words of its value
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of snake_case, kebab-case and camelCase


def is_secret_name(name: str) -> bool:
    """Return whether a setting with this name probably holds a secret: `api-key`, `HF_TOKEN`, `DB_PASS`; not `max_tokens`."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word.endswith(_SECRET_WORDS) or word in _WHOLE_WORDS for word in words)


def is_secret(name: str, value: str) -> bool:
    """Return whether a setting probably is a secret, by its name, or as a URL with a password: `postgres://me:hush@host/db`."""
    if _REFERENCE.fullmatch(value):
        return False  # it names a secret
    return is_secret_name(name) or URL_PASSWORD.search(value) is not None


def holds_secret(name: str, value: str) -> bool:
    """Return whether a setting surely is a secret that should be stored elsewhere: by its value, or by its name and value.

    Masking hides more, since it costs nothing: `image_key: jpg`, `SECRET_ARN`, `DB_PASSWORD: ""`.
    """
    if not value or _REFERENCE.search(value):
        return False
    if _TOKEN.search(value) or URL_PASSWORD.search(value):
        return True
    last = [word.lower() for word in _WORD.findall(name)][-1:] or [""]
    is_place = value.startswith(("/", "arn:", "s3://", "./"))
    return not is_place and (
        (last[0].endswith(_PASSWORDS) and last[0] not in ("bypass", "compass"))
        or (last[0].endswith(_KEYS) and _RANDOM.fullmatch(value) is not None)
    )


def without_secrets(line: str) -> str:
    """Return a line of a spec with `*` for each character from the first value on that surely is a secret."""
    for name in _NAME.finditer(line):
        value = _FIRST.match(line, name.end())
        if value and "${" not in value[0] and holds_secret(name[1], value[0].strip("\"'")):
            return line[: name.end()] + "*" * (len(line) - name.end())
    return line


def settings_to_hide(request: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the settings of a past job that may be secrets, by (member, name).

    It is not known which were, so these are all of Environment, and the hyperparameters that look like secrets.
    """
    environment, hyperparameters = request.get("Environment") or {}, request.get("HyperParameters") or {}
    return {("Environment", name): str(value) for name, value in environment.items()} | {
        ("HyperParameters", name): str(value) for name, value in hyperparameters.items() if is_secret(name, str(value))
    }
