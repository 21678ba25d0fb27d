# SPDX-License-Identifier: Apache-2.0
"""Which of the applications that are due want a deployment of the head.

Git and the control plane are asked here, once for all applications; the decisions themselves are
pure functions of the model. A decision compares the head with the commit that the application was
deployed at last, so that a "no" loses nothing and a restarted piped decides the same.
"""

from collections.abc import Callable, Mapping, Sequence

from pipecd_model import trigger
from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import Command
from piped.git import Commit, DamagedMirrorError, GitError, Reach, Repository
from piped.source import place_of
from piped.trigger.changed import ChangedFiles
from piped.trigger.deployment import Wanted, id_of_command, id_of_commit
from piped.trigger.memory import Memory
from piped.trigger.protocols import Configs
from piped.trigger.standings import Standings

log = logger(__name__)


class Decider:
    """Decides about the applications of one repository."""

    def __init__(
        self,
        repository: Repository,
        *,
        configs: Configs,
        memory: Memory,
        standings: Standings,
        refuse: Callable[[Command, str], None],
    ) -> None:
        self._repository = repository
        self._configs = configs
        self._memory = memory
        self._standings = standings
        self._refuse = refuse

    async def decide(
        self,
        head: Commit,
        due: Sequence[Application],
        commands: Mapping[str, Command],
        *,
        note: str = "",
    ) -> list[Wanted]:
        """The deployments that are wanted; `note` is added to the reason of commanded ones.

        What cannot be told now stays undecided in the memory.
        """
        outcomes = await self._configs.load_all(
            self._repository, head.hash, [application.git_path for application in due]
        )
        usable: list[tuple[Application, ApplicationConfig]] = []
        for application, outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, DamagedMirrorError):
                # Not its author's fault: undecided, and so looked at again.
                self._standings.unreadable(application, outcome.with_hint())
            elif isinstance(outcome, PipecdError):
                self._cannot(application, head, outcome, commands.get(application.id))
            else:
                usable.append((application, outcome))
        await self._memory.recall([application for application, _ in usable])
        known = [each for each in usable if self._memory.recalls(each[0].id)]
        changed, trouble = await self._changed(head, [application.id for application, _ in known])
        wanted = []
        for application, config in known:
            base = self._memory.base(application.id)
            if base in trouble and application.id not in commands:
                # Git could not say; undecided, and so looked at again.
                self._standings.unreadable(application, trouble[base])
                continue
            chosen = self._on_command(
                application, config, head, commands.get(application.id), note
            ) or self._on_commit(application, config, head, changed)
            if chosen is not None:
                wanted.append(chosen)
            self._standings.well(
                application,
                synced=chosen is None and self._runs(application),
                reachable=self._repository.state.reach is Reach.REACHABLE,
            )
        return wanted

    def _cannot(
        self, application: Application, head: Commit, error: PipecdError, command: Command | None
    ) -> None:
        reason = error.with_hint()
        log.info("application.broken", application=application.name, reason=reason)
        self._standings.broken(application, reason)
        self._memory.decide(application, head)
        if command is not None:
            self._refuse(command, reason)

    async def _changed(
        self, head: Commit, application_ids: Sequence[str]
    ) -> tuple[dict[str, ChangedFiles], dict[str | None, str]]:
        """The changed files since each commit that some application is compared with.

        And, for the commits that git could not compare with the head, why.
        """
        found: dict[str, ChangedFiles] = {}
        trouble: dict[str | None, str] = {}
        for base in {self._memory.base(application_id) for application_id in application_ids}:
            if base is None:
                continue
            try:
                paths = await self._repository.changed_paths(base, head.hash)
            except GitError as error:
                log.warning("trigger.not_compared", base=base, head=head.hash, reason=str(error))
                trouble[base] = (
                    f"{base[:7]} and {head.short} cannot be compared: {error.with_hint()}"
                )
            else:
                found[base] = ChangedFiles(paths)
        return found, trouble

    def _on_command(
        self,
        application: Application,
        config: ApplicationConfig,
        head: Commit,
        command: Command | None,
        note: str,
    ) -> Wanted | None:
        if command is None:
            return None
        decision = trigger.on_command(config)
        if not decision.deploy:
            self._refuse(command, decision.reason)
            return None
        return Wanted(
            deployment_id=id_of_command(command.id),
            application=application,
            config=config,
            head=head,
            reason=f"{command.commander or 'somebody'} asked for it{note}",
            command=command,
        )

    def _on_commit(
        self,
        application: Application,
        config: ApplicationConfig,
        head: Commit,
        changed: Mapping[str, ChangedFiles],
    ) -> Wanted | None:
        last, base = self._memory.last(application.id), self._memory.base(application.id)
        if base is not None and base not in changed:
            return None
        folder = place_of(application.git_path).folder
        decision = trigger.on_commit(
            config,
            app_dir=folder,
            head=head.hash,
            last=None if last is None else last.commit,
            changed=() if base is None else changed[base].that_may_concern(config, folder),
        )
        if not decision.deploy:
            self._memory.decide(application, head)
            if not config.trigger.on_commit.disabled:
                self._memory.compared(application.id, head)
            return None
        return Wanted(
            deployment_id=id_of_commit(
                application.id, "" if last is None else last.deployment_id, head.hash
            ),
            application=application,
            config=config,
            head=head,
            reason=decision.reason,
        )

    def _runs(self, application: Application) -> bool:
        """Did the last deployment succeed?"""
        last = self._memory.last(application.id)
        success = application.most_recently_successful_deployment.deployment_id
        return last is not None and last.deployment_id == success
