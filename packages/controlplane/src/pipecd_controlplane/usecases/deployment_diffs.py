# SPDX-License-Identifier: Apache-2.0
"""What a deployment changes against what ran before it: its piped is asked, nothing is stored."""

from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployments
from pipecd_controlplane.usecases.asking import AgentQuestions, unreadable_error
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model.errors import StateError
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.push import push_pb2

ANSWER_SECONDS: Final = 120.0
"""How long a piped may take: two checkouts, and the plugins render both."""

DIFF_BYTES: Final = 6 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What ran before a deployment; all empty when nothing did."""

    commit_hash: str = ""
    config_filename: str = ""
    deployment_id: str = ""


class DeploymentDiffs:
    """Asks the pipeds of applications what deployments change."""

    def __init__(
        self, stores: Stores, questions: AgentQuestions, *, seconds: float = ANSWER_SECONDS
    ) -> None:
        self._stores = stores
        self._questions = questions
        self._seconds = seconds

    async def get(
        self, requester: Requester, deployment_id: str
    ) -> api_pb2.GetDeploymentDiffResponse:
        """Returns what a deployment changes. Raises PipecdError with a sentence for the asker."""
        deployment = await deployments.get(self._stores, requester, deployment_id)
        before = await self._find_before(deployment)
        question = push_pb2.Question(
            compare_deployment=push_pb2.CompareDeployment(
                deployment=deployment,
                running_commit_hash=before.commit_hash,
                running_config_filename=before.config_filename,
            )
        )
        agent = Agent(
            project_id=requester.project_id, piped_id=await self._choose_piped(deployment)
        )
        answer = await self._questions.ask(
            agent, question, seconds=self._seconds, purpose="say what a deployment changes"
        )
        if answer.WhichOneof("answer") != "deployment":
            raise unreadable_error()
        if answer.deployment.ByteSize() > DIFF_BYTES:
            raise StateError(
                "the piped answered with more than can be shown",
                hint="compare the two commits with git",
            )
        return api_pb2.GetDeploymentDiffResponse(
            diff=answer.deployment, running_deployment_id=before.deployment_id
        )

    async def _choose_piped(self, deployment: Deployment) -> str:
        """Returns the piped that has the application now: the one of then may be gone."""
        application = await self._stores.applications.find(
            deployment.project_id, deployment.application_id
        )
        if application is None or application.deleted:
            return deployment.piped_id
        return application.piped_id

    async def _find_before(self, deployment: Deployment) -> _Before:
        """Returns what ran when the deployment was planned; else what succeeded before it."""
        wanted = deployment.running_commit_hash
        async for each in deployments.list_successes(
            self._stores, deployment.project_id, deployment.application_id
        ):
            is_earlier = each.created_at <= deployment.created_at and each.id != deployment.id
            if is_earlier and wanted in ("", each.trigger.commit.hash):
                return _Before(
                    commit_hash=each.trigger.commit.hash,
                    config_filename=each.git_path.config_filename,
                    deployment_id=each.id,
                )
        return _Before(
            commit_hash=wanted, config_filename=deployment.running_config_filename if wanted else ""
        )
