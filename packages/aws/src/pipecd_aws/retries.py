# SPDX-License-Identifier: Apache-2.0
"""Which failed calls are worth another try, and whether they may have been carried out. Pure."""

from enum import Enum
from typing import Final

THROTTLING: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    }
)
TRANSIENT: Final = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServerException",
        "ServiceException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    }
)
_TOO_MANY: Final = "Too many concurrent attempts"
"""How ECS begins when it throttles the registration of task definitions: it has no code for it."""
_NEVER_SENT: Final = frozenset(
    {"ConnectTimeoutError", "EndpointConnectionError", "ProxyConnectionError"}
)
_LOST: Final = frozenset(
    {
        "ConnectionClosedError",
        "HTTPClientError",
        "IncompleteReadError",
        "ReadTimeoutError",
        "ResponseParserError",
    }
)
_READING: Final = ("BatchGet", "Describe", "Get", "List", "Lookup", "Search")


class CallVerdict(Enum):
    """What a failed call was."""

    FINAL = "final"
    """Another try would fail as well."""
    NOT_DONE = "not done"
    """It was not carried out; another try is worth it."""
    UNKNOWN = "unknown"
    """It may have been carried out."""


def is_read(operation: str) -> bool:
    """Returns whether an operation only reads, from its name."""
    return operation.startswith(_READING)


def judge_refusal(code: str, http_status: int, message: str = "") -> CallVerdict:
    """Returns what a refusal of AWS was."""
    if code in THROTTLING or http_status == 429 or message.startswith(_TOO_MANY):
        return CallVerdict.NOT_DONE
    if code in TRANSIENT or http_status in {500, 502, 503, 504}:
        return CallVerdict.UNKNOWN
    return CallVerdict.FINAL


def judge_failure(kind: str) -> CallVerdict:
    """Returns what a call without an answer was, from the name of its exception."""
    if kind in _NEVER_SENT:
        return CallVerdict.NOT_DONE
    return CallVerdict.UNKNOWN if kind in _LOST else CallVerdict.FINAL
