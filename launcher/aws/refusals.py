"""AWS's refusals, and missing answers, as our own errors: one clear line each, with secrets masked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from launcher.aws.answers import FOREIGN
from launcher.aws.masking import Mask
from launcher.errors import RefusedError

_NO_ANSWER = 0
# https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html, and S3's and EC2's own names for the same.
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "InvalidToken")
# An access key that AWS does not know, or a signature that is not its secret's; keys look so, too, in a region that the account
# has not enabled. The codes are those of STS and IAM; SageMaker and others with JSON; S3; EC2; and all of them.
_REJECTED = (
    *("InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClientException", "InvalidSignatureException"),
    *("InvalidAccessKeyId", "AuthFailure", "IncompleteSignature", "MissingAuthenticationToken"),
)
_SKEWED = ("RequestTimeTooSkewed", "RequestInTheFuture")
_SKEW_TEXT = re.compile(r"Signature (expired|not yet current)")  # AWS has no code of its own for it
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")
_THROTTLED = ("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "SlowDown")
_MISSING = (
    *("ResourceNotFound", "ResourceNotFoundException", "NotFoundException"),  # SageMaker, CloudWatch Logs, KMS
    *("NoSuchEntity", "FileSystemNotFound", "PolicyNotFound"),  # IAM, EFS and FSx
    *("NoSuchBucket", "NoSuchBucketPolicy"),  # S3
)
_OF_CREDENTIALS = (  # botocore's exceptions, which have others derived from them
    *("NoCredentialsError", "PartialCredentialsError", "SSOError", "CredentialRetrievalError"),
    *("TokenRetrievalError", "RefreshWithMFAUnsupportedError", "MetadataRetrievalError", "LoginError"),
)
_RENEW = "renew them (`aws sso login`, or however you obtained them)"
_HAVE_EXPIRED = f"the AWS credentials have expired; {_RENEW}"
_ARE_REJECTED = (
    "AWS does not accept the credentials; check the access key, its secret and its token (`aws sts get-caller-identity` shows"
    " whether they work), and whether the account has enabled the region"
)
_CLOCK_IS_WRONG = "this machine's clock differs from AWS's by minutes; set it, for example with NTP"


def credentials_trouble(code: str, message: str = "") -> str:
    """Return what is wrong, and what to do, if AWS's code means that it accepts no call signed so; else an empty text."""
    if code in _SKEWED or (code in _REJECTED and _SKEW_TEXT.search(message)):
        return _CLOCK_IS_WRONG
    return _HAVE_EXPIRED if code in _EXPIRED else _ARE_REJECTED if code in _REJECTED else ""


class AwsError(RefusedError):
    """AWS refused a call, or did not answer."""

    def __init__(self, message: str, *, call: str, code: str = "", status: int = _NO_ANSWER) -> None:
        super().__init__(message)
        self.call = call  # as IAM writes it: `sagemaker:CreateTrainingJob`
        self.code = code  # AWS's own: `ResourceInUse`; empty if there was no answer
        self.status = status  # HTTP status; 0 if there was no answer
        self.was_in_doubt = False  # whether an earlier attempt of this call may have taken effect
        self.is_denied = code in _DENIED  # the caller lacks the permission
        # Expired or invalid credentials, none at all, or a wrong clock: no other call will be answered either.
        self.is_unauthenticated = bool(credentials_trouble(code, message))
        # DescribeTrainingJob reports a missing job as a ValidationException.
        self.is_missing = code in _MISSING or (code == "ValidationException" and "not found" in message)
        # An answer to HEAD has no body and leaves the cause open; expired credentials look so, too.
        self.is_nameless = status == 400 and code == "400"
        self.is_throttled = code in _THROTTLED  # the same call may succeed later
        self.is_unanswered = status == _NO_ANSWER or status >= 500  # or the answer is not from the service

    @property
    def may_have_happened(self) -> bool:
        """Whether the call may have taken effect, now or in an earlier attempt whose answer was lost."""
        return self.is_unanswered or self.was_in_doubt

    @property
    def is_passing(self) -> bool:
        """Whether the same call may well succeed later."""
        return self.is_throttled or self.is_unanswered


class CredentialsError(AwsError):
    """No call can be made: AWS does not accept the credentials, or there are none."""

    def __init__(self, message: str, *, call: str, code: str = "", status: int = _NO_ANSWER) -> None:
        super().__init__(message, call=call, code=code, status=status)
        self.is_unauthenticated, self.is_unanswered = True, False


def unauthenticated(error: AwsError) -> CredentialsError:
    """Return the refusal as an error that names what is wrong with the credentials."""
    if isinstance(error, CredentialsError):
        return error
    wrong = credentials_trouble(error.code, str(error)) or _HAVE_EXPIRED
    return CredentialsError(f"{wrong}. AWS reported: {error}", call=error.call, code=error.code, status=400)


def translated(do: Callable[[Any], Any], client: Any, call: str, mask: Mask) -> Any:
    """Return what `do` returns for the client.

    Raises:
        AwsError: AWS refused, or did not answer.
        CredentialsError: There are no credentials to sign with.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
    from botocore.parsers import ResponseParserError

    try:
        return do(client)
    except ClientError as error:
        details = error.response.get("Error", {})
        code, status = details.get("Code") or "", error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = mask.apply(str(details.get("Message") or code))
        if not text or "<?xml" in text or text.lstrip().startswith("<"):
            text, code = f"{FOREIGN} (HTTP {status})", ""
        suffix = f" [{one_line(code)}]" if code else ""
        raise AwsError(f"{call}: {one_line(text)}{suffix}", call=call, code=code, status=status) from None
    except ParamValidationError as error:  # it was not sent
        text = one_line(mask.apply(str(error)))
        raise AwsError(f"{call}: {text}", call=call, code="ParamValidation", status=400) from None
    except BotoCoreError as error:
        if is_credentials_error(error):
            raise no_credentials(error, mask) from None
        raise AwsError(f"{call}: no answer: {one_line(mask.apply(str(error)))}", call=call) from None
    except ResponseParserError:
        raise AwsError(f"{call}: {FOREIGN}", call=call) from None


def is_credentials_error(error: Exception) -> bool:
    """Return whether the error means that botocore found no usable credentials."""
    return any(kind.__name__ in _OF_CREDENTIALS for kind in type(error).__mro__)


def no_credentials(error: Exception, mask: Mask) -> CredentialsError:
    """Return the error for missing credentials."""
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        text = "no AWS credentials found; configure them (`aws configure`, `aws sso login`), or set AWS_PROFILE"
        return CredentialsError(text, call="", code="NoCredentials")
    text = one_line(mask.apply(str(error)))
    return CredentialsError(f"there are no AWS credentials: {text}; {_RENEW}", call="", code="CredentialRetrieval")


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
