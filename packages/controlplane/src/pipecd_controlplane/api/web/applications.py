# SPDX-License-Identifier: Apache-2.0
"""Applications, for people. A right limited to labels covers only applications that have them."""

from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, pipeds
from pipecd_wire.rpc import rpc
from pipecd_wire.webservice import service_pb2 as pb


class WebApplicationsApi:
    """Register applications, change them, deploy them."""

    def __init__(self, stores: Stores, now: Now) -> None:
        self._stores = stores
        self._now = now

    @rpc("AddApplication")
    async def add_application(
        self, caller: Person, request: pb.AddApplicationRequest
    ) -> pb.AddApplicationResponse:
        new = applications.NewApplication(
            name=request.name,
            piped_id=request.piped_id,
            git_path=request.git_path,
            kind=request.kind,
            platform_provider=request.platform_provider,
            description=request.description,
            labels=request.labels,
            deploy_targets=request.deploy_targets_by_plugin,
        )
        application_id = await applications.add(self._stores, caller, new, self._now)
        return pb.AddApplicationResponse(application_id=application_id)

    @rpc("UpdateApplication")
    async def update_application(
        self, caller: Person, request: pb.UpdateApplicationRequest
    ) -> pb.UpdateApplicationResponse:
        await applications.move(
            self._stores,
            caller,
            request.application_id,
            piped_id=request.piped_id,
            platform_provider=request.platform_provider,
            config_filename=request.config_filename,
            deploy_targets=request.deploy_targets_by_plugin,
        )
        return pb.UpdateApplicationResponse()

    @rpc("EnableApplication")
    async def enable_application(
        self, caller: Person, request: pb.EnableApplicationRequest
    ) -> pb.EnableApplicationResponse:
        await applications.set_disabled(
            self._stores, caller, request.application_id, disabled=False
        )
        return pb.EnableApplicationResponse()

    @rpc("DisableApplication")
    async def disable_application(
        self, caller: Person, request: pb.DisableApplicationRequest
    ) -> pb.DisableApplicationResponse:
        await applications.set_disabled(self._stores, caller, request.application_id, disabled=True)
        return pb.DisableApplicationResponse()

    @rpc("DeleteApplication")
    async def delete_application(
        self, caller: Person, request: pb.DeleteApplicationRequest
    ) -> pb.DeleteApplicationResponse:
        await applications.delete(self._stores, caller, request.application_id, self._now)
        return pb.DeleteApplicationResponse()

    @rpc("SyncApplication")
    async def sync_application(
        self, caller: Person, request: pb.SyncApplicationRequest
    ) -> pb.SyncApplicationResponse:
        issued = await applications.sync(
            self._stores,
            caller,
            request.application_id,
            by=caller.name,
            strategy=request.sync_strategy,
        )
        return pb.SyncApplicationResponse(command_id=issued.id)

    @rpc("GetApplication")
    async def get_application(
        self, caller: Person, request: pb.GetApplicationRequest
    ) -> pb.GetApplicationResponse:
        application = await applications.get(self._stores, caller, request.application_id)
        return pb.GetApplicationResponse(application=application)

    @rpc("GenerateApplicationSealedSecret")
    async def generate_sealed_secret(
        self, caller: Person, request: pb.GenerateApplicationSealedSecretRequest
    ) -> pb.GenerateApplicationSealedSecretResponse:
        ciphertext = await pipeds.encrypt(
            self._stores,
            caller.project_id,
            request.piped_id,
            request.data,
            base64=request.base64_encoding,
        )
        return pb.GenerateApplicationSealedSecretResponse(data=ciphertext)
