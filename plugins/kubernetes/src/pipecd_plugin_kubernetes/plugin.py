# SPDX-License-Identifier: Apache-2.0
"""The plugin `kubernetes`: applications on one cluster."""

from pipecd_plugin_kubernetes.base import KubernetesBase
from pipecd_plugin_kubernetes.stage_config import (
    BaselineRolloutConfig,
    CanaryRolloutConfig,
    CleanConfig,
    PrimaryRolloutConfig,
    SyncConfig,
    TrafficConfig,
)
from pipecd_plugin_kubernetes.stages.primary import roll_out_primary
from pipecd_plugin_kubernetes.stages.routing import route_traffic
from pipecd_plugin_kubernetes.stages.sync import sync
from pipecd_plugin_kubernetes.stages.variant import (
    clean_baseline,
    clean_canary,
    roll_out_baseline,
    roll_out_canary,
)
from pipecd_sdk import StageContext, serve, stage


class Kubernetes(KubernetesBase):
    """Deploys manifests to a Kubernetes cluster."""

    @stage("K8S_SYNC", quick_sync=True, desc="Apply all manifests")
    async def sync(self, ctx: StageContext, config: SyncConfig) -> None:
        await self.run_sync(ctx, config, sync)

    @stage("K8S_PRIMARY_ROLLOUT", desc="Bring the primary to the commit")
    async def roll_out_primary(self, ctx: StageContext, config: PrimaryRolloutConfig) -> None:
        await self.run_stage(ctx, config, roll_out_primary)

    @stage("K8S_CANARY_ROLLOUT", desc="Add the canary: some of the new beside the primary")
    async def roll_out_canary(self, ctx: StageContext, config: CanaryRolloutConfig) -> None:
        await self.run_stage(ctx, config, roll_out_canary)

    @stage("K8S_CANARY_CLEAN", desc="Remove the canary")
    async def clean_canary(self, ctx: StageContext, config: CleanConfig) -> None:
        await self.run_stage(ctx, config, clean_canary)

    @stage("K8S_BASELINE_ROLLOUT", desc="Add the baseline: some of the old to compare with")
    async def roll_out_baseline(self, ctx: StageContext, config: BaselineRolloutConfig) -> None:
        await self.run_stage(ctx, config, roll_out_baseline)

    @stage("K8S_BASELINE_CLEAN", desc="Remove the baseline")
    async def clean_baseline(self, ctx: StageContext, config: CleanConfig) -> None:
        await self.run_stage(ctx, config, clean_baseline)

    @stage("K8S_TRAFFIC_ROUTING", desc="Split the traffic between the variants")
    async def route_traffic(self, ctx: StageContext, config: TrafficConfig) -> None:
        await self.run_stage(ctx, config, route_traffic)

    @stage("K8S_ROLLBACK", rollback=True, desc="Bring everything back")
    async def roll_back(self, ctx: StageContext) -> None:
        await self.undo(ctx)


def main() -> None:
    """Runs the executable `pipecd-plugin-kubernetes`."""
    serve(Kubernetes())


if __name__ == "__main__":
    main()
