# SPDX-License-Identifier: Apache-2.0
"""Lists of applications: registered ones, and those found in git that are not registered."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications
from pipecd_wire.model import application_pb2
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb

MOST_BYTES = 8 * 1024 * 1024
"""Of one response; a browser accepts 10 MiB, and upstream's page asks for no second one."""


class WebApplicationListsApi:
    """See the project's applications."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    @rpc("ListApplications")
    async def list_applications(
        self, caller: Person, request: pb.ListApplicationsRequest
    ) -> pb.ListApplicationsResponse:
        options = request.options
        wanted = ApplicationFilter(
            name=options.name,
            kinds=tuple(options.kinds),
            sync_statuses=tuple(options.sync_statuses),
            piped_id=options.piped_id,
            disabled=not options.enabled.value if options.HasField("enabled") else None,
            labels=dict(options.labels),
        )
        found: list[application_pb2.Application] = []
        size, cursor = 0, ""
        while True:
            page = await self._stores.applications.page(
                caller.project_id, wanted, limit=0, cursor=cursor, max_bytes=MOST_BYTES - size
            )
            found += [each for each in page.items if caller.covers(each.labels)]
            size = sum(each.ByteSize() for each in found)
            cursor = page.cursor
            if not cursor or size >= MOST_BYTES:
                return pb.ListApplicationsResponse(applications=found)

    @rpc("ListUnregisteredApplications")
    async def list_unregistered_applications(
        self, caller: Person, request: pb.ListUnregisteredApplicationsRequest
    ) -> pb.ListUnregisteredApplicationsResponse:
        found = await applications.list_unregistered(self._stores, caller.project_id)
        return pb.ListUnregisteredApplicationsResponse(applications=found)
