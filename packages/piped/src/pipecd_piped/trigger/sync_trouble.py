# SPDX-License-Identifier: Apache-2.0
"""Reports the sync state of applications whose file or repository cannot be used.

Each trouble is reported once, and its end once; a restarted piped starts from the reported state
that the control plane has.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pipecd_piped.trigger.protocols import Calls
from pipecd_wire.model.application_pb2 import (
    INVALID_CONFIG,
    SYNCED,
    UNKNOWN,
    Application,
    ApplicationSyncState,
    ApplicationSyncStatus,
)

BROKEN_FILE: Final = "the application file cannot be used"
GIT_AWAY: Final = "the git repository cannot be reached"
REFUSED: Final = "the control plane refuses its deployment"
GIT_UNREADABLE: Final = "the git repository cannot be read"

LONGEST_REASON: Final = 8000
"""Characters: a file can have a hundred thousand faults, and the first ones are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedState:
    """The sync state that was last reported of an application."""

    status: ApplicationSyncStatus.ValueType
    short_reason: str = ""
    reason: str = ""


class TroubleReporter:
    """Reports the trouble of applications to the control plane, and its end."""

    def __init__(self, calls: Calls, clock: Callable[[], float]) -> None:
        self._calls = calls
        self._clock = clock
        self._reported: dict[str, ReportedState] = {}

    def report_broken_file(self, application: Application, reason: str) -> None:
        """Report that the application's file at the head cannot be used."""
        self._report(
            application,
            ReportedState(status=INVALID_CONFIG, short_reason=BROKEN_FILE, reason=reason),
        )

    def report_refused(self, application: Application, reason: str) -> None:
        """Report that the control plane refuses the application's deployment."""
        self._report(
            application, ReportedState(status=INVALID_CONFIG, short_reason=REFUSED, reason=reason)
        )

    def report_unreadable(self, application: Application, reason: str) -> None:
        """Report that the application cannot be read from git now; the read is retried."""
        self._report(
            application, ReportedState(status=UNKNOWN, short_reason=GIT_UNREADABLE, reason=reason)
        )

    def report_unreachable(self, application: Application, reason: str) -> None:
        """Report that the remote is away; a broken file or unreadable mirror takes precedence."""
        told = self._current(application)
        if told.status != INVALID_CONFIG and told.short_reason != GIT_UNREADABLE:
            self._report(
                application, ReportedState(status=UNKNOWN, short_reason=GIT_AWAY, reason=reason)
            )

    def report_end(self, application: Application, *, synced: bool, reachable: bool) -> None:
        """Report the end of trouble after a usable file; of an outage only if `reachable`."""
        trouble = self._current(application)
        if (
            trouble.status == INVALID_CONFIG
            or trouble.short_reason == GIT_UNREADABLE
            or (trouble.short_reason == GIT_AWAY and reachable)
        ):
            self._report(application, ReportedState(status=SYNCED if synced else UNKNOWN))

    def is_in_trouble(self, application: Application) -> bool:
        """Returns whether the last reported state of an application is trouble."""
        told = self._current(application)
        return told.status == INVALID_CONFIG or told.short_reason in {GIT_AWAY, GIT_UNREADABLE}

    def forget(self, application_id: str) -> None:
        """Forget the state of an application that this piped no longer has."""
        self._reported.pop(application_id, None)

    def _current(self, application: Application) -> ReportedState:
        if application.id in self._reported:
            return self._reported[application.id]
        known = application.sync_state
        return ReportedState(
            status=known.status, short_reason=known.short_reason, reason=known.reason
        )

    def _report(self, application: Application, state: ReportedState) -> None:
        if len(state.reason) > LONGEST_REASON:
            state = replace(state, reason=f"{state.reason[:LONGEST_REASON]}…")
        if self._current(application) == state:
            return
        self._reported[application.id] = state
        self._calls.report_sync_state(
            application.id,
            ApplicationSyncState(
                status=state.status,
                short_reason=state.short_reason,
                reason=state.reason,
                timestamp=max(1, int(self._clock())),
            ),
        )
