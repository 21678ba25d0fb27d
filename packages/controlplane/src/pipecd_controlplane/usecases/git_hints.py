# SPDX-License-Identifier: Apache-2.0
"""Hints to agents that a branch may have moved, in the memory of this process.

Hints for one branch that an agent was not sent yet are one hint: the newest. So what waits is
bounded by the repositories of the agent, however many are sent.
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import ChangeBus, TakeGitHints
from pipecd_wire.pipecd.push import push_pb2

_Pending = dict[tuple[str, str], push_pb2.GitHint]
"""By repository and branch."""


class InProcessGitHints:
    """The hints for the agents that are connected to this process; implements `GitHints`."""

    def __init__(self, bus: ChangeBus) -> None:
        self._bus = bus
        self._connections: defaultdict[str, list[_Pending]] = defaultdict(list)

    @asynccontextmanager
    async def channel(self, agent: Agent) -> AsyncIterator[TakeGitHints]:
        pending: _Pending = {}

        async def take() -> list[push_pb2.GitHint]:
            hints = list(pending.values())
            pending.clear()
            return hints

        connections = self._connections[agent.piped_id]
        connections.append(pending)
        try:
            yield take
        finally:
            # By identity: two connections without hints are equal.
            connections[:] = [each for each in connections if each is not pending]
            if not connections:
                self._connections.pop(agent.piped_id, None)

    async def send(self, agent: Agent, hint: push_pb2.GitHint) -> bool:
        connections = self._connections.get(agent.piped_id, [])
        for pending in connections:
            pending[hint.repository_id, hint.branch] = hint
        if connections:
            self._bus.publish(
                [
                    Change(
                        kind=ChangeKind.GIT_HINT,
                        id=hint.repository_id,
                        project_id=agent.project_id,
                        piped_id=agent.piped_id,
                    )
                ]
            )
        return bool(connections)
