# SPDX-License-Identifier: Apache-2.0
"""What people see who open one resource of the live state: the interface ResourceDetails.

It is asked for while somebody waits, shown to that person, and stored nowhere. What is secret on
the platform must be masked by the plugin, because piped knows only the secrets of applications.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

import msgspec

from pipecd_sdk.context import DeployTarget
from pipecd_sdk.livestate import LiveContext, Resource, TargetError


class ResourceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a resource.

    Example:
        ResourceEvent(at=then, kind="Warning", reason="BackOff", message="restarting", count=3)
    """

    message: str
    at: datetime | None = None
    """None when the platform does not say."""
    kind: str = ""
    reason: str = ""
    count: int = 0
    """How often it happened; 0 when the platform does not count."""


class ContainerLog(msgspec.Struct, frozen=True, kw_only=True):
    """The last lines that one container wrote.

    Example:
        ContainerLog(container="web", text="listening\\n")
    """

    container: str
    text: str
    previous: bool = False
    """Of the container that ran before this one."""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What a resource is, secrets masked. What the plugin does not know stays empty.

    Example:
        Details(manifest="kind: Pod\\n", difference="-replicas: 3\\n+replicas: 2\\n")
    """

    manifest: str = ""
    """The resource as the platform has it."""
    language: str = "yaml"
    """How the manifest is written: `yaml`, `json`, or empty for plain text."""
    events: Sequence[ResourceEvent] = ()
    """The oldest first."""
    difference: str | None = None
    """From what runs to what git says, as a diff; empty when there is none, None when unknown."""
    logs: Sequence[ContainerLog] = ()
    notes: Sequence[str] = ()
    """Sentences about what could not be found out, or was left out."""


class ResourceGoneError(TargetError):
    """The resource is not there any more, or does not belong to the application.

    Example:
        raise ResourceGoneError("the pod was deleted", hint="the live state shows what runs now")
    """

    status: ClassVar[str] = "NOT_FOUND"


class DetailsContext(LiveContext, frozen=True, kw_only=True):
    """The arguments of opening a resource.

    Example:
        async def open_resource(
            self, ctx: DetailsContext, target: DeployTarget, resource: Resource
        ) -> Details:
            last = lines[-ctx.log_lines :]
    """

    container: str = ""
    """The one whose lines are wanted; empty for those of all."""
    log_lines: int = 100
    """How many of the last lines of each container are wanted."""


class ResourceDetails(ABC):
    """The interface of a plugin that can show more of a resource than its live state has.

    Example:
        class Site(DeploymentPlugin, LiveState, ResourceDetails):
            async def open_resource(
                self, ctx: DetailsContext, target: DeployTarget, resource: Resource
            ) -> Details:
                return Details(manifest=f"name: {resource.name}\\n")
    """

    @abstractmethod
    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        """Returns the details of a resource that `live_state` has returned for this application.

        Check again that it belongs to the application: the live state may be old. Raises
        ResourceGoneError when it does not any more, TargetError when it cannot be read.
        """
