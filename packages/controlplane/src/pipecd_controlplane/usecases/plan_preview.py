# SPDX-License-Identifier: Apache-2.0
"""Plan preview: what a change would do, computed by every piped that has the repository.

The request is a command to each piped; the result is the command's output, as plain JSON of Go's
structs.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from google.protobuf import json_format

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import commands, pipeds, request_names
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_model.command import is_handled
from pipecd_model.errors import ConfigError, DeniedError, NotFoundError, StateError
from pipecd_model.ids import new_id
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import command_pb2, piped_pb2
from pipecd_wire.model import planpreview_pb2 as pb

HANDLE_SECONDS: Final = 300
"""How long a piped may take when the caller does not say."""

KEPT_SECONDS: Final = 24 * 3600
"""How long a result can be read."""

COMMANDER: Final = "pipectl"
MOST_COMMANDS: Final = 100
OFFLINE: Final = "Maybe Piped is offline currently."
LONGEST_ERROR: Final = 500
"""Characters of an error that quotes what a piped said."""


async def ask(
    stores: Stores,
    requester: Requester,
    request: apiservice.RequestPlanPreviewRequest,
) -> list[str]:
    """Asks each piped that has the repository with that base branch; returns the command ids.

    Raises ConfigError for branch names and commits that must not be passed to git.
    """
    request_names.branch("head_branch", request.head_branch)
    request_names.branch("base_branch", request.base_branch)
    request_names.commit("head_commit", request.head_commit)
    asked = []
    for piped in await stores.pipeds.list_by_project(requester.project_id):
        repository_id = _repository_id(piped, request)
        if piped.disabled or repository_id is None:
            continue
        issued = await commands.issue(
            stores,
            requester,
            f"RequestPlanPreview/{piped.id}",
            _maker(piped, repository_id, request),
        )
        asked.append(issued.id)
    return asked


def _maker(
    piped: piped_pb2.Piped, repository_id: str, request: apiservice.RequestPlanPreviewRequest
) -> Callable[[datetime], command_pb2.Command]:
    def make(at: datetime) -> command_pb2.Command:
        return command_pb2.Command(
            id=new_id(),
            piped_id=piped.id,
            project_id=piped.project_id,
            commander=COMMANDER,
            type=command_pb2.Command.BUILD_PLAN_PREVIEW,
            build_plan_preview=command_pb2.Command.BuildPlanPreview(
                repository_id=repository_id,
                head_branch=request.head_branch,
                head_commit=request.head_commit,
                base_branch=request.base_branch,
                timeout=request.timeout,
            ),
            created_at=int(at.timestamp()),
            updated_at=int(at.timestamp()),
        )

    return make


def _repository_id(
    piped: piped_pb2.Piped, request: apiservice.RequestPlanPreviewRequest
) -> str | None:
    for repository in piped.repositories:
        if (repository.remote, repository.branch) == (request.repo_remote_url, request.base_branch):
            return repository.id
    return None


class PlanPreviewResults:
    """Reads the results of plan previews."""

    def __init__(
        self, stores: Stores, presence: Presence, now: Now, web_base_url: Callable[[], str]
    ) -> None:
        self._stores = stores
        self._presence = presence
        self._now = now
        self._web_base_url = web_base_url

    async def results(
        self, project_id: str, command_ids: Iterable[str], *, handle_seconds: int
    ) -> list[pb.PlanPreviewCommandResult]:
        """Returns the results of the commands.

        Raises NotFoundError while a piped is still working: the caller retries.
        """
        ids = list(command_ids)
        if len(ids) > MOST_COMMANDS:
            raise ConfigError(f"invalid request: {len(ids)} commands, at most {MOST_COMMANDS}")
        asked = [await self._get_command(project_id, command_id) for command_id in ids]
        online = await pipeds.find_online(self._stores, self._presence, project_id, self._now)
        names = {
            piped.id: piped.name for piped in await self._stores.pipeds.list_by_project(project_id)
        }
        found = []
        for command in asked:
            if is_handled(command):
                result = await self._read_result(command)
            else:
                result = self._report_pending(
                    command,
                    online=command.piped_id in online,
                    handle_seconds=handle_seconds or HANDLE_SECONDS,
                )
            result.command_id = command.id
            result.piped_id = command.piped_id
            result.piped_name = names.get(command.piped_id, "")
            result.piped_url = f"{self._web_base_url()}/settings/piped"
            for application in result.results:
                application.application_url = (
                    f"{self._web_base_url()}/applications/{application.application_id}"
                )
            found.append(result)
        return found

    async def _get_command(self, project_id: str, command_id: str) -> command_pb2.Command:
        command = await self._stores.commands.find(project_id, command_id)
        if command is None:
            raise DeniedError(f"the command {command_id!r} is none of this project's")
        if command.type != command_pb2.Command.BUILD_PLAN_PREVIEW:
            raise StateError(f"the command {command_id!r} asks for no plan preview")
        if is_handled(command) and self._now() - command.handled_at > KEPT_SECONDS:
            raise StateError(
                f"the plan preview of the command {command_id!r} is not kept any more",
                hint="ask for a new one",
            )
        return command

    def _report_pending(
        self, command: command_pb2.Command, *, online: bool, handle_seconds: int
    ) -> pb.PlanPreviewCommandResult:
        if not online:
            return pb.PlanPreviewCommandResult(error=OFFLINE)
        if self._now() - command.created_at <= handle_seconds:
            raise NotFoundError(
                f"no result of the command {command.id!r} yet", hint="ask again in a while"
            )
        return pb.PlanPreviewCommandResult(
            error=f"Timed out, the piped did not answer within {handle_seconds} seconds"
        )

    async def _read_result(self, command: command_pb2.Command) -> pb.PlanPreviewCommandResult:
        output = await self._stores.commands.output(command.project_id, command.id)
        if output is None:
            if command.status == command_pb2.COMMAND_TIMEOUT:
                return pb.PlanPreviewCommandResult(error="Timed out, no piped took the command")
            return pb.PlanPreviewCommandResult(error="the piped gave no output; its log says why")
        result = pb.PlanPreviewCommandResult()
        try:
            json_format.Parse(output, result, ignore_unknown_fields=True)
        except json_format.ParseError as error:
            # What one piped says wrongly must not hide what the others say.
            return pb.PlanPreviewCommandResult(
                error=f"what the piped answered cannot be read: {str(error)[:LONGEST_ERROR]}"
            )
        return result
