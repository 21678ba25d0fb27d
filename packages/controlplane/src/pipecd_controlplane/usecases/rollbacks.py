# SPDX-License-Identifier: Apache-2.0
"""A person brings an application back to an earlier version, and it stays there: the pin.

The deployment's id is derived from the command's. So its record and the pin are written in the
transaction of the command, before the piped has made the deployment.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, deployments, limits, push_commands
from pipecd_controlplane.usecases.asking import AgentQuestions, unreadable_error
from pipecd_controlplane.usecases.decisions import decide_open
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.watching import check_watches
from pipecd_model.deployment import find_stage_to_decide
from pipecd_model.errors import ConfigError, NotFoundError, StateError
from pipecd_model.ids import id_of_command, new_id
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.common_pb2 import SyncStrategy
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control import control_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2

ANSWER_SECONDS: Final = 120.0
"""How long a piped may take to find out what a roll-back would change."""

PAGE: Final = 200
LONGEST_WALK: Final = 100
"""Roll-backs of roll-backs that are followed to the version that they brought back."""

HASH: Final = re.compile(r"[0-9a-f]{7,64}")
WHOLE_HASH: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
WHAT: Final = "roll back"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBackTarget:
    """What an application is brought back to."""

    commit_hash: str
    deployment_id: str = ""
    """Empty when the commit was never deployed."""


class RollBacks:
    """Previews and begins roll-backs of applications."""

    def __init__(
        self, stores: Stores, questions: AgentQuestions, *, seconds: float = ANSWER_SECONDS
    ) -> None:
        self._stores = stores
        self._questions = questions
        self._seconds = seconds

    async def roll_back(
        self, requester: Requester, request: api_pb2.RollBackApplicationRequest
    ) -> api_pb2.RollBackApplicationResponse:
        """Roll an application back, or say what that would change. Raises PipecdError.

        A call that is repeated with its idempotency key makes one command.
        """
        limits.text("reason", request.reason, limits.CONTEXT)
        application = await applications.get(self._stores, requester, request.application_id)
        command_id = requester.request_id("RollBackApplication")
        if command_id and not request.dry_run:
            known = await self._stores.push_commands.find(requester.project_id, command_id)
            if known is not None:
                return _describe(known.command)
        await self._check(application)
        target = await self._find_target(requester, application, request)
        if request.dry_run:
            preview = await self._preview(application, target, request.strategy)
            return api_pb2.RollBackApplicationResponse(
                commit_hash=preview.commit_hash,
                target_deployment_id=target.deployment_id,
                preview=preview,
            )
        if not WHOLE_HASH.fullmatch(target.commit_hash):
            raise StateError(
                f"the application {application.name!r} has not deployed the commit"
                f" {target.commit_hash!r} successfully",
                hint="give the whole hash of a commit of its branch",
            )
        command = self._build(requester, application, target, command_id, request.reason)
        command.strategy = request.strategy
        await self._write(requester.project_id, application, command)
        return _describe(command)

    async def roll_back_deployment(
        self, requester: Requester, deployment: Deployment, reason: str
    ) -> api_pb2.RollBackDeploymentResponse:
        """Roll an application back to what ran before a deployment. Raises PipecdError."""
        limits.text("reason", reason, limits.CONTEXT)
        command_id = requester.request_id("RollBackDeployment")
        if command_id:
            known = await self._stores.push_commands.find(requester.project_id, command_id)
            if known is not None:
                return _describe_older(known.command)
        application = await applications.get(self._stores, requester, deployment.application_id)
        await self._check(application)
        if find_stage_to_decide(deployment) is not None:
            command = await decide_open(
                self._stores,
                requester,
                deployment,
                push_pb2.Command(
                    id=command_id or new_id(), type=push_pb2.Command.ROLL_BACK, reason=reason
                ),
                at=self._questions.now(),
            )
            return _describe_older(command)
        target = await self._find_before(requester, application, deployment)
        command = self._build(requester, application, target, command_id, reason)
        await self._write(requester.project_id, application, command)
        return _describe_older(command)

    async def _check(self, application: Application) -> None:
        """Raises StateError for an application that cannot be rolled back."""
        if application.disabled or application.deleted:
            state = "deleted" if application.deleted else "disabled"
            raise StateError(f"the application {application.name!r} is {state}")
        asked = self._questions
        await check_watches(self._stores, asked.presence, application, WHAT, asked.now)

    def _build(
        self,
        requester: Requester,
        application: Application,
        target: RollBackTarget,
        command_id: str | None,
        reason: str,
    ) -> push_pb2.Command:
        return push_pb2.Command(
            id=command_id or new_id(),
            type=push_pb2.Command.ROLL_BACK,
            application_id=application.id,
            commander=requester.name,
            created_at=Timestamp(seconds=self._questions.now()),
            commit_hash=target.commit_hash,
            target_deployment_id=target.deployment_id,
            reason=reason,
        )

    async def _write(
        self, project_id: str, application: Application, command: push_pb2.Command
    ) -> None:
        """Add the command, with the pin and the record of the deployment that it will become."""
        replaced: list[pb.Pin] = []

        def edit(known: ReportedMessage[pb.ApplicationControl] | None) -> pb.ApplicationControl:
            changed = pb.ApplicationControl(application_id=application.id)
            if known is not None:
                changed.CopyFrom(known.message)
            replaced[:] = [known.message.pin] if known and known.message.HasField("pin") else []
            changed.pin.CopyFrom(
                pb.Pin(
                    commit_hash=command.commit_hash,
                    deployment_id=id_of_command(command.id),
                    by=command.commander,
                    reason=command.reason,
                    since=command.created_at,
                )
            )
            return changed

        async def work(transaction: Transaction) -> None:
            await self._stores.controls.change_in(
                transaction, project_id, application.id, edit, piped_id=application.piped_id
            )
            await push_commands.record_asked_in(
                self._stores,
                transaction,
                project_id,
                command,
                kind=pb.DeploymentRecord.ROLL_BACK,
                replaced_pin=replaced[0] if replaced else None,
            )
            await self._stores.push_commands.add_in(
                transaction, project_id, application.piped_id, command
            )

        await self._stores.database.write(work)

    async def _preview(
        self, application: Application, target: RollBackTarget, strategy: SyncStrategy.ValueType
    ) -> pb.RollBackPreview:
        question = push_pb2.Question(
            preview_roll_back=push_pb2.PreviewRollBack(
                application_id=application.id,
                commit_hash=target.commit_hash,
                deployed_before=bool(target.deployment_id),
                strategy=strategy,
            )
        )
        agent = Agent(project_id=application.project_id, piped_id=application.piped_id)
        answer = await self._questions.ask(
            agent, question, seconds=self._seconds, purpose="say what a roll-back would change"
        )
        if answer.WhichOneof("answer") != "roll_back":
            raise unreadable_error()
        return answer.roll_back

    async def _find_target(
        self,
        requester: Requester,
        application: Application,
        request: api_pb2.RollBackApplicationRequest,
    ) -> RollBackTarget:
        if request.deployment_id and request.commit_hash:
            raise ConfigError("invalid request: deployment_id and commit_hash are both set")
        if request.deployment_id:
            return await self._find_by_deployment(requester, application, request.deployment_id)
        if request.commit_hash:
            return await self._find_by_commit(application, request.commit_hash.lower())
        last = await self._find_last(application)
        return await self._find_before(requester, application, last)

    async def _find_by_deployment(
        self, requester: Requester, application: Application, deployment_id: str
    ) -> RollBackTarget:
        found = await deployments.get(self._stores, requester, deployment_id)
        if found.application_id != application.id:
            raise StateError(
                f"the deployment {deployment_id!r} is one of {found.application_name!r},"
                f" not of {application.name!r}"
            )
        if found.status != deployment_pb2.DEPLOYMENT_SUCCESS:
            raise StateError(
                f"the deployment {deployment_id!r} did not succeed, so it left nothing to go back"
                " to",
                hint=f"`pipectl deployment list {application.name} --status SUCCESS` shows others",
            )
        return RollBackTarget(commit_hash=found.trigger.commit.hash, deployment_id=found.id)

    async def _find_by_commit(self, application: Application, commit: str) -> RollBackTarget:
        if not HASH.fullmatch(commit):
            raise ConfigError(
                f"invalid request: commit_hash: {commit[:80]!r} is no commit",
                hint="give at least 7 digits of its hash",
            )
        async for each in self._list(application):
            if each.trigger.commit.hash.startswith(commit):
                return RollBackTarget(commit_hash=each.trigger.commit.hash, deployment_id=each.id)
        return RollBackTarget(commit_hash=commit)

    async def _find_last(self, application: Application) -> Deployment:
        wanted = DeploymentFilter(application_ids=(application.id,))
        page = await self._stores.deployments.page(
            application.project_id, wanted, limit=PAGE, cursor=""
        )
        last_id = application.most_recently_triggered_deployment.deployment_id
        found = next((each for each in page.items if each.id == last_id), None)
        if found is None and not page.items:
            raise StateError(
                f"the application {application.name!r} was never deployed: there is nothing to go"
                " back to"
            )
        return found or max(page.items, key=lambda each: (each.created_at, each.id))

    async def _find_before(
        self, requester: Requester, application: Application, deployment: Deployment
    ) -> RollBackTarget:
        """Returns what ran before a deployment. Raises StateError when that is not known.

        Of a roll-back it is what ran before the version that it brought back: to roll back twice
        goes further back, never forward again.
        """
        base = await self._follow_roll_backs(requester, deployment)
        commit = base.running_commit_hash
        if not commit and base.status == deployment_pb2.DEPLOYMENT_PENDING:
            commit = application.most_recently_successful_deployment.trigger.commit.hash
        other = base.trigger.commit.hash
        async for each in self._list(application):
            found = each.trigger.commit.hash
            if found == commit and commit != other:
                return RollBackTarget(commit_hash=found, deployment_id=each.id)
            if commit == other and found != other and each.created_at <= base.created_at:
                return RollBackTarget(commit_hash=found, deployment_id=each.id)
        if commit and commit != other:
            return RollBackTarget(commit_hash=commit, deployment_id=base.id)
        raise StateError(
            f"nothing ran before the deployment {base.id!r} of {application.name!r}",
            hint="say what to go back to: --to DEPLOYMENT or --to COMMIT",
        )

    async def _follow_roll_backs(self, requester: Requester, deployment: Deployment) -> Deployment:
        base = deployment
        for _ in range(LONGEST_WALK):
            record = await self._stores.records.find(requester.project_id, base.id)
            if record is None or record.message.type != pb.DeploymentRecord.ROLL_BACK:
                return base
            try:
                base = await self._stores.deployments.get(
                    requester.project_id, record.message.target_deployment_id
                )
            except NotFoundError:
                break
        raise StateError(
            f"the deployment {base.id!r} was a roll-back, and what ran before its version is not"
            " known any more",
            hint="say what to go back to: --to DEPLOYMENT or --to COMMIT",
        )

    def _list(self, application: Application) -> AsyncIterator[Deployment]:
        return deployments.list_successes(self._stores, application.project_id, application.id)


def _describe(command: push_pb2.Command) -> api_pb2.RollBackApplicationResponse:
    return api_pb2.RollBackApplicationResponse(
        command_id=command.id,
        deployment_id=id_of_command(command.id),
        commit_hash=command.commit_hash,
        target_deployment_id=command.target_deployment_id,
    )


def _describe_older(command: push_pb2.Command) -> api_pb2.RollBackDeploymentResponse:
    return api_pb2.RollBackDeploymentResponse(
        command_id=command.id, deployment_id=command.deployment_id or id_of_command(command.id)
    )
