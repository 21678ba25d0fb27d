# SPDX-License-Identifier: Apache-2.0
"""Hints that a branch may have moved, to agents that are connected to any control plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipecd_controlplane.store.postgres.notices import MOST_BYTES, Notice, encode_notice
from pipecd_controlplane.usecases.git_hints import InProcessGitHints
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.replicated.channels import ChannelKind, Channels
from pipecd_controlplane.usecases.replicated.notifier import Notifier
from pipecd_controlplane.usecases.shared_state import TakeGitHints
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.push import push_pb2

log = logger(__name__)


class ReplicatedGitHints:
    """Implements `GitHints`."""

    def __init__(self, local: InProcessGitHints, channels: Channels, notifier: Notifier) -> None:
        self._local = local
        self._channels = channels
        self._notifier = notifier

    @asynccontextmanager
    async def channel(self, agent: Agent) -> AsyncIterator[TakeGitHints]:
        async with (
            self._local.channel(agent) as take,
            self._channels.opened(ChannelKind.GIT_HINTS, agent),
        ):
            yield take

    async def send(self, agent: Agent, hint: push_pb2.GitHint) -> bool:
        is_sent = await self._local.send(agent, hint)
        found = await self._channels.find_replicas(ChannelKind.GIT_HINTS, [agent.piped_id])
        others = set(found.get(agent.piped_id, [])) - {self._notifier.replica_id}
        if not others:
            return is_sent
        payload = encode_notice(
            Notice(
                origin=self._notifier.replica_id,
                git_hint=(
                    agent.project_id,
                    agent.piped_id,
                    hint.repository_id,
                    hint.branch,
                    hint.commit_hash,
                ),
            )
        )
        if len(payload.encode()) > MOST_BYTES:
            # The agent asks git at its next interval.
            log.warning("replica.hint_too_long", piped_id=agent.piped_id)
            return is_sent
        await self._notifier.send([payload])
        return True

    async def hear(self, notice: Notice) -> None:
        """Hands a hint of another control plane to the agents that are connected here."""
        if notice.git_hint is not None:
            project_id, piped_id, repository_id, branch, commit_hash = notice.git_hint
            await self._local.send(
                Agent(project_id=project_id, piped_id=piped_id),
                push_pb2.GitHint(
                    repository_id=repository_id, branch=branch, commit_hash=commit_hash
                ),
            )
