"""The one door to AWS: every question and every order goes through `Account.call`.

So each has the same retries and time limits, each refusal becomes one clear line, and credentials that expire in the middle
of a day-long job are renewed in one place. boto3 finds credentials, region and endpoints (`AWS_ENDPOINT_URL`,
`AWS_ENDPOINT_URL_<SERVICE>`) as it always does.

Many threads find at the same time that credentials have expired. One of them reads the credentials anew, while the others
wait: new ones replace all clients; the same ones are tried once more, as AWS may have been mistaken, and after that
nobody asks any more for a while, so that a preflight of thirty questions fails at once and the same way every time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from launcher.aws import answers
from launcher.aws.masking import Mask
from launcher.aws.refusals import (
    HAVE_EXPIRED,
    AwsError,
    CredentialsError,
    expired,
    is_expired,
    no_credentials,
    of_credentials,
    one_line,
    translated,
)
from launcher.errors import RefusedError

__all__ = ["Account", "AwsError", "CredentialsError"]

_MOST_RENEWALS = 3  # in one call: a program that gives new credentials each time may give expired ones each time
_OVER_SECONDS = 10.0  # how long nobody asks with credentials that have expired
# Where a service's answer says that there is more, and where the next question says from where: (asked, answered).
_TOKENS = {
    "s3": ("ContinuationToken", "NextContinuationToken"),
    "efs": ("Marker", "NextMarker"),
    "iam": ("Marker", "Marker"),
    "logs": ("nextToken", "nextToken"),
    "ecr": ("nextToken", "nextToken"),
}
_NEXT_TOKEN = ("NextToken", "NextToken")


class _Own(threading.local):
    """What each thread knows of its own call, botocore's retries included."""

    is_in_doubt = False  # whether an attempt may have had its effect though nothing says so


