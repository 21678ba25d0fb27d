# SPDX-License-Identifier: Apache-2.0
"""Hints the agents that watch a repository to ask git now.

An agent is found by the repositories that it has reported. A hint is only that: the agent looks,
and deploys what git says.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.githosts.pushes import PushedBranch, PushedRepository
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.shared_state import GitHints
from pipecd_model.remotes import has_path, normalize_remote
from pipecd_wire.model.common_pb2 import ApplicationGitRepository
from pipecd_wire.pipecd.api import repositories_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2

IsWanted = Callable[[ApplicationGitRepository], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HintedAgents:
    """Whom a hint was for."""

    repositories: tuple[pb.HintedRepository, ...] = ()
    other_branches: tuple[str, ...] = ()
    """The branches of the repository that agents watch, and that the hint was not for."""


class RepositoryHints:
    """Sends hints to the agents of a project."""

    def __init__(self, stores: Stores, hints: GitHints) -> None:
        self._stores = stores
        self._hints = hints

    async def send(
        self, project_id: str, is_wanted: IsWanted, branches: tuple[PushedBranch, ...]
    ) -> HintedAgents:
        """Hints every agent that has the repository. A branch without a name is each agent's."""
        moved = {branch.name: branch.commit_hash for branch in branches}
        hinted: list[pb.HintedRepository] = []
        others: set[str] = set()
        for piped in await self._stores.pipeds.list_by_project(project_id):
            if piped.disabled:
                continue
            agent = Agent(project_id=project_id, piped_id=piped.id)
            for repository in filter(is_wanted, piped.repositories):
                if repository.branch in moved or "" in moved:
                    commit_hash = moved.get(repository.branch) or moved.get("", "")
                    told = await self._send_one(agent, repository, commit_hash)
                    hinted.append(
                        pb.HintedRepository(
                            piped_id=piped.id,
                            piped_name=piped.name,
                            repository_id=repository.id,
                            branch=repository.branch,
                            told=told,
                        )
                    )
                else:
                    others.add(repository.branch)
        return HintedAgents(repositories=tuple(hinted), other_branches=tuple(sorted(others)))

    async def _send_one(
        self, agent: Agent, repository: ApplicationGitRepository, commit_hash: str
    ) -> bool:
        hint = push_pb2.GitHint(
            repository_id=repository.id, branch=repository.branch, commit_hash=commit_hash
        )
        return await self._hints.send(agent, hint)


def match_address_or_id(text: str) -> IsWanted:
    """Returns a predicate for repositories with this address, in any form, or this id."""
    wanted = normalize_remote(text)

    def is_wanted(repository: ApplicationGitRepository) -> bool:
        same = bool(wanted) and normalize_remote(repository.remote) == wanted
        return same or repository.id == text

    return is_wanted


def match_pushed(pushed: PushedRepository) -> IsWanted:
    """Returns a predicate for repositories with one of the addresses that a host has given.

    For a host that has given none: with an address that ends with the path.
    """
    wanted = {normalize_remote(url) for url in pushed.urls} - {""}

    def is_wanted(repository: ApplicationGitRepository) -> bool:
        normalized = normalize_remote(repository.remote)
        return normalized in wanted if wanted else has_path(normalized, pushed.path)

    return is_wanted
