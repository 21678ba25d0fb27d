# SPDX-License-Identifier: Apache-2.0
"""A deployment request, and the complete deployment message that is built from it. Pure.

Upstream's plugins and control planes validate the message and refuse one with missing fields.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from pipecd_model.config import ApplicationConfig
from pipecd_model.queueing import QUEUE_KEY, encode_settings
from pipecd_model.strategy import QUICK_IF_OFFERED
from pipecd_piped.git import Commit, Repository, commit_url
from pipecd_piped.report.commands import AnyCommand
from pipecd_wire.model import common_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice.service_pb2 import CreateDeploymentChainRequest

TRACE: Final = "Pipecd-Dev-Trace-Trigger-Commit-Hash"
"""Trailer of a commit that an event made: the commit of the other repository it goes back to."""

NOTIFICATION: Final = "DeploymentNotification"
"""Key in the shared metadata: the notification settings of the application."""

REPAIRS: Final = "DriftRepairs"
"""Key in the shared metadata: how many repairs in a row the deployment is the last of."""

_ASKED_FOR: Final = {
    common_pb2.QUICK_SYNC: "quick sync asked for by {}",
    common_pb2.PIPELINE: "pipeline sync asked for by {}",
}


def sync_target(command: Command) -> str | None:
    """Returns the application that a command wants to be deployed; None for other commands."""
    match command.type:
        case Command.SYNC_APPLICATION:
            return command.sync_application.application_id
        case Command.CHAIN_SYNC_APPLICATION:
            return command.chain_sync_application.application_id
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRequest:
    """A deployment that was decided on and is not created yet."""

    deployment_id: str
    application: Application
    config: ApplicationConfig
    head: Commit
    reason: str
    """Why it is requested, as a sentence."""
    command: AnyCommand | None = None
    repairs: int = 0
    """Of a repair: how many repairs in a row it is the last of."""

    @property
    def chained(self) -> Command.ChainSyncApplication | None:
        """Its place in the chain that it follows; None when it follows none."""
        if isinstance(self.command, Command) and self.command.HasField("chain_sync_application"):
            return self.command.chain_sync_application
        return None

    @property
    def starts_chain(self) -> bool:
        """Whether others follow: not a repair, a roll-back, or one that follows a chain itself."""
        if self.repairs or self.chained is not None or is_roll_back(self.command):
            return False
        after = self.config.post_sync
        return after is not None and after.chain is not None


def is_roll_back(command: AnyCommand | None) -> bool:
    """Returns whether a command brings an application back to an earlier version."""
    return isinstance(command, push.Command) and command.type == push.Command.ROLL_BACK


def list_matchers(
    config: ApplicationConfig,
) -> list[CreateDeploymentChainRequest.ApplicationMatcher]:
    """Returns which applications follow this one in its chain, block by block."""
    after = config.post_sync
    if after is None or after.chain is None:
        return []
    return [
        CreateDeploymentChainRequest.ApplicationMatcher(
            name=each.name, kind=each.kind, labels=each.labels
        )
        for each in after.chain.applications
    ]


def build_deployment(
    request: DeploymentRequest, repository: Repository, *, now: int
) -> pb.Deployment:
    """Returns the pending deployment of the head for an application."""
    application, head = request.application, request.head
    deployment = pb.Deployment(
        id=request.deployment_id,
        application_id=application.id,
        application_name=application.name,
        piped_id=application.piped_id,
        project_id=application.project_id,
        kind=application.kind,
        git_path=application.git_path,
        cloud_provider=application.cloud_provider,
        platform_provider=application.platform_provider,
        # As the file has them at this commit: the control plane learns of them a while later.
        labels=request.config.labels or application.labels,
        trigger=_trigger(repository, head, now, request.command),
        status=pb.DEPLOYMENT_PENDING,
        status_reason=request.reason,
        deployment_trace_commit_hash=head.trailers.get(TRACE, ""),
        created_at=now,
        updated_at=now,
    )
    if (chained := request.chained) is not None:
        deployment.deployment_chain_id = chained.deployment_chain_id
        deployment.deployment_chain_block_index = chained.block_index
    for plugin, targets in application.deploy_targets_by_plugin.items():
        deployment.deploy_targets_by_plugin[plugin].CopyFrom(targets)
    for plugin, names in request.config.deploy_targets.items():
        # As the file has them at this commit, like the labels.
        deployment.deploy_targets_by_plugin[plugin].CopyFrom(pb.DeployTargets(deploy_targets=names))
    if request.repairs:
        deployment.metadata_v2.shared.keyValues[REPAIRS] = str(request.repairs)
    if request.config.notification is not None:
        told = msgspec.json.encode(request.config.notification).decode()
        deployment.metadata_v2.shared.keyValues[NOTIFICATION] = told
    queue = encode_settings(request.config.queue.mode, request.config.queue.locks)
    if queue is not None:
        deployment.metadata_v2.shared.keyValues[QUEUE_KEY] = queue
    return deployment


def _trigger(
    repository: Repository, head: Commit, now: int, command: AnyCommand | None
) -> pb.DeploymentTrigger:
    trigger = pb.DeploymentTrigger(
        commit=pb.Commit(
            hash=head.hash,
            message=head.subject or "(no message)",
            author=head.author,
            branch=repository.branch,
            url=commit_url(repository.remote, head.hash),
            created_at=head.created_at,
        ),
        timestamp=now,
        sync_strategy=common_pb2.AUTO,
    )
    if isinstance(command, Command) and command.HasField("chain_sync_application"):
        # The commander of such a command is the chain, no person.
        trigger.sync_strategy = command.chain_sync_application.sync_strategy
    elif command is not None:
        trigger.commander = command.commander
        if isinstance(command, push.Command):
            strategy = command.strategy
            if is_roll_back(command):
                trigger.strategy_summary = QUICK_IF_OFFERED
        else:
            strategy = command.sync_application.sync_strategy
        trigger.sync_strategy = strategy
        if strategy in _ASKED_FOR:
            trigger.strategy_summary = _ASKED_FOR[strategy].format(command.commander or "somebody")
    return trigger
