# SPDX-License-Identifier: Apache-2.0
"""One stage on one deploy target: what the work of every stage is given."""

from dataclasses import dataclass

from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_plugin_lambda.provider.functions import FunctionApi
from pipecd_plugin_lambda.stages.ledger import FunctionLedger
from pipecd_sdk import DeployTarget, StageContext, StageLog
from pipecd_sdk.kit.hosts import Hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRun:
    """One stage on one deploy target."""

    ctx: StageContext
    target: DeployTarget
    log: StageLog
    api: FunctionApi
    hosts: Hosts
    ledger: FunctionLedger
    manifest: FunctionManifest
    """Of the commit that is deployed."""
    running: FunctionManifest | None
    """Of the commit that ran before; None on a first deployment, and where it is `unreadable`."""
    unreadable: str = ""
    """Why the manifest of the commit that ran before cannot be read."""

    @property
    def alias(self) -> str:
        return self.manifest.alias

    @property
    def has_other_alias(self) -> bool:
        """Returns whether the commit that ran before has another alias of the same function."""
        running = self.running
        if running is None or running.name != self.manifest.name:
            return False
        return running.alias != self.alias

    @property
    def marker(self) -> str:
        """Returns the description of the version that this deployment publishes.

        It is found again by it when the stage is continued.
        """
        deployment = self.ctx.deployment
        return f"PipeCD: commit {deployment.commit.hash[:7]}, deployment {deployment.id}"
