# SPDX-License-Identifier: Apache-2.0
"""Report the application files of the repositories to the control plane.

The second step of the flow, beside the trigger: registered applications whose file gives another
name, description or labels, and files of applications that are not registered yet, which a
`Registrar` may register. It runs when a head moves or an application changes; nothing is reported
twice.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, Protocol

from google.protobuf.message import Message

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PipecdError
from pipecd_piped.appconfig.info import build_unregistered_info, info_of
from pipecd_piped.appconfig.reader import ApplicationFiles
from pipecd_piped.appconfig.registration import Registrar, Unregistered
from pipecd_piped.appconfig.scan import ScannedFile, scan
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.git import Commit, Reachability, Repository
from pipecd_piped.source import place_of
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.common_pb2 import ApplicationInfo
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import validation

log = logger(__name__)

LANE: Final = "application files"
FIRST_SCAN_SECONDS: Final = 30.0
"""Seconds that the first list of unregistered files waits for a repository: one that hangs, or
cannot be read, must not keep the files of the others from being reported."""

LARGEST_REPORT: Final = 3 * 1024 * 1024
"""Bytes; control planes accept messages of at least four megabytes."""

_AWAY: Final = frozenset({Reachability.UNREACHABLE, Reachability.NO_BRANCH})
_PAUSES_SECONDS: Final = (1.0, 5.0, 30.0)
"""Seconds between retries of a scan that failed or is incomplete; after the last one it waits for
the next head."""


class Reports(Protocol):
    """Queues reports and delivers them in order, each retried until it is delivered."""

    def put(self, lane: str, method: str, request: Message, /) -> None:
        """Queue a report behind everything that this lane was given before."""


class Discovery:
    """Watches the application files of all repositories, and reports changes."""

    def __init__(
        self,
        *,
        piped_id: str,
        repositories: Mapping[str, Repository],
        state: ControlPlaneState,
        files: ApplicationFiles,
        reports: Reports,
        selector: Mapping[str, str] | None = None,
        registrar: Registrar | None = None,
        first_scan_seconds: float = FIRST_SCAN_SECONDS,
    ) -> None:
        self._piped_id = piped_id
        self._repositories = repositories
        self._state = state
        self._files = files
        self._reports = reports
        self._selector = dict(selector or {})
        self._registrar = registrar
        self._first_scan_seconds = first_scan_seconds
        self._not_waited_for: set[str] = set()
        self._found: dict[str, dict[str, ScannedFile]] = {}
        self._identities: dict[str, bytes] = {}
        self._reported: dict[str, tuple[bytes, bytes]] = {}
        self._suggested: list[ApplicationInfo] | None = None
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Watch and report until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for repository in self._repositories.values():
                tasks.create_task(self._follow(repository), name=f"files of {repository.id}")
                tasks.create_task(self._settle(repository), name=f"start of {repository.id}")
            tasks.create_task(self._follow_mirror(), name="registered applications")
            tasks.create_task(self._report(), name="application files")
            if self._registrar is not None:
                tasks.create_task(self._registrar.run(), name="registration")

    async def _follow(self, repository: Repository) -> None:
        async with aclosing(repository.watch()) as heads:
            async for head in heads:
                await self._look(repository, head)

    async def _settle(self, repository: Repository) -> None:
        """Let the first report go without this repository once it is away or the limit is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._first_scan_seconds):
                async with aclosing(repository.states()) as states:
                    async for state in states:
                        if state.reach in _AWAY:
                            break
        self._not_waited_for.add(repository.id)
        self._wake.set()

    async def _look(self, repository: Repository, head: Commit) -> None:
        before = self._found.get(repository.id, {})
        for pause in (*_PAUSES_SECONDS, 0.0):
            try:
                made = await scan(repository, head.hash, self._files, before)
            except (PipecdError, OSError) as error:
                log.warning("application.files_unread", repository=repository.id, reason=str(error))
            else:
                before = self._found[repository.id] = made.files
                self._wake.set()
                if made.is_complete:
                    return
            await asyncio.sleep(pause)

    async def _follow_mirror(self) -> None:
        """Wake the reports when a name, description, label or path changes; ignore other fields."""
        async for change in self._state.changes():
            changed = bool(change.removed_applications)
            for application_id in change.removed_applications:
                self._identities.pop(application_id, None)
            for application in change.applications:
                identity = _identity(application)
                changed |= self._identities.get(application.id) != identity
                self._identities[application.id] = identity
            if changed:
                self._wake.set()

    async def _report(self) -> None:
        await self._state.wait_filled()
        while True:
            await self._wake.wait()
            self._wake.clear()
            registered = self._list_registered()
            self._report_updates(registered)
            unregistered = self._list_unregistered(registered)
            self._report_unregistered([each.info for each in unregistered])
            if self._registrar is not None:
                self._registrar.offer(unregistered, registered=len(registered))

    def _list_registered(self) -> dict[tuple[str, str], Application]:
        registered = {}
        for application in self._state.applications.values():
            try:
                place = place_of(application.git_path)
            except PipecdError:
                continue  # the trigger reports the bad path
            registered[application.git_path.repo.id, place.file] = application
        return registered

    def _report_updates(self, registered: Mapping[tuple[str, str], Application]) -> None:
        updates = []
        for (repository_id, path), application in registered.items():
            found = self._found.get(repository_id, {}).get(path)
            if found is None or not isinstance(found.outcome, ApplicationConfig):
                continue
            info = info_of(application, found.outcome)
            # Once is enough: a control plane that keeps its own version must not get it for ever.
            said = (info.SerializeToString(deterministic=True), _identity(application))
            if (
                _differs(application, info)
                and self._reported.get(application.id) != said
                and _can_be_taken(info)
            ):
                updates.append(info)
            self._reported[application.id] = said
        for some in _portions(updates):
            request = pb.UpdateApplicationConfigurationsRequest(applications=some)
            self._reports.put(LANE, "UpdateApplicationConfigurations", request)
            log.info("application.updated", applications=[info.name for info in some])

    def _list_unregistered(
        self, registered: Mapping[tuple[str, str], Application]
    ) -> list[Unregistered]:
        unregistered = []
        for repository_id, files in sorted(self._found.items()):
            for path, found in sorted(files.items()):
                config = found.outcome
                if (repository_id, path) in registered or isinstance(config, PipecdError):
                    continue
                if config.name and self._selector.items() <= config.labels.items():
                    info = build_unregistered_info(
                        self._piped_id, repository_id, found.place, config
                    )
                    if _can_be_taken(info):
                        unregistered.append(Unregistered(info=info, file=path, config=config))
        return unregistered

    def _report_unregistered(self, suggested: list[ApplicationInfo]) -> None:
        if self._suggested is None and not self._all_seen():
            return  # a list that lacks half of them would be shown until the rest is seen
        whole, suggested = suggested, next(_portions(suggested), [])  # it is reported as one list
        if len(suggested) < len(whole):
            log.warning("application.too_many_suggested", left_out=len(whole) - len(suggested))
        if suggested != self._suggested:
            self._suggested = suggested
            request = pb.ReportUnregisteredApplicationConfigurationsRequest(applications=suggested)
            self._reports.put(LANE, "ReportUnregisteredApplicationConfigurations", request)

    def _all_seen(self) -> bool:
        return all(
            repository.id in self._found
            or repository.id in self._not_waited_for
            or repository.state.reach in _AWAY
            for repository in self._repositories.values()
        )


def _can_be_taken(info: ApplicationInfo) -> bool:
    """Returns whether it passes validation: one that does not makes the whole report refused."""
    violation = validation.check(info)
    if violation is not None:
        log.warning(
            "application.not_delivered",
            repository=info.repo_id,
            path=info.path,
            file=info.config_filename,
            reason=str(violation),
        )
    return violation is None


def _portions(infos: Sequence[ApplicationInfo]) -> Iterator[list[ApplicationInfo]]:
    """Yields portions that fit into one report: its size has a limit."""
    some: list[ApplicationInfo] = []
    size = 0
    for info in infos:
        size += info.ByteSize() + 8
        if some and size > LARGEST_REPORT:
            yield some
            some, size = [], info.ByteSize() + 8
        some.append(info)
    if some:
        yield some


def _identity(application: Application) -> bytes:
    kept = Application(
        name=application.name,
        description=application.description,
        labels=application.labels,
        git_path=application.git_path,
    )
    return kept.SerializeToString(deterministic=True)


def _differs(application: Application, info: ApplicationInfo) -> bool:
    return (application.name, application.description, dict(application.labels)) != (
        info.name,
        info.description,
        dict(info.labels),
    )
