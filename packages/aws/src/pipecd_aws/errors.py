# SPDX-License-Identifier: Apache-2.0
"""What AWS refuses, as one sentence that says what to do. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pipecd_sdk import StageFailedError
from pipecd_sdk.kit.text import make_printable_line

LONGEST_TEXT: Final = 1_000
"""Characters of a message of AWS that are shown."""
DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",
        "UnauthorizedException",
        "UnauthorizedOperation",
    }
)
EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
UNKNOWN_CREDENTIALS: Final = frozenset(
    {
        "AuthFailure",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
REFUSED_SIGN_INS: Final = EXPIRED | UNKNOWN_CREDENTIALS
MISSING_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError"})
"""Exceptions of botocore."""
_ACTION: Final = re.compile(r"not authorized to perform:? ([a-z0-9-]+:[A-Za-z]+)")
_WHO: Final = re.compile(r"(?:User|Principal): (arn:\S+)")
_RESOURCE: Final = re.compile(r"on resource: (\S+)")
_VALUE: Final = re.compile(r"value: .*?, (?=type:|valid )", re.DOTALL)
_ACTION_PREFIX: Final = {"elbv2": "elasticloadbalancing", "logs": "logs"}
"""How a service is called in policies, where its client has another name."""


class AwsError(StageFailedError):
    """AWS refused a call, or was not reached. The message says what to do.

    Example:
        except AwsError as error:
            if error.code != "TaskSetNotFoundException":
                raise
    """

    def __init__(
        self, message: str, *, hint: str = "", code: str = "", is_outcome_unknown: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        """AWS's name of the error; empty when there was no answer."""
        self.is_outcome_unknown = is_outcome_unknown
        """The call may have been carried out: look before it is made again."""


def name_action(service: str, operation: str) -> str:
    """Returns the name of a right, e.g. `ecs:CreateTaskSet`."""
    return f"{_ACTION_PREFIX.get(service, service)}:{operation}"


def explain_refusal(
    service: str, operation: str, answer: Mapping[str, Any], *, is_outcome_unknown: bool = False
) -> AwsError:
    """Returns the error for an answer of AWS that is a refusal."""
    given = answer.get("Error")
    given = given if isinstance(given, Mapping) else {}
    code = _clean(str(given.get("Code", "")))[:100]
    said = _clean(str(given.get("Message", "")))
    action = name_action(service, operation)
    if code in DENIED or _ACTION.search(said):
        return _explain_denial(code, said, action)
    if code in EXPIRED:
        return AwsError(
            f"{action}: the credentials of piped have expired",
            hint="renew them; those of a role or a token are renewed by themselves if it still may",
            code=code,
        )
    if code in UNKNOWN_CREDENTIALS:
        return AwsError(
            f"{action}: AWS does not know the credentials of piped: {said or code}",
            hint="check the deploy target's profile, credentialsFile or roleARN, and the clock",
            code=code,
        )
    return AwsError(
        f"{action}: {said or 'AWS refused it'} ({code or 'no code'})",
        code=code,
        is_outcome_unknown=is_outcome_unknown,
    )


def _explain_denial(code: str, said: str, action: str) -> AwsError:
    found = _ACTION.search(said)
    missing = found[1] if found else action
    who = _WHO.search(said)
    where = _RESOURCE.search(said)
    return AwsError(
        f"{who[1] if who else 'the identity of piped'} has not the right {missing}"
        + (f" on {where[1]}" if where else "")
        + (f", which {action} needs" if missing != action else ""),
        hint=f"allow the action {missing} in its IAM policy",
        code=code,
    )


def explain_failure(service: str, operation: str, error: Exception) -> AwsError:
    """Returns the error for a call that had no answer, or could not be made."""
    action = name_action(service, operation)
    kind = type(error).__name__
    said = _clean(str(error))
    match kind:
        case "NoCredentialsError" | "PartialCredentialsError":
            return AwsError(
                f"{action}: there are no credentials for AWS",
                hint="give piped a role, or name profile, credentialsFile or roleARN in the"
                " deploy target",
            )
        case "ProfileNotFound":
            return AwsError(
                f"{action}: {said}",
                hint="the shared files of AWS have no such profile; check profile and"
                " credentialsFile of the deploy target",
            )
        case "CredentialRetrievalError" | "TokenRetrievalError" | "WebIdentityTokenError":
            return AwsError(f"{action}: no credentials could be got: {said}", hint="see the text")
        case "ParamValidationError":
            return AwsError(
                f"{action}: the definition does not fit: {_VALUE.sub('', said)}",
                hint="correct the field in the file of the repository",
            )
        case "EndpointConnectionError" | "ConnectTimeoutError" | "ProxyConnectionError":
            return AwsError(
                f"{action}: AWS is not reached: {said}",
                hint="check the network of piped, and the deploy target's region",
            )
        case "SSLError":
            return AwsError(
                f"{action}: the certificate is not trusted: {said}",
                hint="a proxy in between? name its authority with AWS_CA_BUNDLE",
            )
        case _:
            return AwsError(
                f"{action}: no answer ({kind}): {said}",
                hint="try again; AWS may be in trouble",
                is_outcome_unknown=True,
            )


def _clean(text: str) -> str:
    line = make_printable_line(text[: LONGEST_TEXT * 4])
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"
