"""Temporary credentials of profiles that assume a role: shared with the AWS CLI, and MFA codes asked for on a terminal only."""

from __future__ import annotations

import getpass
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.aws.refusals import CredentialsError


def share_with_aws_cli(core: Any) -> None:
    """Let a botocore session read and write the AWS CLI's cache of credentials, as awscli/customizations/assumerole.py does.

    So a user types the code of an MFA device once for both, and a program without a terminal uses what is there.
    """
    resolver, cache = core.get_component("credential_provider"), _cache()
    for name in ("assume-role", "assume-role-with-web-identity", "sso"):
        resolver.get_provider(name).cache = cache
    resolver.get_provider("assume-role")._prompter = _ask_for_code  # botocore lets no caller pass one


def _cache() -> Any:
    from botocore.utils import JSONFileCache

    class Cache(JSONFileCache):
        """The CLI's cache. Its folder need not be writable, such as one that is mounted into a container."""

        def __setitem__(self, key: str, value: Any) -> None:
            with suppress(OSError):
                super().__setitem__(key, value)

    # Path.expanduser raises an error for a user without HOME and without an entry in /etc/passwd, as in some containers.
    folder = os.path.expanduser("~/.aws/cli/cache")  # noqa: PTH111
    return {} if folder.startswith("~") else Cache(folder)


def _ask_for_code(prompt: str) -> str:
    """Return the code that the user types. Raises CredentialsError if there is no terminal, or none is typed."""
    try:
        Path("CONIN$" if sys.platform == "win32" else "/dev/tty").open("rb", buffering=0).close()
    except OSError:
        device = prompt.removeprefix("Enter MFA code for ").rstrip(": ")
        message = (
            f"the profile needs an MFA code of {device}, and there is no terminal to type it on; run `aws sts"
            " get-caller-identity` with this profile on a terminal first, whose credentials are then used here, too"
        )
        raise CredentialsError(message, call="", code="NoCredentials") from None
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise CredentialsError("no MFA code was typed; run the command again", call="", code="NoCredentials") from None