class Account:
    """The clients of one account and region, made when first asked for; any thread may call.

    `on_expired` is asked, in the main thread only, when credentials have expired and reading them anew brought the same,
    whether there are new ones now; without it, the call fails.
    """

    def __init__(
        self, *, region: str | None = None, profile: str | None = None, on_expired: Callable[[str], bool] | None = None
    ) -> None:
        self.mask = Mask()
        """What AWS may repeat and nobody is to see; the account's own keys are in it."""
        self.silence = ""
        """Why nothing is answered, as long as nothing has ever been."""
        self.answered = False
        """Whether there has been an answer; that the credentials have expired is none."""
        self._wanted_region, self._profile, self._on_expired = region, profile, on_expired
        self._lock = threading.RLock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        self._generation = 0  # of credentials
        self._keys: tuple[str, str] | None = None
        self._over: tuple[float, CredentialsError] | None = None  # since when nothing can be asked, and why
        self._own = _Own()

    @property
    def region(self) -> str:
        """The region that is asked. Raises RefusedError where nothing names one."""
        name: str | None = self._open().region_name
        if name is None:
            raise RefusedError(
                "no region is known; set AWS_REGION, write region: in the spec, or give --region to a command that takes no spec"
            )
        return name

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """One answer: `account.call("sagemaker", "describe_training_job", TrainingJobName=name)`. Raises AwsError."""
        answer: dict[str, Any] = self.attempt(
            service, operation, lambda client: getattr(client, operation)(**parameters)
        )
        return answer

    def attempt(self, service: str, operation: str, do: Callable[[Any], Any]) -> Any:
        """Return what `do` returns, which gets boto3's client: for more than one call, such as one and reading its body.

        It is done again from its beginning if the credentials had expired. Raises AwsError.
        """
        self._own.is_in_doubt = False
        try:
            return self._attempt(service, operation, do)
        except AwsError as error:
            error.was_in_doubt = self._own.is_in_doubt
            raise

    def _attempt(self, service: str, operation: str, do: Callable[[Any], Any]) -> Any:
        call = f"{service}:{_in_camel_case(operation)}"
        for renewals in range(_MOST_RENEWALS + 1):
            self._refuse_if_over()
            with self._lock:
                client, generation = self.client(service), self._generation
            try:
                return translated(do, client, call, self.mask)
            except AwsError as error:
                trouble = self._named(error) if error.is_nameless and renewals else error
                if not (trouble.is_expired or trouble.is_nameless) or trouble.code == "NoCredentials":
                    raise
                if trouble.is_nameless and renewals:
                    raise
                if not self._renew(generation, trouble, renewals):
                    raise self._over_now(trouble) from None
        raise AssertionError("the last renewal is refused")

    def pages(self, service: str, operation: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """The answers of an operation that comes in pages, one after the other. Raises AwsError."""
        asked, answered = _TOKENS.get(service, _NEXT_TOKEN)
        while True:
            page = self.call(service, operation, **parameters)
            yield page
            token = page.get(answered)
            if not token:
                return
            parameters[asked] = token

    def client(self, service: str) -> Any:
        """boto3's client; its refusals are boto3's own, so `call` and `attempt` are the better way to most ends."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        with self._lock:
            if service not in self._clients:
                region = self.region
                config = Config(
                    connect_timeout=5,
                    read_timeout=30,
                    max_pool_connections=32,
                    retries={"mode": "standard", "max_attempts": 5},
                    s3={"addressing_style": "path"} if _has_own_endpoint() else {},
                )
                try:
                    client = self._open().client(service, region_name=region, config=config)
                    self._learn_keys()
                except (BotoCoreError, ValueError) as error:
                    if of_credentials(error):
                        raise no_credentials(error, self.mask) from None
                    raise RefusedError(
                        f"{service} cannot be reached: {one_line(self.mask.apply(str(error)))}; check AWS's variables"
                    ) from None
                answers.refuse_foreign_answers(client)
                client.meta.events.register("needs-retry", self._hear)
                self._clients[service] = client
            return self._clients[service]

    def _open(self) -> Any:
        with self._lock:
            if self._session is None:
                self._session = self._new_session()
            return self._session

    def _new_session(self) -> Any:
        import boto3
        import botocore.session
        from botocore.exceptions import BotoCoreError

        region = self._wanted_region or os.environ.get("AWS_REGION")
        core = botocore.session.Session()
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_moment)
        try:
            return boto3.Session(profile_name=self._profile, region_name=region, botocore_session=core)
        except BotoCoreError as error:
            raise RefusedError(f"{one_line(error)}; check profile: and the AWS configuration") from None

    def _learn_keys(self) -> None:
        """Know the session's keys: to hide them, and to see whether other ones have come."""
        self._keys = _keys_of(self._open(), self.mask)

    def _hear(self, response: Any, caught_exception: Exception | None, **_: Any) -> None:
        """Called by botocore after each attempt of a call, of which it makes several before it returns or raises."""
        is_answered = response is not None and not answers.is_foreign(response[1])
        self._own.is_in_doubt |= not is_answered or response[0].status_code >= 500
        if is_answered:
            code = (response[1].get("Error") or {}).get("Code") or ""
            if code == "400":
                return  # to HEAD: it may be just that
            if not is_expired(str(code)):
                self.answered, self.silence = True, ""
            elif not self.answered:
                self.silence = HAVE_EXPIRED
        elif not self.answered:
            reason = one_line(self.mask.apply(str(caught_exception or answers.FOREIGN)))
            self.silence = f"AWS cannot be reached: {reason}; look at the network, proxies and AWS_ENDPOINT_URL"

    def _named(self, error: AwsError) -> AwsError:
        """What is wrong where the answer to HEAD did not say: a question whose answer has a body tells."""
        try:
            translated(lambda client: client.list_buckets(), self.client("s3"), error.call, self.mask)
        except AwsError as named:
            return named if named.is_expired else error
        return error

    def _renew(self, generation: int, error: AwsError, renewals: int) -> bool:
        """Whether there is a reason to try again: other credentials, or the first time in a call."""
        with self._lock:
            self._refuse_if_over()
            if renewals == _MOST_RENEWALS:
                return False
            if generation != self._generation:
                return True  # another thread has renewed them meanwhile
            fresh = self._new_session()
            keys = self._keys
            with suppress(CredentialsError):
                keys = _keys_of(fresh, self.mask)
            if keys == self._keys and renewals == 0 and not isinstance(error, CredentialsError):
                return True
            may_ask = self._on_expired is not None and threading.current_thread() is threading.main_thread()
            if keys == self._keys:
                if not may_ask or self._on_expired is None or not self._on_expired(str(error)):
                    return False
                fresh = self._new_session()
            self._session, self._clients, self._generation = fresh, {}, self._generation + 1
            return True

    def _over_now(self, error: AwsError) -> CredentialsError:
        over = error if isinstance(error, CredentialsError) else expired(error)
        with self._lock:
            if self._over is None:
                self._over = time.monotonic(), over
            return over

    def _refuse_if_over(self) -> None:
        over = self._over
        if over is None:
            return
        since, error = over
        if time.monotonic() - since < _OVER_SECONDS:
            raise CredentialsError(str(error), call=error.call, code=error.code, status=error.status)
        self._over = None


def _keys_of(session: Any, mask: Mask) -> tuple[str, str] | None:
    """The session's access key and token, which are hidden from now on. Raises CredentialsError."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        credentials = session.get_credentials()
        frozen = credentials.get_frozen_credentials() if credentials else None
    except (BotoCoreError, ClientError) as error:
        raise no_credentials(error, mask) from None
    if frozen is None or not frozen.access_key:
        return None
    for key in (frozen.access_key, frozen.secret_key, frozen.token):
        mask.add(key or "")
    return frozen.access_key, frozen.token or ""


def _moment(value: Any) -> datetime:
    """botocore's own parser guesses among forms, and takes three quarters of the time that a listing takes to read."""
    from botocore.utils import parse_timestamp

    if isinstance(value, str) and value.endswith("Z"):
        with suppress(ValueError):  # a form that only the other one knows
            return datetime.fromisoformat(value[:-1] + "+00:00")
    moment: datetime = parse_timestamp(value)
    return moment


def _has_own_endpoint() -> bool:
    """Whether S3 is another's than AWS's: MinIO and the like answer to paths, and their buckets have no host names."""
    return bool(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))


def _in_camel_case(operation: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in operation.split("_"))
