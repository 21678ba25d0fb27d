# SPDX-License-Identifier: Apache-2.0
"""Errors we raise on purpose. Anything else that escapes is a bug, and is shown as one.

PipecdError                     something of ours failed                  INTERNAL            exit 1
├── ConfigError                 a file or a call is wrong                 INVALID_ARGUMENT    exit 2
├── NotFoundError               no such thing, or not yours               NOT_FOUND           exit 4
├── UnauthenticatedError        we do not know who is calling             UNAUTHENTICATED     exit 4
├── DeniedError                 we know, and they may not                 PERMISSION_DENIED   exit 4
├── ConflictError               it is there already                       ALREADY_EXISTS      exit 1
├── StateError                  not possible in the state it is in        FAILED_PRECONDITION exit 1
├── SourceError                 git, or a commit, is not as needed        FAILED_PRECONDITION exit 1
├── MissingExtraError           a distribution for this is not installed  FAILED_PRECONDITION exit 1
├── PluginError                 absent, silent or broken plugin           FAILED_PRECONDITION exit 1
│   ├── NoPluginForStageError   no plugin offers the stage
│   └── AmbiguousStageError     several do, and the application chose none
├── LostDataError               what was kept is missing or damaged       DATA_LOSS           exit 1
├── TimedOutError               not done in the time that was given       DEADLINE_EXCEEDED   exit 3
└── UnavailableError            try again; the caller retries             UNAVAILABLE         exit 5

This module imports nothing heavy, so that a command line can say what is wrong at once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final

from pipecd_model.close_matches import find_close_matches

LONGEST_REASON: Final = 16 * 1024
"""Characters of a reason in a report: the control plane refuses one that is much longer, and the
report that carries it would never be delivered."""


class PipecdError(Exception):
    """What failed, on which thing, and what the reader can do about it."""

    status: ClassVar[str] = "INTERNAL"  # the name of a gRPC code; this package knows no gRPC
    exit_code: ClassVar[int] = 1  # what a command ends with when this reaches its user

    def __init__(self, message: str, *, hint: str = "", **subject: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.subject = subject  # goes to the log as fields, never into the message

    def with_hint(self) -> str:
        """Returns the message with its hint, no longer than a report may hold.

        `no plugin offers the stage 'WIAT' (did you mean 'WAIT'?)`
        """
        return shorten_reason(add_hint(self, self.hint))


class ConfigError(PipecdError):
    """A file that a person wrote, or a call that a client made, is wrong."""

    status = "INVALID_ARGUMENT"
    exit_code = 2


class NotFoundError(PipecdError):
    """It does not exist, or is not the caller's: the error is the same for both."""

    status = "NOT_FOUND"
    exit_code = 4


class UnauthenticatedError(PipecdError):
    """The caller did not prove who it is."""

    status = "UNAUTHENTICATED"
    exit_code = 4


class DeniedError(PipecdError):
    """The caller is known and may not do this."""

    status = "PERMISSION_DENIED"
    exit_code = 4


class ConflictError(PipecdError):
    """Something with this name or id exists already."""

    status = "ALREADY_EXISTS"


class StateError(PipecdError):
    """The thing exists, but is not in a state that allows this."""

    status = "FAILED_PRECONDITION"


class SourceError(PipecdError):
    """The desired state cannot be had: git refuses, or the commit lacks what is needed."""

    status = "FAILED_PRECONDITION"


class MissingExtraError(PipecdError):
    """What is asked for needs a distribution that comes with an extra, and it is not installed."""

    status = "FAILED_PRECONDITION"

    def __init__(self, purpose: str, *, distribution: str, extras: str) -> None:
        super().__init__(
            f"{purpose} need the distribution {distribution!r}, which is not installed",
            hint=f"install {extras}",
        )


class PluginError(PipecdError):
    """A plugin is absent, silent or broken."""

    status = "FAILED_PRECONDITION"


class NoPluginForStageError(PluginError):
    """The pipeline names a stage that no running plugin offers."""

    def __init__(self, stage: str, *, offered: Collection[str]) -> None:
        # Names of stages end alike: one that only ends like this one is not meant.
        near = find_close_matches(stage, offered, cutoff=0.7)
        super().__init__(
            f"no plugin offers the stage {stage!r}",
            hint=f"did you mean {near[0]!r}?" if near else "add its plugin to the piped config",
            stage=stage,
        )


class AmbiguousStageError(PluginError):
    """Several plugins offer a stage and the application does not say which one it wants."""

    def __init__(self, stage: str, *, plugins: Collection[str]) -> None:
        names = sorted(plugins)
        super().__init__(
            f"the stage {stage!r} is offered by {', '.join(repr(name) for name in names)}",
            hint=f"name one of them as the stage's plugin, e.g. plugin: {names[0]}",
            stage=stage,
        )


class LostDataError(PipecdError):
    """Something that was kept is missing or damaged where it was kept. Never the same as empty."""

    status = "DATA_LOSS"


class TimedOutError(PipecdError):
    """What was waited for did not come in the time that was given."""

    status = "DEADLINE_EXCEEDED"
    exit_code = 3


class UnavailableError(PipecdError):
    """A peer that is needed is unavailable right now. The one error that is worth a retry."""

    status = "UNAVAILABLE"
    exit_code = 5


def add_hint(message: object, hint: str) -> str:
    """Returns `message (hint)`, or the message alone where there is no hint."""
    return f"{message} ({hint})" if hint else str(message)


def explain(error: Exception) -> tuple[str, int] | None:
    """Returns what a program says of an error of ours, and its exit code; None for a bug."""
    if isinstance(error, PipecdError):
        return add_hint(error, error.hint), error.exit_code
    return None


def shorten_reason(reason: str) -> str:
    """Cut a reason to the length that a report may hold."""
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
