# SPDX-License-Identifier: Apache-2.0
"""The trigger's memory of each application of one repository.

Decisions depend only on the most recently triggered deployment, which the control plane stores. The
rest is a cache: losing it changes no decision.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import PipecdError
from pipecd_piped.git import Commit
from pipecd_piped.trigger.protocols import Calls
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.deployment_pb2 import Deployment

log = logger(__name__)

_QUESTIONS_AT_ONCE: Final = 16

MOST_AHEAD_SECONDS: Final = 24 * 3600
"""A last deployment that is further in the future was created with a clock that was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTriggered:
    """The most recently triggered deployment of an application."""

    commit: str
    deployment_id: str
    created_at: int = 0
    """Unix seconds; 0 when it is not known."""


class TriggerHistory:
    """The last deployments and decisions of the applications of one repository."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._last: dict[str, LastTriggered | None] = {}
        self._compared: dict[str, str] = {}
        self._decided: dict[str, tuple[str, bytes]] = {}
        self._rejected: set[str] = set()
        self._doubted: set[str] = set()
        """Applications of which a deployment may have been created without an answer."""
        self._asking = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    def keep_only(self, applications: Collection[str]) -> list[str]:
        """Forget all other applications, and return their ids: one that comes back is new."""
        known = self._last.keys() | self._decided.keys()
        gone = [application_id for application_id in known if application_id not in applications]
        for application_id in gone:
            for known_of in (self._last, self._compared, self._decided):
                known_of.pop(application_id, None)
            self._rejected.discard(application_id)
            self._doubted.discard(application_id)
        return gone

    def knows(self, application: Application) -> bool:
        """Returns whether a decision was made for this application at its current git path."""
        decided = self._decided.get(application.id)
        return decided is not None and decided[1] == _place(application)

    def is_decided(self, application: Application, head: Commit) -> bool:
        """Returns whether the decision for this head is made and final."""
        return self._decided.get(application.id) == (head.hash, _place(application))

    def mark_decided(self, application: Application, head: Commit) -> None:
        """Note that the decision for this head is made and final."""
        self._decided[application.id] = (head.hash, _place(application))
        self._rejected.discard(application.id)

    def mark_rejected(self, application: Application, head: Commit) -> None:
        """Note that this head waits until an open deployment of the application is completed."""
        self.mark_decided(application, head)
        self._rejected.add(application.id)

    def is_rejected(self, application_id: str) -> bool:
        """Returns whether the last head waits for the end of an open deployment."""
        return application_id in self._rejected

    def forget_decision(self, application_id: str) -> None:
        """Forget the decision about an application, so that it is decided again."""
        self._decided.pop(application_id, None)

    def forget_decisions(self) -> None:
        """Forget all decisions, so that every application is decided again."""
        self._decided.clear()
        self._rejected.clear()

    async def recall(self, applications: Iterable[Application]) -> None:
        """Load the last deployments of applications; those whose lookup fails stay unknown."""
        async with asyncio.TaskGroup() as tasks:
            for application in applications:
                if application.id in self._last:
                    continue
                if (
                    application.HasField("most_recently_triggered_deployment")
                    and application.id not in self._doubted
                ):
                    known = application.most_recently_triggered_deployment
                    self._last[application.id] = LastTriggered(
                        commit=known.trigger.commit.hash,
                        deployment_id=known.deployment_id,
                        created_at=known.started_at,
                    )
                else:
                    tasks.create_task(self._ask(application.id))

    def doubt_last(self, application_id: str) -> None:
        """Forget the last deployment: the control plane may have created another, unanswered.

        It is asked for before the next decision. If it was created, the next commit must not deploy
        the same change again.
        """
        self._last.pop(application_id, None)
        self._compared.pop(application_id, None)
        self._doubted.add(application_id)

    def has_last(self, application_id: str) -> bool:
        """Returns whether `last` is known: a deployment, or that there was none."""
        return application_id in self._last

    def last(self, application_id: str) -> LastTriggered | None:
        """Returns the last deployment; None when there was none. See `has_last`."""
        return self._last[application_id]

    def base(self, application_id: str) -> str | None:
        """Returns the commit to compare the head with; None when there was no deployment.

        It is the last deployed commit, or a later one at which no file of the application differed.
        """
        last = self._last[application_id]
        return None if last is None else self._compared.get(application_id, last.commit)

    def mark_compared(self, application_id: str, head: Commit) -> None:
        """Note that no file of the application differs between its last deployment and head."""
        self._compared[application_id] = head.hash

    def find_time(self, application: Application, now: float) -> int:
        """Returns the time of creation for the next deployment of an application.

        It is now, or later than that of the last one: within a second, and when the clock was set
        back, a newer deployment must not look older than the one whose place it takes.
        """
        last = self._last.get(application.id)
        told = application.most_recently_triggered_deployment.started_at
        known = max(last.created_at if last is not None else 0, told)
        this = max(1, int(now))
        return max(this, known + 1) if known - this < MOST_AHEAD_SECONDS else this

    def record_deployed(
        self, application: Application, head: Commit, deployment: Deployment
    ) -> None:
        """Note a new last deployment; the decision for this head is final."""
        self._last[application.id] = LastTriggered(
            commit=head.hash, deployment_id=deployment.id, created_at=deployment.created_at
        )
        self._doubted.discard(application.id)
        self._compared.pop(application.id, None)
        self.mark_decided(application, head)

    async def _ask(self, application_id: str) -> None:
        try:
            async with self._asking:
                found = await self._calls.last_triggered(application_id)
        except PipecdError as error:
            log.warning("trigger.unknown_past", application=application_id, reason=str(error))
            return
        self._doubted.discard(application_id)
        self._last[application_id] = found and LastTriggered(
            commit=found.trigger.commit.hash,
            deployment_id=found.deployment_id,
            created_at=found.started_at,
        )


def _place(application: Application) -> bytes:
    return application.git_path.SerializeToString(deterministic=True)
