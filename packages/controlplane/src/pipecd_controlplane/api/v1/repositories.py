# SPDX-License-Identifier: Apache-2.0
"""Hooks of git hosts, and hints that a branch has moved."""

from collections.abc import Callable

from pipecd_controlplane.auth.caller import User
from pipecd_controlplane.usecases import request_names
from pipecd_controlplane.usecases.githosts.pushes import PushedBranch
from pipecd_controlplane.usecases.hooks import HookSettings
from pipecd_controlplane.usecases.repository_hints import RepositoryHints, match_address_or_id
from pipecd_wire.pipecd.api import repositories_pb2 as pb
from pipecd_wire.rpc import rpc


class V1RepositoriesApi:
    """Hooks and hints, for people and scripts."""

    def __init__(
        self, hooks: HookSettings, hints: RepositoryHints, web_base_url: Callable[[], str]
    ) -> None:
        self._hooks = hooks
        self._hints = hints
        self._web_base_url = web_base_url

    @rpc("AddHook")
    async def add_hook(self, caller: User, request: pb.AddHookRequest) -> pb.AddHookResponse:
        made = await self._hooks.add(
            caller,
            name=request.name,
            host=request.host,
            repository_url=request.repository_url,
        )
        return pb.AddHookResponse(hook=made.hook, secret=made.secret, url=self._make_url(made.hook))

    @rpc("ListHooks")
    async def list_hooks(self, caller: User, request: pb.ListHooksRequest) -> pb.ListHooksResponse:
        return pb.ListHooksResponse(hooks=await self._hooks.list_all(caller.project_id))

    @rpc("RotateHook")
    async def rotate_hook(
        self, caller: User, request: pb.RotateHookRequest
    ) -> pb.RotateHookResponse:
        overlap = request.overlap.ToTimedelta() if request.HasField("overlap") else None
        made = await self._hooks.rotate(caller, request.hook_id, overlap)
        return pb.RotateHookResponse(
            hook=made.hook, secret=made.secret, url=self._make_url(made.hook)
        )

    @rpc("RevokeOlderHookSecret")
    async def revoke_older_hook_secret(
        self, caller: User, request: pb.RevokeOlderHookSecretRequest
    ) -> pb.RevokeOlderHookSecretResponse:
        await self._hooks.revoke_older(caller, request.hook_id)
        return pb.RevokeOlderHookSecretResponse()

    @rpc("DeleteHook")
    async def delete_hook(
        self, caller: User, request: pb.DeleteHookRequest
    ) -> pb.DeleteHookResponse:
        await self._hooks.delete(caller, request.hook_id)
        return pb.DeleteHookResponse()

    @rpc("HintRepository")
    async def hint_repository(
        self, caller: User, request: pb.HintRepositoryRequest
    ) -> pb.HintRepositoryResponse:
        if request.branch:
            request_names.branch("branch", request.branch)
        if request.commit_hash:
            request_names.commit("commit_hash", request.commit_hash)
        branch = PushedBranch(name=request.branch, commit_hash=request.commit_hash)
        hinted = await self._hints.send(
            caller.project_id, match_address_or_id(request.repository), (branch,)
        )
        return pb.HintRepositoryResponse(repositories=hinted.repositories)

    def _make_url(self, hook: pb.Hook) -> str:
        return f"{self._web_base_url().rstrip('/')}{hook.path}"
