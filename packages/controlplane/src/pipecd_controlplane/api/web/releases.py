# SPDX-License-Identifier: Apache-2.0
"""Released versions of piped, and the breaking changes in them."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.releases import Releases, breaking_notes
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebReleasesApi:
    """Released versions and breaking changes, for the upgrade of pipeds."""

    def __init__(self, stores: Stores, releases: Releases) -> None:
        self._stores = stores
        self._releases = releases

    @rpc("ListReleasedVersions")
    async def list_released_versions(
        self, caller: Person, request: pb.ListReleasedVersionsRequest
    ) -> pb.ListReleasedVersionsResponse:
        releases = await self._releases.list_all()
        return pb.ListReleasedVersionsResponse(versions=[each.version for each in releases])

    @rpc("ListDeprecatedNotes")
    async def list_deprecated_notes(
        self, caller: Person, request: pb.ListDeprecatedNotesRequest
    ) -> pb.ListDeprecatedNotesResponse:
        versions = [
            piped.version
            for piped in await self._stores.pipeds.list_by_project(caller.project_id)
            if piped.version and not piped.disabled
        ]
        if not versions:
            return pb.ListDeprecatedNotesResponse()
        notes = breaking_notes(await self._releases.list_all(), versions)
        return pb.ListDeprecatedNotesResponse(notes=notes)
