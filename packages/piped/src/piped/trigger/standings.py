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
class Standing:
    """What is told about an application."""

    status: ApplicationSyncStatus.ValueType
    short_reason: str = ""
    reason: str = ""


class Standings:
    """Tells the control plane about trouble, and about nothing else."""

    def __init__(self, calls: Calls, clock: Callable[[], float]) -> None:
        self._calls = calls
        self._clock = clock
        self._told: dict[str, Standing] = {}

    def broken(self, application: Application, reason: str) -> None:
        """The application's file, as the head has it, cannot be used."""
        self._tell(
            application,
            Standing(status=INVALID_CONFIG, short_reason=BROKEN_FILE, reason=reason),
        )

    def refused(self, application: Application, reason: str) -> None:
        """The control plane does not take its deployment."""
        self._tell(
            application, Standing(status=INVALID_CONFIG, short_reason=REFUSED, reason=reason)
        )

    def unreadable(self, application: Application, reason: str) -> None:
        """What git keeps of the application cannot be read now; it is tried again."""
        self._tell(
            application, Standing(status=UNKNOWN, short_reason=GIT_UNREADABLE, reason=reason)
        )

    def away(self, application: Application, reason: str) -> None:
        """Nobody can say whether there is something newer. A broken file is the worse news."""
        told = self._of(application)
        if told.status != INVALID_CONFIG and told.short_reason != GIT_UNREADABLE:
            self._tell(application, Standing(status=UNKNOWN, short_reason=GIT_AWAY, reason=reason))

    def well(self, application: Application, *, synced: bool, reachable: bool) -> None:
        """Its file is fine, and if the repository is too, there is no trouble any more."""
        trouble = self._of(application)
        if (
            trouble.status == INVALID_CONFIG
            or trouble.short_reason == GIT_UNREADABLE
            or (trouble.short_reason == GIT_AWAY and reachable)
        ):
            self._tell(application, Standing(status=SYNCED if synced else UNKNOWN))

    def is_in_trouble(self, application: Application) -> bool:
        """Is there trouble that was told, and whose end was not?"""
        told = self._of(application)
        return told.status == INVALID_CONFIG or told.short_reason in {GIT_AWAY, GIT_UNREADABLE}

    def forget(self, application_id: str) -> None:
        """The application is not ours any more."""
        self._told.pop(application_id, None)

    def _of(self, application: Application) -> Standing:
        if application.id in self._told:
            return self._told[application.id]
        known = application.sync_state
        return Standing(status=known.status, short_reason=known.short_reason, reason=known.reason)

    def _tell(self, application: Application, standing: Standing) -> None:
        if len(standing.reason) > LONGEST_REASON:
            standing = replace(standing, reason=f"{standing.reason[:LONGEST_REASON]}…")
        if self._of(application) == standing:
            return
        self._told[application.id] = standing
        self._calls.sync_state(
            application.id,
            ApplicationSyncState(
                status=standing.status,
                short_reason=standing.short_reason,
                reason=standing.reason,
                timestamp=max(1, int(self._clock())),
            ),
        )
