"""The one way to AWS: every call goes through `Account.call`.

So all calls have the same retries and time limits, each refusal becomes one clear line, and credentials that expire during a
day-long job are renewed in one place. boto3 finds credentials, region and endpoints (`AWS_ENDPOINT_URL`,
`AWS_ENDPOINT_URL_<SERVICE>`) as usual.

Many threads may find at the same time that credentials have expired. One of them reads the credentials again while the others
wait. New credentials replace all clients. Unchanged ones are tried once more, in case AWS was wrong; after that every call is
refused for a while, so that thirty questions of the account checks fail immediately and always in the same way.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from launcher.aws import refusals
from launcher.aws.refusals import AwsError, CredentialsError, no_credentials, one_line, translated
from launcher.aws.temporary_credentials import share_with_aws_cli
from launcher.console import say
from launcher.errors import RefusedError
from sagemaker_channels.mask import Mask

__all__ = ["Account", "AwsError", "CredentialsError"]

_MOST_RENEWALS = 3  # per call: a credential process may return new but expired credentials each time
_SLOW_SECONDS = 2.0
_EXPIRED_SECONDS = 10.0  # how long calls are refused after credentials have expired


class Account:
    """The clients of one account and region, created on first use. Safe to use from any thread.

    Args:
        region: The region; by default that of the environment or the profile.
        profile: The AWS profile; by default boto3's choice.
        on_expired: Called with the reason, in the main thread only, if AWS does not accept the credentials and reading them
            again brought no new ones. Returns whether there are new ones now. Without it, the call fails.
    """

    def __init__(
        self, *, region: str | None = None, profile: str | None = None, on_expired: Callable[[str], bool] | None = None
    ) -> None:
        self.mask = Mask()
        """Masks secrets in what AWS repeats; the account's own keys are included."""
        self.bucket_owners: dict[str, str] = {}
        """The accounts that buckets must belong to, by bucket: S3 refuses a request about a bucket of another account (403)."""
        self.asked_at: float | None = None
        """When the first call was sent, by `time.monotonic`."""
        self.answered = False
        """Whether there has been an answer other than that AWS does not accept the credentials."""
        self.profile = profile
        self._requested_region, self._on_expired = region, on_expired
        self._lock = threading.RLock()
        self._session: Any = None  # boto3's
        self._core: Any = None  # botocore's, below it
        self._clients: dict[str, Any] = {}
        self._keys: tuple[str, str] | None = None
        self._caller: Mapping[str, str] | None = None
        self._is_slow = False
        self._expired: tuple[float, CredentialsError] | None = None  # since when calls are refused, and why

    @property
    def region(self) -> str:
        """The region of the calls. Raises RefusedError if none is configured."""
        name: str | None = self._open().region_name
        if name is None:
            remedy = "set AWS_REGION, or give your profile one (`aws configure set region REGION`)"
            raise RefusedError(f"no AWS region is configured; {remedy}")
        return name

    @property
    def caller(self) -> Mapping[str, str]:
        """Account and Arn of the caller; AWS is asked once for the same credentials. Raises AwsError."""
        if (found := self._caller) is None:
            found = self._caller = self.call("sts", "get_caller_identity")
        return found

    @property
    def options(self) -> str:
        """The options with which another `launch` command finds this region and profile: empty if it finds them without."""
        default = os.environ.get("AWS_DEFAULT_PROFILE") or os.environ.get("AWS_PROFILE") or "default"
        profile = None if self.profile == default else self.profile
        usual = Account(profile=profile)._open().region_name
        region = "" if self.region == usual else f" --region {self.region}"
        return f"{region} --profile {shlex.quote(profile)}" if profile else region

    def require_credentials(self) -> None:
        """Look for region and credentials before the first call. Raises RefusedError if there are none."""
        from botocore.exceptions import NoCredentialsError

        with self._lock:
            self._keys = _keys_of(self._open(), self.mask) if self.region else None
            if self._keys is None:
                raise no_credentials(NoCredentialsError(), self.mask)

    def keys(self) -> Any:
        """Return botocore's frozen credentials, for other programs. Raises RefusedError if there are none."""
        self.require_credentials()
        return self._open().get_credentials().get_frozen_credentials()

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer of one call, such as `call("sts", "get_caller_identity")`. Raises AwsError."""
        name = _name(service, operation)

        def ask(client: Any) -> Any:
            slow = threading.Timer(_SLOW_SECONDS, self._say_slow, [name])
            if threading.current_thread() is threading.main_thread():  # other threads have a progress of their own
                slow.start()
            try:
                return getattr(client, operation)(**parameters)
            except KeyError:  # which botocore raises for a page in XHTML
                raise refusals.foreign(name) from None
            finally:
                slow.cancel()

        answer = dict(self.attempt(service, operation, ask))
        meta = self.client(service).meta
        output = meta.service_model.operation_model(meta.method_to_api_mapping[operation]).output_shape
        # Of a proxy's page, botocore makes an answer without members. In JSON, AWS sends empty lists; in XML and headers, nothing.
        is_json = meta.service_model.protocol.endswith("json")
        expected = () if output is None else output.members if is_json else output.required_members
        if expected and answer.keys().isdisjoint(expected):
            raise refusals.foreign(name)
        return answer

    def attempt(self, service: str, operation: str, do: Callable[[Any], Any]) -> Any:
        """Return what `do` returns for boto3's client: work of more than one call, such as a call and reading its body.

        It runs again from its beginning if the credentials had expired. `operation` is for messages. Raises AwsError.
        """
        call, was_retried = _name(service, operation), False
        for renewals in range(_MOST_RENEWALS + 1):
            self._refuse_if_expired()
            with self._lock:
                client, session = self.client(service), self._session
            self.asked_at = self.asked_at or time.monotonic()
            try:
                answer = translated(do, client, call, self.mask)
                self.answered = True
                return answer
            except AwsError as error:
                was_retried = error.was_retried = was_retried or error.was_retried
                trouble = self._named(error) if error.is_nameless else error
                if not trouble.is_unauthenticated or trouble.code == "NoCredentials":
                    self.answered = self.answered or error.status > 0
                    raise
                if not self._renew(session, trouble, renewals):
                    over = refusals.unauthenticated(trouble)
                    over.was_retried = was_retried
                    self._expired = self._expired or (time.monotonic(), over)
                    raise over from None
        raise AssertionError("the last renewal is refused")

    def pages(self, service: str, operation: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Yield the answers of an operation that returns pages. Raises AwsError."""
        name = self.client(service).meta.method_to_api_mapping[operation]
        model = self._core.get_paginator_model(service).get_paginator(name)
        while True:
            page = self.call(service, operation, **parameters)
            yield page
            if not (token := page.get(model["output_token"])):
                return
            parameters[model["input_token"]] = token

    def client(self, service: str) -> Any:
        """Return boto3's client. It raises boto3's own errors, so prefer `call` and `attempt`."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        with self._lock:
            if service not in self._clients:
                region = self.region
                # Not "adaptive": two throttled answers slow all later calls of a service so much that `--check`, which takes
                # 2.5 s with "standard", misses its limit of 5 s with questions not asked.
                retries: Any = {"mode": "standard", "max_attempts": 5}
                # An S3-compatible store, such as MinIO, has paths for its buckets, not host names.
                is_other = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
                s3: Any = {"addressing_style": "path"} if is_other else {}
                config = Config(connect_timeout=5, read_timeout=30, max_pool_connections=32, retries=retries, s3=s3)
                self._keys = _keys_of(self._open(), self.mask)
                try:
                    client = self._open().client(service, region_name=region, config=config)
                except (BotoCoreError, ValueError) as error:
                    reason = one_line(self.mask.apply(str(error)))
                    raise RefusedError(f"{service}: {reason}; check the AWS environment variables") from None
                if service == "s3":
                    client.meta.events.register("provide-client-params.s3", self._with_owner)
                self._clients[service] = client
            return self._clients[service]

    def _say_slow(self, call: str) -> None:
        """Say once what is waited for: with all its attempts, a call that nothing answers takes minutes."""
        if not self._is_slow:
            self._is_slow = True
            say(f"{call}: there is no answer yet; waiting for it")

    def _open(self) -> Any:
        with self._lock:
            if self._session is None:
                self._session = self._new_session()
            return self._session

    def _new_session(self) -> Any:
        import boto3
        import botocore.session
        from botocore.exceptions import BotoCoreError

        region = self._requested_region or os.environ.get("AWS_REGION")
        self._core = core = botocore.session.Session()
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_timestamp)
        try:
            session = boto3.Session(profile_name=self.profile, region_name=region, botocore_session=core)
            share_with_aws_cli(core)
            return session
        except BotoCoreError as error:
            raise refusals.configuration_error(error, self.profile) from None

    def _with_owner(self, params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        """Return the parameters of a call with the owner that its bucket must have; an empty owner in a call asks for none."""
        owner = params.get("ExpectedBucketOwner", self.bucket_owners.get(params.get("Bucket", "")))
        is_known = owner and "ExpectedBucketOwner" in model.input_shape.members
        others = {name: value for name, value in params.items() if name != "ExpectedBucketOwner"}
        return {**others, "ExpectedBucketOwner": owner} if is_known else others

    def _named(self, error: AwsError) -> AwsError:
        """Return the real error if an answer to HEAD did not contain it, by a call whose answer has a body."""
        try:
            translated(lambda client: client.list_buckets(), self.client("s3"), error.call, self.mask)
        except AwsError as named:
            return named if named.is_unauthenticated else error
        return error

    def _renew(self, session: Any, error: AwsError, renewals: int) -> bool:
        """Return whether to try again: another thread or the user has brought other credentials, or it is the first time."""
        with self._lock:
            self._refuse_if_expired()
            if renewals == _MOST_RENEWALS:
                return False
            if session is not self._session:
                return True
            fresh, keys = self._new_session(), self._keys
            with suppress(CredentialsError):
                keys = _keys_of(fresh, self.mask)
            if keys == self._keys:
                if renewals == 0 and not isinstance(error, CredentialsError):
                    return True
                ask = self._on_expired if threading.current_thread() is threading.main_thread() else None
                if ask is None or not ask(str(refusals.unauthenticated(error))):
                    return False
                fresh = self._new_session()
            self._session, self._clients, self._caller = fresh, {}, None
            return True

    def _refuse_if_expired(self) -> None:
        if (over := self._expired) is not None:
            since, error = over
            if time.monotonic() - since < _EXPIRED_SECONDS:
                raise CredentialsError(str(error), call=error.call, code=error.code, status=error.status)
            self._expired = None


def _name(service: str, operation: str) -> str:
    """Return a call's name as IAM writes it, such as `sts:GetCallerIdentity`."""
    return f"{service}:{operation.title().replace('_', '')}"


def _keys_of(session: Any, mask: Mask) -> tuple[str, str] | None:
    """Return the session's access key and token, and mask them from now on. Raises CredentialsError."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        credentials = session.get_credentials()
        frozen = credentials.get_frozen_credentials() if credentials else None
    except (BotoCoreError, ClientError, OSError, ValueError) as error:  # such as a missing file of a token
        raise no_credentials(error, mask) from None
    if frozen is None or not frozen.access_key:
        return None
    for key in (frozen.access_key, frozen.secret_key, frozen.token):
        mask.add(key or "")
    return frozen.access_key, frozen.token or ""


def _parse_timestamp(value: Any) -> datetime:
    """Parse a timestamp. botocore's own parser guesses among formats, which takes three quarters of the time to read a listing."""
    from botocore.utils import parse_timestamp

    if isinstance(value, str) and value.endswith("Z"):
        with suppress(ValueError):  # a format that only botocore parses
            return datetime.fromisoformat(value[:-1] + "+00:00")
    moment: datetime = parse_timestamp(value)
    return moment
