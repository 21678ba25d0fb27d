# SPDX-License-Identifier: Apache-2.0
"""Adds sentences to the sync state of an application, for whoever looks at its page.

These are settings of the file that have no effect, why a newer commit is not deployed, and why what
is out of sync is left alone.

The sync state is what the application's page shows beside its name: who looks there for a setting
that seems to do nothing, or for a deployment that does not come, finds the reason.
"""

from collections.abc import Callable
from typing import Final

from pipecd_model.config import ApplicationConfig
from pipecd_model.config.unserved import describe_unserved
from pipecd_model.holds import COMMIT_WAITS, WAITING, find_waiting
from pipecd_wire.model.application_pb2 import (
    INVALID_CONFIG,
    OUT_OF_SYNC,
    SYNCED,
    UNKNOWN,
    Application,
    ApplicationSyncState,
)

HEADING: Final = "settings without effect:"
"""The line that begins the addition: by it, an earlier piped's addition is found and replaced."""

NOTE: Final = "note: "
"""Begins the line of a note."""

NEW_LINE: Final = "\n"

MOST_NAMED: Final = 20
"""Settings that are named; a file can have as many as stages."""


class SyncStates:
    """Reports sync states with their additions, and again when only an addition has changed."""

    def __init__(
        self, report: Callable[[str, ApplicationSyncState], None], clock: Callable[[], float]
    ) -> None:
        self._report = report
        self._clock = clock
        self._states: dict[str, ApplicationSyncState] = {}
        """The last state of each application that was reported here, without its addition."""
        self._files: dict[str, ApplicationConfig] = {}
        self._additions: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        """Why a newer commit of each application is not deployed; empty when none waits."""
        self._notes: dict[str, str] = {}
        """Why what is out of sync is left alone, by application."""

    def report(self, application_id: str, state: ApplicationSyncState) -> None:
        """Report a sync state, with the addition of the application's file."""
        self._states[application_id] = state
        self._report(application_id, self._extend(application_id, state))

    def take_file(self, application: Application, config: ApplicationConfig) -> None:
        """Take the application's file at the head; reports its addition if that is new."""
        if self._files.get(application.id) is config:
            return
        self._files[application.id] = config
        shown = self._additions.get(application.id, _split(application.sync_state)[1])
        self._additions[application.id] = addition = _describe(config)
        if addition != shown:
            self._report_again(application)

    def report_waiting(self, application: Application, sentence: str) -> None:
        """Report why a newer commit is not deployed, if that is new; empty when none waits."""
        sentence = " ".join(sentence.split())
        shown = self._waiting.get(application.id)
        if shown is None:
            shown = find_waiting(application.sync_state)
        self._waiting[application.id] = sentence
        if sentence != shown:
            self._report_again(application)

    def _report_again(self, application: Application) -> None:
        state = self._states.get(application.id) or _split(application.sync_state)[0]
        if state.status == INVALID_CONFIG:
            return  # a state that is no more true is replaced soon
        wanted = ApplicationSyncState()
        wanted.CopyFrom(state)
        wanted.timestamp = max(1, int(self._clock()))
        self._report(application.id, self._extend(application.id, wanted))

    def set_note(self, application_id: str, note: str) -> None:
        """Show a sentence with every state of an application; an empty one removes it."""
        if note == self._notes.get(application_id, ""):
            return
        self._notes[application_id] = note
        if application_id in self._states:
            self._report(application_id, self._extend(application_id, self._states[application_id]))

    def forget(self, application_id: str) -> None:
        """Forget an application that this piped no longer has."""
        for kept in (
            self._states,
            self._files,
            self._additions,
            self._waiting,
            self._notes,
        ):
            kept.pop(application_id, None)

    def _extend(self, application_id: str, state: ApplicationSyncState) -> ApplicationSyncState:
        addition = self._additions.get(application_id, "")
        waiting = self._waiting.get(application_id, "")
        note = self._notes.get(application_id, "")
        if not (addition or waiting or note) or state.status == INVALID_CONFIG:
            return state
        extended = ApplicationSyncState()
        extended.CopyFrom(state)
        if waiting and state.status in {SYNCED, UNKNOWN}:
            extended.status = OUT_OF_SYNC
            extended.short_reason = COMMIT_WAITS
        elif addition and not state.short_reason:
            extended.short_reason = f"{HEADING} {addition.count(NEW_LINE)}"
        line = f"{WAITING}{waiting}" if waiting else ""
        told = f"{NOTE}{note}" if note else ""
        extended.reason = "\n".join(filter(None, (line, state.reason, told, addition)))
        return extended


def _describe(config: ApplicationConfig) -> str:
    named = describe_unserved(config)
    more = [f"and {len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return "\n".join((HEADING, *named[:MOST_NAMED], *more)) if named else ""


def _split(state: ApplicationSyncState) -> tuple[ApplicationSyncState, str]:
    """Returns a state without its addition, and the addition."""
    bare = ApplicationSyncState()
    bare.CopyFrom(state)
    before, heading, rest = state.reason.partition(HEADING)
    if find_waiting(state):
        before = before.partition("\n")[2]
    bare.reason = "\n".join(line for line in before.splitlines() if not line.startswith(NOTE))
    if state.short_reason.startswith(HEADING):
        bare.short_reason = ""
    if state.short_reason == COMMIT_WAITS:
        bare.short_reason, bare.status = "", SYNCED
    return bare, heading + rest
