"""AWS's refusals, and missing answers, as our own errors: one clear line each, with secrets masked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from launcher.errors import RefusedError
from sagemaker_channels.mask import Mask

_FOREIGN = "the answer is not from AWS; check the endpoint and proxies"
REMEDY = "check the network, proxies and AWS_ENDPOINT_URL"  # without an answer
_KINDS = (  # of refusals, with the codes of each
    # https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html, and S3's and EC2's own names for the same.
    ("expired", "ExpiredToken ExpiredTokenException RequestExpired TokenRefreshRequired InvalidToken"),
    # An access key that AWS does not know, or a signature that is not its secret's; keys look so, too, in a region that the account
    # has not enabled. The codes are those of STS and IAM; SageMaker and others with JSON; S3; EC2; and all of them.
    ("rejected", "InvalidClientTokenId SignatureDoesNotMatch UnrecognizedClientException InvalidSignatureException"),
    ("rejected", "InvalidAccessKeyId AuthFailure IncompleteSignature MissingAuthenticationToken"),
    ("skewed", "RequestTimeTooSkewed RequestInTheFuture"),
    ("denied", "AccessDenied AccessDeniedException UnauthorizedOperation 403"),
    ("throttled", "Throttling ThrottlingException TooManyRequestsException RequestLimitExceeded SlowDown"),
    ("missing", "ResourceNotFound ResourceNotFoundException NotFoundException"),  # SageMaker, CloudWatch Logs, KMS
    ("missing", "NoSuchEntity FileSystemNotFound PolicyNotFound NoSuchBucket NoSuchBucketPolicy"),  # IAM, EFS, FSx, S3
    ("missing", "NoSuchKey 404 NoSuchResourceException"),  # S3, also to HEAD, and Service Quotas
    ("missing", "RepositoryNotFoundException ImageNotFoundException RepositoryPolicyNotFoundException"),  # ECR
)
_KIND_OF = {code: kind for kind, codes in _KINDS for code in codes.split()}
_SKEW_TEXT = re.compile(r"Signature (expired|not yet current)")  # AWS has no code of its own for it
_OF_CREDENTIALS = (  # botocore's exceptions, which have others derived from them
    *("NoCredentialsError", "PartialCredentialsError", "SSOError", "CredentialRetrievalError"),
    *("TokenRetrievalError", "RefreshWithMFAUnsupportedError", "MetadataRetrievalError", "LoginError"),
)
_RENEW = "renew them (`aws sso login`, or however you obtained them)"
_HAVE_EXPIRED = f"the AWS credentials have expired; {_RENEW}"
_TROUBLES = {  # kind of refusal -> what is wrong with the credentials, and what to do
    "expired": _HAVE_EXPIRED,
    "rejected": "AWS does not accept the credentials; check the access key, its secret and its token (`aws sts get-caller-identity`"
    " shows whether they work), and whether the account has enabled the region",
    "skewed": "this machine's clock differs from AWS's by minutes; set it, for example with NTP",
}


class AwsError(RefusedError):
    """AWS refused a call, or did not answer.

    Args:
        message: One line.
        call: The call as IAM writes it: `sagemaker:CreateTrainingJob`.
        code: AWS's own: `ResourceInUse`; empty if there was no answer.
        status: HTTP status; 0 if there was no answer.
        was_retried: Whether it was the answer to another attempt than the first.
    """

    def __init__(self, message: str, *, call: str, code: str = "", status: int = 0, was_retried: bool = False) -> None:
        super().__init__(message)
        self.call, self.code, self.status = call, code, status
        kind = _KIND_OF.get(code)
        self.is_denied = kind == "denied"  # the caller lacks the permission
        # Expired or invalid credentials, none at all, or a wrong clock: no other call will be answered either.
        self.is_unauthenticated = kind in _TROUBLES
        # DescribeTrainingJob reports a missing job as a ValidationException, and moto with the words of SageMaker's other calls.
        names_missing = "not found" in message or "Could not find" in message
        self.is_missing = kind == "missing" or (code == "ValidationException" and names_missing)
        # An answer to HEAD has no body and leaves the cause open; expired credentials look so, too.
        self.is_nameless = status == 400 and code == "400"
        self.is_throttled = kind == "throttled"  # the same call may succeed later
        self.is_unanswered = status == 0 or status >= 500  # or the answer is not from the service
        self.was_retried = was_retried
        if self.is_denied:
            self.remedy = "; ask the account's administrator for this permission"
        elif self.is_throttled or status >= 500:
            self.remedy = "; try again later"

    @property
    def may_have_happened(self) -> bool:
        """Whether the call may have taken effect, now or in an earlier attempt whose answer was lost."""
        return self.is_unanswered or self.was_retried

    @property
    def is_passing(self) -> bool:
        """Whether the same call may well succeed later."""
        return self.is_throttled or self.is_unanswered


class CredentialsError(AwsError):
    """No call can be made: AWS does not accept the credentials, or there are none."""

    def __init__(self, message: str, *, call: str, code: str = "", status: int = 0) -> None:
        super().__init__(message, call=call, code=code, status=status)
        self.is_unauthenticated, self.is_unanswered = True, False


def unauthenticated(error: AwsError) -> CredentialsError:
    if isinstance(error, CredentialsError):
        return error
    kind = _KIND_OF.get(error.code, "")
    wrong = _TROUBLES.get("skewed" if kind == "rejected" and _SKEW_TEXT.search(str(error)) else kind, _HAVE_EXPIRED)
    return CredentialsError(f"{wrong}. AWS reported: {error}", call=error.call, code=error.code, status=400)


def translated(do: Callable[[Any], Any], client: Any, call: str, mask: Mask) -> Any:
    """Return what `do` returns for the client. Raises AwsError; CredentialsError if there are none to sign with."""
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, ParamValidationError
    from botocore.parsers import ResponseParserError

    try:
        return do(client)
    except ClientError as error:
        details, about = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        code, status = details.get("Code") or "", about.get("HTTPStatusCode", 0)
        text = mask.apply(str(details.get("Message") or code))
        if not text or text.lstrip().startswith("<"):
            text, code = f"{_FOREIGN} (HTTP {status})", ""
        text = f"{call}: {one_line(text)}" + (f" [{one_line(code)}]" if code else "")
        raise AwsError(
            text, call=call, code=code, status=status, was_retried=about.get("RetryAttempts", 0) > 0
        ) from None
    except ParamValidationError as error:  # it was not sent
        text = one_line(mask.apply(str(error)))
        raise AwsError(f"{call}: {text}", call=call, code="ParamValidation", status=400) from None
    except BotoCoreError as error:
        if any(kind.__name__ in _OF_CREDENTIALS for kind in type(error).__mro__):
            raise no_credentials(error, mask) from None
        what = one_line(mask.apply(str(error)))
        what += f"; {REMEDY}" if isinstance(error, ConnectionError | HTTPClientError) else ""
        raise AwsError(f"{call}: no answer: {what}", call=call) from None
    except ResponseParserError:
        raise foreign(call) from None


def foreign(call: str) -> AwsError:
    """Return the error for an answer that is not from the service."""
    return AwsError(f"{call}: {_FOREIGN}", call=call)


def no_credentials(error: Exception, mask: Mask) -> CredentialsError:
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        text = "no AWS credentials found; configure them (`aws configure`, `aws sso login`), or set AWS_PROFILE"
        return CredentialsError(text, call="", code="NoCredentials")
    text = one_line(mask.apply(str(error)))
    remedy = f"{_RENEW}, or correct the AWS configuration"
    return CredentialsError(f"there are no AWS credentials: {text}; {remedy}", call="", code="CredentialRetrieval")


def configuration_error(error: Exception, profile: str | None) -> RefusedError:
    """Return the error for an AWS configuration from which boto3 cannot make a session, of the spec's profile if it names one."""
    from botocore.exceptions import ProfileNotFound

    if isinstance(error, ProfileNotFound):
        place, name = "profile" if profile else "AWS_PROFILE", error.kwargs["profile"]
        remedy = "write one of `aws configure list-profiles`"
        return RefusedError(f"{place}: {name!r} is not in the AWS configuration; {remedy}")
    return RefusedError(f"{one_line(error)}; check the AWS configuration")


def one_line(text: object) -> str:
    """Return the text on one line, without characters that control a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in str(text)).split()).rstrip(".")
