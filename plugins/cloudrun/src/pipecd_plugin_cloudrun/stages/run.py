# SPDX-License-Identifier: Apache-2.0
"""One stage on one deploy target: what it works with."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pipecd_google.errors import ChangedResourceError
from pipecd_plugin_cloudrun.config import CloudRunOptions
from pipecd_plugin_cloudrun.manifest import RunManifest, load_manifest
from pipecd_plugin_cloudrun.naming import REVISION_NAME, make_labels
from pipecd_plugin_cloudrun.provider.cloud_run import CloudRun
from pipecd_sdk import DeployTarget, Source, StageContext, StageFailedError, StageLog

MOST_TRIES: Final = 6
CONFLICT_PAUSE: Final = timedelta(seconds=1)

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetWork:
    """A stage that runs on a deploy target."""

    ctx: StageContext
    target: DeployTarget
    cloud: CloudRun
    log: StageLog

    @property
    def options(self) -> CloudRunOptions:
        options: CloudRunOptions = self.ctx.source.target.options
        return options

    async def load(self, source: Source) -> RunManifest:
        """Returns the manifest of a commit for this target. Raises InvalidFileError."""
        return await asyncio.to_thread(load_manifest, source, self.target.config)

    def build(self, manifest: RunManifest, commit: str, *, revision: str = "") -> Body:
        """Returns the body of a service or job with our labels, and the name of its revision."""
        labels = make_labels(
            piped_id=self.ctx.deployment.piped_id,
            application_id=self.ctx.deployment.application_id,
            commit=commit,
        )
        template = {**manifest.body["template"]}
        template["labels"] = {**template.get("labels", {}), **labels}
        if revision:
            template["revision"] = revision
            template["labels"][REVISION_NAME] = revision
        return {
            **manifest.body,
            "labels": {**manifest.body.get("labels", {}), **labels},
            "template": template,
        }

    def tell_taking_over(self, live: Body | None) -> None:
        """Says in the log whose service this was, when it was somebody else's."""
        labels = (live or {}).get("labels") or {}
        manager, owner = labels.get("pipecd-dev-managed-by"), labels.get("pipecd-dev-application")
        if live is not None and manager is None:
            self.log.info("It was made by other means, and is taken over")
        elif owner and owner != self.ctx.deployment.application_id.lower():
            self.log.info("It was deployed for the application %s, and is taken over", owner)

    async def pause_for_conflict(self, error: ChangedResourceError, attempt: int) -> None:
        """Waits before what somebody changed meanwhile is read again. Raises the last one."""
        if attempt + 1 >= MOST_TRIES:
            raise StageFailedError(
                f"it was changed by somebody else {MOST_TRIES} times in a row: {error.message}",
                hint="who else writes it? the audit log of the project tells",
            ) from error
        self.log.info("Somebody else changed it meanwhile; it is read again")
        await self.ctx.clock.sleep(CONFLICT_PAUSE)
