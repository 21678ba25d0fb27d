# SPDX-License-Identifier: Apache-2.0
"""What goes wrong between us and a cluster, split by what the caller can do.

ClusterError                     something about this cluster failed
├── ConnectionConfigError        kubeconfig, certificate or in-cluster files are wrong
├── CredentialsError             a credential plugin or token file gave nothing usable
├── UnknownKindError             the cluster does not serve this kind (yet), or its group is broken
└── ApiError                     the server refused, or could not be reached
    ├── NotFoundError            404
    ├── AlreadyExistsError       409 of a create
    ├── ConflictError            409: another manager owns a field, or the object has changed
    ├── ForbiddenError           403
    ├── UnauthorizedError        401, with fresh credentials too
    ├── InvalidError             400, 422: the fields are in `causes`
    ├── GoneError                410: the version is too old; list again
    ├── TooLargeError            the answer is larger than what we hold
    └── UnavailableError         429, 5xx, reset, timeout: after all retries

All are failures of a stage with a sentence for people. What a server says is hostile: it is
cleaned of control characters and bounded in length before it becomes part of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipecd_sdk import StageFailedError


class ClusterError(StageFailedError):
    """Something about a cluster failed; the message says what, on which object, and why."""


class ConnectionConfigError(ClusterError):
    """How to reach the cluster is not known: the message names the file and the key."""


class CredentialsError(ClusterError):
    """There are no credentials: a plugin for them failed, or a file is not there."""


class UnknownKindError(ClusterError):
    """The cluster does not serve this kind."""

    def __init__(
        self, message: str, *, api_version: str, kind: str, hint: str = "", failed: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.api_version = api_version
        self.kind = kind
        self.is_group_failed = failed
        """The group is there, but what it serves could not be found out: it may serve the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCause:
    """One reason that the server gave: a field and what is wrong with it."""

    reason: str
    """`FieldValueInvalid`, `FieldManagerConflict`."""
    field: str
    """The path, e.g. `spec.replicas`."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldConflict:
    """A field that somebody else applied with another value."""

    manager: str
    field: str


class ApiError(ClusterError):
    """The server refused a call, or did not answer it.

    `str()` is the sentence for people. `status` and `reason()` are those of every error of the SDK;
    the server's own are `http_status` and `status_reason`.
    """

    def __init__(
        self,
        sentence: str,
        *,
        http_status: int = 0,
        status_reason: str = "",
        message: str = "",
        causes: Sequence[StatusCause] = (),
        retry_after_seconds: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(sentence, hint=hint)
        self.http_status = http_status
        """0 when there was no answer."""
        self.status_reason = status_reason
        """The server's word for it, such as `AlreadyExists`; may be empty."""
        self.message = message
        """The server's message, cleaned and bounded."""
        self.causes = tuple(causes)
        self.retry_after_seconds = retry_after_seconds


class NotFoundError(ApiError):
    """There is no such object, or no such path."""


class AlreadyExistsError(ApiError):
    """The object to create is there already."""


class ConflictError(ApiError):
    """Another manager owns fields of ours, or the object has changed since it was read."""

    conflicts: tuple[FieldConflict, ...] = ()
    """What a server-side apply without force would have to take, and from whom."""

    @property
    def is_precondition(self) -> bool:
        """The object with this name has another uid than the one that was meant."""
        return "precondition" in self.message.lower()  # each version of the server words it anew


class ForbiddenError(ApiError):
    """The credentials are known and do not allow this."""


class UnauthorizedError(ApiError):
    """The credentials are not accepted, also after they were fetched anew."""


class InvalidError(ApiError):
    """The object or the call is wrong; `causes` has the fields."""


class GoneError(ApiError):
    """The version that was asked for is too old: list again."""


class TooLargeError(ApiError):
    """The answer is larger than what is held in memory."""


class UnavailableError(ApiError):
    """The server could not answer now: overloaded, restarting, unreachable, or a webhook is."""

    was_refused: bool = False
    """It is certain that nothing was done, so that every call can be made again."""
    is_permanent: bool = False
    """It will not be better in a minute: the server's certificate is not trusted, for example."""
