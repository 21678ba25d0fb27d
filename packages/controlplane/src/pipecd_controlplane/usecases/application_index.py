# SPDX-License-Identifier: Apache-2.0
"""The applications of a project by everything that they are looked for by, in memory.

It is read from the store once, and afterwards only what has changed: a search among ten thousand
must not read ten thousand rows.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.applications import is_plugin_based
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import View
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.change_history import ChangeHistories, ProjectHistory
from pipecd_controlplane.usecases.deployment_briefs import STATUSES, find_status
from pipecd_wire.model import application_pb2, common_pb2, deployment_pb2
from pipecd_wire.pipecd.api import overview_pb2 as pb

D: Final = schema.deployment
NEWEST: Final = (
    select(D.c.id, D.c.status, D.c.completed, D.c.updated_at, D.c.data)
    .where(
        D.c.project_id == bindparam("project_id"),
        D.c.application_id == bindparam("application_id"),
    )
    .order_by(D.c.created_at.desc(), D.c.id.desc())
    .limit(1)
)
MOST_CHANGES: Final = 1000
"""With more things changed, all is read anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedApplication:
    """What an application is found by."""

    id: str
    name: str
    folded: str
    """The name for comparisons."""
    kind: str
    piped_id: str
    disabled: bool
    sync_status: int
    labels: dict[str, str]
    status: pb.ApplicationStatus.ValueType
    deployment_id: str
    """The newest; empty when there is none."""
    changed_at: int
    values: tuple[tuple[str, str], ...] = ()
    """What it is counted for: each property with its value, see `list_values`."""

    @property
    def is_broken(self) -> bool:
        failed = self.status == pb.FAILED
        return not self.disabled and (failed or self.sync_status == application_pb2.INVALID_CONFIG)


class ProjectIndex:
    """The applications of one project that are not deleted."""

    def __init__(self, stores: Stores, project_id: str, history: ProjectHistory) -> None:
        self._stores = stores
        self._project_id = project_id
        self._history = history
        self._position: int | None = None
        self._found: dict[str, IndexedApplication] = {}
        self._refreshing = asyncio.Lock()

    async def read(self) -> list[IndexedApplication]:
        """Returns all of them, as of the last change that the history holds."""
        async with self._refreshing:
            await self._refresh()
            return list(self._found.values())

    async def _refresh(self) -> None:
        # The position first: what is written while the rows are read is read again next time.
        missed = self._history.read_since(self._position or 0)
        is_known = self._position is not None and missed.is_whole
        if is_known and not missed.changes:
            return

        async def read_all(view: View) -> dict[str, IndexedApplication]:
            listed = await self._stores.applications.list_all_in(view, self._project_id)
            found = [await _index(view, each) for each in listed if not each.deleted]
            return {each.id: each for each in found}

        if is_known and len(missed.changes) <= MOST_CHANGES:
            await self._read_changed(missed.changes)
        else:
            self._found = await self._stores.database.read(read_all)
        self._position = missed.position

    async def _read_changed(self, changes: list[Change]) -> None:
        ids = {each.id: None for each in changes if each.kind is ChangeKind.APPLICATION}
        for change in changes:
            if change.kind is ChangeKind.DEPLOYMENT:
                found = await self._stores.deployments.find(self._project_id, change.id)
                if found is not None:
                    ids[found.application_id] = None
        if not ids:
            return

        async def read(view: View) -> dict[str, IndexedApplication | None]:
            fresh: dict[str, IndexedApplication | None] = {}
            for application_id, each in known.items():
                is_there = each is not None and not each.deleted
                fresh[application_id] = await _index(view, each) if each and is_there else None
            return fresh

        known = {
            application_id: await self._stores.applications.find(self._project_id, application_id)
            for application_id in ids
        }
        for application_id, entry in (await self._stores.database.read(read)).items():
            if entry is None:
                self._found.pop(application_id, None)
            else:
                self._found[application_id] = entry


def _find_sync(application: application_pb2.Application) -> int:
    """Returns the sync status as people see it: while it is deployed, it is not out of sync."""
    told = application.sync_state.status
    is_deployed = application.deploying and told != application_pb2.INVALID_CONFIG
    return application_pb2.DEPLOYING if is_deployed else told


async def _index(view: View, application: application_pb2.Application) -> IndexedApplication:
    row = await view.one(NEWEST, project_id=application.project_id, application_id=application.id)
    status, deployment_id, changed_at = pb.NEVER_DEPLOYED, "", application.updated_at
    if row is not None:
        deployment_id, number, completed, updated_at, data = row
        changed_at = max(changed_at, updated_at)
        status = (
            STATUSES[number]
            if completed
            else find_status(deployment_pb2.Deployment.FromString(data))
        )
    entry = IndexedApplication(
        id=application.id,
        name=application.name,
        folded=application.name.casefold(),
        kind=find_kind(application),
        piped_id=application.piped_id,
        disabled=application.disabled,
        sync_status=_find_sync(application),
        labels=dict(application.labels),
        status=status,
        deployment_id=deployment_id,
        changed_at=changed_at,
    )
    return replace(entry, values=list_values(entry))


def list_values(entry: IndexedApplication) -> tuple[tuple[str, str], ...]:
    """Returns the properties of an application with their values, as facets have them."""
    sync = application_pb2.ApplicationSyncStatus
    return (
        ("status", pb.ApplicationStatus.Name(entry.status)),
        ("sync", sync.Name(sync.ValueType(entry.sync_status))),
        ("kind", entry.kind),
        ("piped", entry.piped_id),
        *((f"label {key}", value) for key, value in entry.labels.items()),
    )


def hide_status(entry: IndexedApplication) -> IndexedApplication:
    """Returns an application for whoever may not see its deployments."""
    hidden = replace(entry, status=pb.APPLICATION_STATUS_UNSPECIFIED, deployment_id="")
    return replace(hidden, values=list_values(hidden))


def find_kind(application: application_pb2.Application) -> str:
    """Returns what people call its kind: its label, its plugins, or upstream's kind."""
    if label := application.labels.get("kind", ""):
        return label.lower()
    if is_plugin_based(application):
        return "+".join(sorted(application.deploy_targets_by_plugin)) or "other"
    return common_pb2.ApplicationKind.Name(application.kind).lower()


class ApplicationIndexes:
    """The indexes of the projects that somebody has searched in."""

    def __init__(self, stores: Stores, histories: ChangeHistories) -> None:
        self._stores = stores
        self._histories = histories
        self._indexes: dict[str, ProjectIndex] = {}

    async def read(self, project_id: str) -> list[IndexedApplication]:
        """Returns the applications of a project that are not deleted, as of now."""
        index = self._indexes.get(project_id)
        if index is None:
            index = ProjectIndex(self._stores, project_id, self._histories.find(project_id))
            self._indexes[project_id] = index
        # Whoever was told of a change by another server may ask this one.
        await self._histories.catch_up()
        return await index.read()
