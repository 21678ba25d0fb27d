# SPDX-License-Identifier: Apache-2.0
"""What an application's page says when its file or its repository is in trouble.

Each trouble is told once, and its end once; a piped that was restarted takes over what the last one
told.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pipecd_wire.model.application_pb2 import (
    INVALID_CONFIG,
    SYNCED,
    UNKNOWN,
    Application,
    ApplicationSyncState,
    ApplicationSyncStatus,
)
from piped.trigger.protocols import Calls

BROKEN_FILE: Final = "the application file cannot be used"
GIT_AWAY: Final = "the git repository cannot be reached"
REFUSED: Final = "the control plane refuses its deployment"
GIT_UNREADABLE: Final = "the git repository cannot be read"

LONGEST_REASON: Final = 8000
"""Characters: a file can have a hundred thousand faults, and the first ones are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedState:
    """What was reported of an application."""

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
        """The application's file, as the head has it, cannot be used."""
        self._report(
            application,
            ReportedState(status=INVALID_CONFIG, short_reason=BROKEN_FILE, reason=reason),
        )

    def report_refused(self, application: Application, reason: str) -> None:
        """The control plane does not take its deployment."""
        self._report(
            application, ReportedState(status=INVALID_CONFIG, short_reason=REFUSED, reason=reason)
        )

    def report_unreadable(self, application: Application, reason: str) -> None:
        """What git keeps of the application cannot be read now; it is tried again."""
        self._report(
            application, ReportedState(status=UNKNOWN, short_reason=GIT_UNREADABLE, reason=reason)
        )

    def report_unreachable(self, application: Application, reason: str) -> None:
        """Nobody can say whether there is something newer. A broken file is the worse news."""
        told = self._current(application)
        if told.status != INVALID_CONFIG and told.short_reason != GIT_UNREADABLE:
            self._report(
                application, ReportedState(status=UNKNOWN, short_reason=GIT_AWAY, reason=reason)
            )

    def report_end(self, application: Application, *, synced: bool, reachable: bool) -> None:
        """Its file is fine, and if the repository is too, there is no trouble any more."""
        trouble = self._current(application)
        if (
            trouble.status == INVALID_CONFIG
            or trouble.short_reason == GIT_UNREADABLE
            or (trouble.short_reason == GIT_AWAY and reachable)
        ):
            self._report(application, ReportedState(status=SYNCED if synced else UNKNOWN))

    def is_in_trouble(self, application: Application) -> bool:
        """Was trouble reported, and its end not?"""
        told = self._current(application)
        return told.status == INVALID_CONFIG or told.short_reason in {GIT_AWAY, GIT_UNREADABLE}

    def forget(self, application_id: str) -> None:
        """The application is not ours any more."""
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
