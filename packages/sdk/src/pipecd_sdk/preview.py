# SPDX-License-Identifier: Apache-2.0
"""Previews of a change before it is deployed: the interface PlanPreview."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from pipecd_sdk.clock import Clock
from pipecd_sdk.context import DeployTarget, Sources
from pipecd_sdk.shared import SharedObjects
from pipecd_sdk.tools import Tools


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What would change on one deploy target.

    Example:
        Preview(summary="1 changed", details="-old\\n+new\\n")
    """

    summary: str
    no_change: bool = False
    details: str = ""
    language: str = "diff"
    """How `details` is coloured: `diff`, `hcl`."""


class PreviewContext(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a preview. Nothing of the repository may be run.

    Example:
        async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
            is_first = ctx.source.running is None
    """

    application_id: str
    application_name: str
    piped_id: str
    source: Sources
    targets: Sequence[DeployTarget]
    clock: Clock
    tools: Tools
    shared: SharedObjects


class PlanPreview(ABC):
    """The interface of a plugin that can preview a change.

    Example:
        class Site(DeploymentPlugin, PlanPreview):
            async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
                return Preview(summary="nothing would change", no_change=True)
    """

    @abstractmethod
    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        """Returns what the target commit would change on one deploy target.

        Raises TargetError when that cannot be found out.
        """
