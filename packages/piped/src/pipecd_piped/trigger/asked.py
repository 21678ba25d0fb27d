# SPDX-License-Identifier: Apache-2.0
"""Commits that a person has named: a roll-back, or the release of a held commit.

Each becomes one deployment, whose id is derived from that of its command. What cannot be deployed
is refused with a sentence, and the control plane then takes the pin of a roll-back away again.
"""

from collections.abc import Mapping, Sequence

from pipecd_model.errors import PipecdError
from pipecd_model.gitnames import BadGitNameError
from pipecd_model.ids import id_of_command
from pipecd_piped.git import Commit, DamagedMirrorError, NoCommitError, Repository
from pipecd_piped.trigger.deployment import DeploymentRequest
from pipecd_piped.trigger.services import TriggerServices
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.pipecd.control.control_pb2 import DeploymentRecord
from pipecd_wire.pipecd.push import push_pb2 as push

log = logger(__name__)


class NotInBranchError(PipecdError):
    """A commit that was never deployed is not in the application's branch."""


def is_about_commit(command: push.Command) -> bool:
    """Returns whether a command names a commit to deploy."""
    if command.type == push.Command.RELEASE_HOLD:
        return True
    return command.type == push.Command.ROLL_BACK and not command.deployment_id


async def find_asked_commit(
    repository: Repository, commit_hash: str, *, deployed_before: bool
) -> Commit:
    """Returns the commit that a person has named, by its hash or the start of it.

    Raises NoCommitError, and NotInBranchError for one that was never deployed and is not in the
    branch: nobody has reviewed it.
    """
    found = await repository.resolve(commit_hash)
    if not deployed_before and not await repository.is_in_branch(found.hash):
        raise NotInBranchError(
            f"the commit {found.short} was never deployed successfully, and is not in the branch"
            f" {repository.branch!r}",
            hint="name one that was deployed, or merge it first",
        )
    return found


def describe_record(command: push.Command) -> DeploymentRecord:
    """Returns the record of a command's deployment, as the control plane has it."""
    is_roll_back = command.type == push.Command.ROLL_BACK
    return DeploymentRecord(
        deployment_id=id_of_command(command.id),
        application_id=command.application_id,
        type=DeploymentRecord.ROLL_BACK if is_roll_back else DeploymentRecord.TYPE_UNSPECIFIED,
        by=command.commander,
        reason=command.reason,
        target_deployment_id=command.target_deployment_id,
    )


class AskedCommits:
    """Turns commands that name a commit into requests for deployments."""

    def __init__(self, repository: Repository, services: TriggerServices) -> None:
        self._repository = repository
        self._services = services

    def list_open(self, applications: Mapping[str, Application]) -> list[push.Command]:
        """Returns the open commands on these applications, oldest first."""
        found = [
            command
            for command in self._services.state.own_commands.values()
            if is_about_commit(command) and command.application_id in applications
        ]
        return sorted(found, key=lambda each: (each.created_at.seconds, each.id))

    async def find_requests(
        self, commands: Sequence[push.Command], applications: Mapping[str, Application]
    ) -> tuple[list[DeploymentRequest], bool]:
        """Returns the deployments to create, and whether all commands could be decided about.

        Those that cannot be carried out are refused; one whose commit cannot be read now is
        retried.
        """
        wanted, settled = [], True
        for command in commands:
            try:
                found = await self._find(command, applications[command.application_id])
            except (NoCommitError, NotInBranchError, BadGitNameError) as error:
                self._services.refuse(command, error.with_hint())
            except PipecdError as error:
                log.warning("command.not_decided", command=command.id, reason=str(error))
                settled = False
            else:
                wanted += [found] if found is not None else []
        return wanted, settled

    async def _find(
        self, command: push.Command, application: Application
    ) -> DeploymentRequest | None:
        commit = await find_asked_commit(
            self._repository,
            command.commit_hash,
            deployed_before=bool(command.target_deployment_id),
        )
        (config,) = await self._services.configs.load_all(
            self._repository, commit.hash, [application.git_path]
        )
        if isinstance(config, DamagedMirrorError):
            raise config
        if isinstance(config, PipecdError):
            self._services.refuse(command, config.with_hint())
            return None
        by = command.commander or "somebody"
        said = f": {command.reason}" if command.reason else ""
        does = "rolls back to" if command.type == push.Command.ROLL_BACK else "releases"
        return DeploymentRequest(
            deployment_id=id_of_command(command.id),
            application=application,
            config=config,
            head=commit,
            reason=f"{by} {does} {commit.short}{said}",
            command=command,
        )
