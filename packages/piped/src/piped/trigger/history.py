# SPDX-License-Identifier: Apache-2.0
"""What the trigger knows of each application of one repository.

Only the deployment that was triggered last decides anything, and the control plane keeps that. The
rest saves work: forgetting it changes no decision.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import Application
from piped.git import Commit
from piped.trigger.protocols import Calls

log = logger(__name__)

_QUESTIONS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTriggered:
    """The deployment of an application that was triggered last."""

    commit: str
    deployment_id: str


class TriggerHistory:
    """The applications of one repository."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._last: dict[str, LastTriggered | None] = {}
        self._compared: dict[str, str] = {}
        self._decided: dict[str, tuple[str, bytes]] = {}
        self._asking = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    def keep_only(self, applications: Collection[str]) -> list[str]:
        """Forget the others, and return them: one that comes back is a new one."""
        known = self._last.keys() | self._decided.keys()
        gone = [application_id for application_id in known if application_id not in applications]
        for application_id in gone:
            for known_of in (self._last, self._compared, self._decided):
                known_of.pop(application_id, None)
        return gone

    def knows(self, application: Application) -> bool:
        """Was this application, in this place of the repository, decided about?"""
        decided = self._decided.get(application.id)
        return decided is not None and decided[1] == _place(application)

    def is_decided(self, application: Application, head: Commit) -> bool:
        """Is there nothing more to say about this head?"""
        return self._decided.get(application.id) == (head.hash, _place(application))

    def mark_decided(self, application: Application, head: Commit) -> None:
        """Note that there is nothing more to say about this head."""
        self._decided[application.id] = (head.hash, _place(application))

    def forget_decisions(self) -> None:
        """Look at every application once more."""
        self._decided.clear()

    async def recall(self, applications: Iterable[Application]) -> None:
        """Know the last deployment of applications; those that cannot be asked about stay out."""
        async with asyncio.TaskGroup() as tasks:
            for application in applications:
                if application.id in self._last:
                    continue
                if application.HasField("most_recently_triggered_deployment"):
                    known = application.most_recently_triggered_deployment
                    self._last[application.id] = LastTriggered(
                        commit=known.trigger.commit.hash, deployment_id=known.deployment_id
                    )
                else:
                    tasks.create_task(self._ask(application.id))

    def has_last(self, application_id: str) -> bool:
        """Is its last deployment known, or that there was none?"""
        return application_id in self._last

    def last(self, application_id: str) -> LastTriggered | None:
        """Its last deployment; None when there was none."""
        return self._last[application_id]

    def base(self, application_id: str) -> str | None:
        """The commit that the head is compared with: none of its files differ from the last one."""
        last = self._last[application_id]
        return None if last is None else self._compared.get(application_id, last.commit)

    def mark_compared(self, application_id: str, head: Commit) -> None:
        """Nothing of the application differs between its last deployment and this head."""
        self._compared[application_id] = head.hash

    def record_deployed(self, application: Application, head: Commit, deployment_id: str) -> None:
        """This is its last deployment now."""
        self._last[application.id] = LastTriggered(commit=head.hash, deployment_id=deployment_id)
        self._compared.pop(application.id, None)
        self.mark_decided(application, head)

    async def _ask(self, application_id: str) -> None:
        try:
            async with self._asking:
                found = await self._calls.last_triggered(application_id)
        except PipecdError as error:
            log.warning("trigger.unknown_past", application=application_id, reason=str(error))
            return
        self._last[application_id] = found and LastTriggered(
            commit=found.trigger.commit.hash, deployment_id=found.deployment_id
        )


def _place(application: Application) -> bytes:
    return application.git_path.SerializeToString(deterministic=True)
