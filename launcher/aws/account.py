"""The one door to AWS: every question and every order goes through `Account.call`.

So each has the same retries and time limits, each refusal becomes one clear line, and credentials that expire in the middle
of a day-long job are renewed in one place. boto3 finds credentials, region and endpoints (`AWS_ENDPOINT_URL`,
`AWS_ENDPOINT_URL_<SERVICE>`) as it always does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from launcher.errors import RefusedError

_NO_ANSWER = 0
_NOT_AWS = "the answer is none of AWS's; look at the endpoint and at proxies"
# https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html, and S3's and EC2's own names for the same.
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "InvalidToken")
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")
_THROTTLED = ("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown")
# Where a service's answer says that there is more, and where the next question says from where: (asked, answered).
_TOKENS = {
    "s3": ("ContinuationToken", "NextContinuationToken"),
    "efs": ("Marker", "NextMarker"),
    "iam": ("Marker", "Marker"),
    "logs": ("nextToken", "nextToken"),
    "ecr": ("nextToken", "nextToken"),
}
_NEXT_TOKEN = ("NextToken", "NextToken")


class AwsError(RefusedError):
    """AWS refused a call, or did not answer."""

    def __init__(self, message: str, *, call: str, code: str = "", status: int = _NO_ANSWER) -> None:
        super().__init__(message)
        self.call = call  # as IAM writes it: `sagemaker:CreateTrainingJob`
        self.code = code  # AWS's own: `ResourceInUse`; empty where no answer came
        self.status = status  # HTTP's; 0 where no answer came

    @property
    def is_denied(self) -> bool:
        """Whether the caller may not ask this."""
        return self.code in _DENIED

    @property
    def is_expired(self) -> bool:
        """Whether the credentials are no longer good."""
        return self.code in _EXPIRED or (self.status == 400 and self.code == "400")  # an answer to HEAD has no body

    @property
    def is_throttled(self) -> bool:
        """Whether it was asked too often, and may be asked again later."""
        return self.code in _THROTTLED

    @property
    def may_have_happened(self) -> bool:
        """Whether the call may have had its effect all the same: no answer came, or one that the service did not mean."""
        return self.status == _NO_ANSWER or self.status >= 500


class Account:
    """The clients of one account and region, made when first asked for; any thread may call.

    `on_expired` is asked, when credentials have expired and reading them anew brought the same, whether there are new ones
    now; without it, the call fails.
    """

    def __init__(
        self, *, region: str | None = None, profile: str | None = None, on_expired: Callable[[str], bool] | None = None
    ) -> None:
        self._wanted_region, self._profile, self._on_expired = region, profile, on_expired
        self._lock = threading.RLock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str:
        """The region that is asked. Raises RefusedError where nothing names one."""
        name: str | None = self._open().region_name
        if name is None:
            raise RefusedError("no region is known; write region: in the spec, or set AWS_REGION")
        return name

    def call(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """One answer: `account.call("sagemaker", "describe_training_job", TrainingJobName=name)`. Raises AwsError."""
        answer: dict[str, Any] = self.attempt(
            service, operation, lambda client: getattr(client, operation)(**parameters)
        )
        return answer

    def attempt(self, service: str, operation: str, do: Callable[[Any], Any]) -> Any:
        """What `do` gives, which is handed boto3's client: for what is more than one call, such as reading a body.

        It is done again from its beginning where credentials had expired. Raises AwsError.
        """
        expired = False
        while True:
            client = self.client(service)
            try:
                return _translated(do, client, f"{service}:{_in_camel_case(operation)}")
            except AwsError as error:
                if not error.is_expired or not self._renew(client, str(error), again=expired):
                    raise
                expired = True

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
                    self._clients[service] = self._open().client(service, region_name=region, config=config)
                except (BotoCoreError, ValueError) as error:
                    raise RefusedError(
                        f"{service} cannot be reached: {_one_line(error)}; check AWS's variables"
                    ) from None
            return self._clients[service]

    def _open(self) -> Any:
        import boto3
        import botocore.session
        from botocore.exceptions import BotoCoreError

        with self._lock:
            if self._session is None:
                region = self._wanted_region or os.environ.get("AWS_REGION")
                core = botocore.session.Session()
                core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_moment)
                try:
                    self._session = boto3.Session(profile_name=self._profile, region_name=region, botocore_session=core)
                except BotoCoreError as error:
                    raise RefusedError(f"{_one_line(error)}; check profile: and the AWS configuration") from None
            return self._session

    def _renew(self, client: Any, reason: str, *, again: bool) -> bool:
        """Read the credentials anew; whether there is a reason to try again: the first time in a call there always is."""
        with self._lock:
            if client not in self._clients.values():
                return True  # another thread has renewed them meanwhile
            before = self._keys()
            self._session, self._clients = None, {}
            if not again or self._keys() != before:
                return True
            if self._on_expired is None or not self._on_expired(reason):
                return False
            self._session, self._clients = None, {}
            return True

    def _keys(self) -> tuple[str, str] | None:
        credentials = self._open().get_credentials()
        frozen = credentials.get_frozen_credentials() if credentials else None
        return (frozen.access_key, frozen.token or "") if frozen else None


def _translated(do: Callable[[Any], Any], client: Any, call: str) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
    from botocore.parsers import ResponseParserError

    try:
        return do(client)
    except ClientError as error:
        said = error.response.get("Error", {})
        code, status = said.get("Code", ""), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = _one_line(said.get("Message") or code)
        if text.startswith("<"):
            text, code = f"{_NOT_AWS} (HTTP {status})", ""
        said_by = f" [{code}]" if code else ""
        raise AwsError(f"{call}: {text}{said_by}", call=call, code=code, status=status) from None
    except (NoCredentialsError, PartialCredentialsError):
        raise RefusedError(
            "no AWS credentials found; configure them (`aws configure`, `aws sso login`), or name a profile with profile:"
        ) from None
    except BotoCoreError as error:
        raise AwsError(f"{call}: no answer: {_one_line(error)}", call=call) from None
    except ResponseParserError:
        raise AwsError(f"{call}: {_NOT_AWS}", call=call) from None


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


def _one_line(text: object) -> str:
    return " ".join(str(text).split()).rstrip(".")
