# SPDX-License-Identifier: Apache-2.0
"""Applications by any property with counts, and what of a project needs a look."""

import asyncio

from pipecd_controlplane.auth.caller import Person, User
from pipecd_controlplane.auth.rights import Action, CallerRights, Resource
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import application_search, overview
from pipecd_controlplane.usecases.application_index import (
    ApplicationIndexes,
    IndexedApplication,
    hide_status,
)
from pipecd_controlplane.usecases.deployment_briefs import make_brief
from pipecd_controlplane.usecases.roles import Grant
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_model import holds
from pipecd_wire.pipecd.api import overview_pb2 as pb
from pipecd_wire.rpc import rpc


class OverviewApi:
    """Search applications, and see what needs a look."""

    def __init__(
        self,
        stores: Stores,
        indexes: ApplicationIndexes,
        presence: Presence,
        rights: CallerRights,
        now: Now,
    ) -> None:
        self._stores = stores
        self._indexes = indexes
        self._presence = presence
        self._rights = rights
        self._now = now

    @rpc("SearchApplications")
    async def search_applications(
        self, caller: User, request: pb.SearchApplicationsRequest
    ) -> pb.SearchApplicationsResponse:
        grant = await self._rights.find_grant(caller, Resource.DEPLOYMENT, Action.LIST)
        entries = await self._read_entries(caller, grant)
        names = {}
        if await self._rights.find_grant(caller, Resource.PIPED, Action.LIST) is not None:
            pipeds = await self._stores.pipeds.list_by_project(caller.project_id)
            names = {each.id: each.name for each in pipeds}
        found = await asyncio.to_thread(application_search.search, entries, request, names)
        described = [await self._describe(caller, each, grant) for each in found.page]
        return pb.SearchApplicationsResponse(
            applications=[each for each in described if each is not None],
            total=found.total,
            facets=found.facets,
            cursor=found.cursor,
        )

    @rpc("GetOverview")
    async def get_overview(
        self, caller: User, request: pb.GetOverviewRequest
    ) -> pb.GetOverviewResponse:
        find = self._rights.find_grant
        rights = overview.OverviewRights(
            name=caller.name,
            see_deployments=await find(caller, Resource.DEPLOYMENT, Action.LIST),
            change_deployments=await find(caller, Resource.DEPLOYMENT, Action.UPDATE),
            see_pipeds=await find(caller, Resource.PIPED, Action.LIST),
        )
        entries = await self._read_entries(caller, rights.see_deployments)
        return await overview.make_overview(
            self._stores, self._presence, caller.project_id, entries, rights, request, self._now
        )

    async def _read_entries(
        self, caller: User, see_deployments: Grant | None
    ) -> list[IndexedApplication]:
        """Returns the applications that the caller may see; how they are only where it may."""
        entries = await self._indexes.read(caller.project_id)
        if isinstance(caller, Person) and caller.grant.is_limited:
            entries = [each for each in entries if caller.covers(each.labels)]
        if see_deployments is not None and not see_deployments.is_limited:
            return entries
        return [
            each
            if see_deployments is not None and see_deployments.covers(each.labels)
            else hide_status(each)
            for each in entries
        ]

    async def _describe(
        self, caller: User, entry: IndexedApplication, grant: Grant | None
    ) -> pb.FoundApplication | None:
        application = await self._stores.applications.find(caller.project_id, entry.id)
        if application is None:
            return None
        found = pb.FoundApplication(application=application, status=entry.status, kind=entry.kind)
        if grant is not None and entry.deployment_id:
            deployment = await self._stores.deployments.find(caller.project_id, entry.deployment_id)
            if deployment is not None and grant.covers(deployment.labels):
                found.newest_deployment.CopyFrom(make_brief(deployment))
        control = await self._stores.controls.find(caller.project_id, entry.id)
        if control is not None and not holds.is_empty(control.message):
            found.control.CopyFrom(control.message)
        return found
