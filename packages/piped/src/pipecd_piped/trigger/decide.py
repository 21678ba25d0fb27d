# SPDX-License-Identifier: Apache-2.0
"""Decides which of the applications that are due need a deployment of the head.

Git and the control plane are queried here, once for all applications; the decisions themselves are
pure functions of the model. A decision compares the head with the commit of the application's last
deployment, so that a "no" loses nothing and a restarted piped decides the same.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from pipecd_model import holds, trigger
from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PipecdError, StateError
from pipecd_model.ids import id_of_command, id_of_commit
from pipecd_model.queueing import QueueMode, describe_rejection
from pipecd_piped.git import Commit, DamagedMirrorError, GitError, Reachability, Repository
from pipecd_piped.source import place_of
from pipecd_piped.trigger.deployment import DeploymentRequest
from pipecd_piped.trigger.history import TriggerHistory
from pipecd_piped.trigger.services import TriggerServices
from pipecd_piped.trigger.sync_trouble import TroubleReporter
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import Command

log = logger(__name__)


class ChangedFiles:
    """The files that changed between two commits, from the repository's root, by folder.

    One commit may touch thousands of applications: each looks up only the files of its own folder.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = sorted(paths)

    def list_for(self, config: ApplicationConfig, folder: str) -> Sequence[str]:
        """Returns the changed files to match: of its folder, or all if it configures paths."""
        if not folder or config.trigger.on_commit.paths:
            return self._paths
        start = bisect_left(self._paths, f"{folder}/")
        end = bisect_left(self._paths, f"{folder}0", start)  # "0" comes right after "/"
        return self._paths[start:end]


class Decider:
    """Decides about the applications of one repository."""

    def __init__(
        self,
        repository: Repository,
        services: TriggerServices,
        history: TriggerHistory,
        trouble: TroubleReporter,
    ) -> None:
        self._repository = repository
        self._services = services
        self._history = history
        self._trouble = trouble

    async def decide(
        self,
        head: Commit,
        due: Sequence[Application],
        commands: Mapping[str, Command],
        *,
        note: str = "",
    ) -> list[DeploymentRequest]:
        """Returns the deployments to create; `note` is added to the reason of commanded ones.

        An application whose data cannot be read now stays undecided, and is retried.
        """
        outcomes = await self._services.configs.load_all(
            self._repository, head.hash, [application.git_path for application in due]
        )
        usable: list[tuple[Application, ApplicationConfig]] = []
        for application, outcome in zip(due, outcomes, strict=True):
            if isinstance(outcome, DamagedMirrorError):
                # Not its author's fault: it stays undecided, and is retried.
                self._trouble.report_unreadable(application, outcome.with_hint())
            elif isinstance(outcome, PipecdError):
                self._report_unusable(application, head, outcome, commands.get(application.id))
            else:
                usable.append((application, outcome))
        await self._history.recall([application for application, _ in usable])
        known = [each for each in usable if self._history.has_last(each[0].id)]
        changed, trouble = await self._find_changed_files(
            head, [application.id for application, _ in known]
        )
        wanted = []
        for application, config in known:
            base = self._history.base(application.id)
            if base in trouble and application.id not in commands:
                # Git failed to compare: it stays undecided, and is retried.
                self._trouble.report_unreadable(application, trouble[base])
                continue
            chosen = self._on_command(
                application, config, head, commands.get(application.id), note
            ) or self._on_commit(application, config, head, changed)
            if chosen is not None:
                wanted.append(chosen)
            self._services.calls.take_file(application, config)
            self._trouble.report_end(
                application,
                synced=chosen is None and self._runs(application),
                reachable=self._repository.state.reach is Reachability.REACHABLE,
            )
        return wanted

    def _report_unusable(
        self, application: Application, head: Commit, error: PipecdError, command: Command | None
    ) -> None:
        reason = error.with_hint()
        log.info("application.broken", application=application.name, reason=reason)
        self._trouble.report_broken_file(application, reason)
        self._history.mark_decided(application, head)
        if command is not None:
            self._services.refuse(command, reason)

    async def _find_changed_files(
        self, head: Commit, application_ids: Sequence[str]
    ) -> tuple[dict[str, ChangedFiles], dict[str | None, str]]:
        """Returns the changed files since each base commit of the applications.

        The second dict has the reason for each base that git could not compare with the head.
        """
        found: dict[str, ChangedFiles] = {}
        trouble: dict[str | None, str] = {}
        for base in {self._history.base(application_id) for application_id in application_ids}:
            if base is None:
                continue
            try:
                paths = await self._repository.list_changed_paths(base, head.hash)
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
    ) -> DeploymentRequest | None:
        if command is None:
            return None
        in_chain = command.HasField("chain_sync_application")
        decision = trigger.on_chain(config) if in_chain else trigger.on_command(config)
        if not decision.deploy:
            self._services.refuse(command, decision.reason)
            return None
        try:
            holds.check_sync(self._services.state.control(application.id), application.name)
        except StateError as error:
            self._services.refuse(command, error.with_hint())
            return None
        asked = decision.reason if in_chain else f"{command.commander or 'somebody'} asked for it"
        rejection = self._find_rejection(application, config, head)
        if rejection is not None:
            self._services.refuse(command, f"{rejection} (cancel that one, or ask again after it)")
            return None
        return DeploymentRequest(
            deployment_id=id_of_command(command.id),
            application=application,
            config=config,
            head=head,
            reason=f"{asked}{note}",
            command=command,
        )

    def _on_commit(
        self,
        application: Application,
        config: ApplicationConfig,
        head: Commit,
        changed: Mapping[str, ChangedFiles],
    ) -> DeploymentRequest | None:
        last, base = self._history.last(application.id), self._history.base(application.id)
        if base is not None and base not in changed:
            return None
        folder = place_of(application.git_path).folder
        decision = trigger.on_commit(
            config,
            app_dir=folder,
            head=head.hash,
            last=None if last is None else last.commit,
            changed=() if base is None else changed[base].list_for(config, folder),
        )
        obstacle = rejection = ""
        if decision.deploy:
            control = self._services.state.control(application.id)
            obstacle = holds.find_obstacle(control, head.hash)
            rejection = self._find_rejection(application, config, head) or ""
        self._services.calls.report_waiting(application, obstacle or rejection)
        if obstacle:
            # Decided again when hold or pin changes.
            self._history.mark_decided(application, head)
            return None
        if rejection:
            # Decided again when the open deployment is completed.
            self._history.mark_rejected(application, head)
            return None
        if not decision.deploy:
            self._history.mark_decided(application, head)
            if not config.trigger.on_commit.disabled:
                self._history.mark_compared(application.id, head)
            return None
        return DeploymentRequest(
            deployment_id=id_of_commit(
                application.id, "" if last is None else last.deployment_id, head.hash
            ),
            application=application,
            config=config,
            head=head,
            reason=decision.reason,
        )

    def _find_rejection(
        self, application: Application, config: ApplicationConfig, head: Commit
    ) -> str | None:
        mode = QueueMode(config.queue.mode)
        if mode is not QueueMode.REJECT:
            return None
        return describe_rejection(mode, head.hash, self._services.find_open(application.id))

    def _runs(self, application: Application) -> bool:
        """Returns whether the application's last deployment succeeded."""
        last = self._history.last(application.id)
        success = application.most_recently_successful_deployment.deployment_id
        return last is not None and last.deployment_id == success
