# SPDX-License-Identifier: Apache-2.0
"""What people write for this plugin: in application files, and under the `with` of stages.

The options of deploy targets are those of all plugins for AWS, `pipecd_aws.AwsTarget`.
"""

from datetime import timedelta
from typing import ClassVar, Literal

from pipecd_sdk import ApplicationConfig, Duration, Percentage, Report, Share, StageConfig
from pipecd_sdk.constraints import InRange, limit_share
from pipecd_sdk.repository import find_path_fault

MOST_SUBNETS = 16
MOST_SECURITY_GROUPS = 5


class TargetGroup(ApplicationConfig):
    """A target group of a load balancer, and the container that it leads to."""

    target_group_arn: str
    """Its ARN."""
    container_name: str = ""
    """The container that gets the traffic."""
    container_port: int = 0
    """The port of that container."""
    load_balancer_name: str = ""
    """Read for older files, without effect: the stage log says so."""


class TargetGroups(ApplicationConfig):
    """The target groups of the two variants."""

    primary: TargetGroup | None = None
    """That of the primary."""
    canary: TargetGroup | None = None
    """That of the canary; ECS_CANARY_ROLLOUT behind a load balancer needs it."""

    def check(self, report: Report) -> None:
        if report.is_broken("primary") or report.is_broken("canary"):
            return
        given = [each.target_group_arn for each in (self.primary, self.canary) if each is not None]
        if len(given) > len(set(given)):
            report.fault(
                "canary",
                message="is the target group of the primary, too",
                hint="the traffic is split between two groups: make another one for the canary",
            )


class AwsVpcConfiguration(ApplicationConfig):
    """The network of a standalone task."""

    subnets: tuple[str, ...] = ()
    """The subnets, 16 at most."""
    assign_public_ip: Literal["", "ENABLED", "DISABLED"] = ""
    """Whether the task gets a public address."""
    security_groups: tuple[str, ...] = ()
    """The security groups, 5 at most."""

    def check(self, report: Report) -> None:
        for key, given, most in (
            ("subnets", self.subnets, MOST_SUBNETS),
            ("securityGroups", self.security_groups, MOST_SECURITY_GROUPS),
        ):
            if not report.is_broken(key) and len(given) > most:
                report.fault(key, message=f"{len(given)} are given, AWS takes {most} at most")


class EcsInput(ApplicationConfig):
    """What is deployed, and how it is reached."""

    moved: ClassVar = {"autoRollback": "write spec.planner.autoRollback"}

    task_definition_file: str = "taskdef.json"
    """The task definition, with the names of AWS; a path from the application's folder."""
    service_definition_file: str = ""
    """The service definition, likewise; without it the task runs alone."""
    run_standalone_task: bool = True
    """Run a task that has no service; if false, it is only registered."""
    cluster_arn: str = ""
    """The cluster of a standalone task."""
    launch_type: Literal["EC2", "FARGATE"] = "FARGATE"
    """How a standalone task is run."""
    awsvpc_configuration: AwsVpcConfiguration = AwsVpcConfiguration()
    """The network of a standalone task."""
    access_type: Literal["ELB", "SERVICE_DISCOVERY"] = "ELB"
    """How the service is reached."""
    target_groups: TargetGroups = TargetGroups()
    """The target groups of the load balancer."""
    stable_timeout: Duration = Duration(minutes=15)
    """How long a rollout may take until all its tasks run."""

    def check(self, report: Report) -> None:
        for key, value in (
            ("taskDefinitionFile", self.task_definition_file),
            ("serviceDefinitionFile", self.service_definition_file or "."),
        ):
            if not report.is_broken(key) and (fault := find_path_fault(value)):
                report.fault(key, message=fault)
        if not report.is_broken("stableTimeout") and self.stable_timeout <= timedelta():
            report.fault("stableTimeout", message="must be longer than 0s")


class QuickSyncOptions(ApplicationConfig):
    """The options of a deployment without a pipeline."""

    recreate: bool = False
    """Stop all tasks before the new ones start: an outage, for what must not run twice."""


class EcsOptions(ApplicationConfig):
    """The options in an application file, under `spec.plugins.ecs`."""

    input: EcsInput = EcsInput()
    """What is deployed, and how it is reached."""
    quick_sync: QuickSyncOptions = QuickSyncOptions()
    """The options of a deployment without a pipeline."""
    ignore_drift: tuple[str, ...] = ()
    """Paths of fields that may differ from git, e.g. `service.desiredCount`."""


class EcsSyncConfig(StageConfig):
    """The options of ECS_SYNC."""

    recreate: bool = False
    """Stop all tasks before the new ones start: an outage, for what must not run twice."""


class EcsPrimaryConfig(StageConfig):
    """The options of ECS_PRIMARY_ROLLOUT: there are none."""


class EcsCanaryConfig(StageConfig):
    """The options of ECS_CANARY_ROLLOUT."""

    constraints: ClassVar = (
        InRange(
            key="scale", minimum=0, maximum=100, message="not a share: {value}", hint="0 to 100"
        ),
    )

    scale: Share = Share(0)
    """The canary's tasks, as a share of the service's, rounded up."""


class EcsCleanConfig(StageConfig):
    """The options of ECS_CANARY_CLEAN: there are none."""


class EcsTrafficConfig(StageConfig):
    """The options of ECS_TRAFFIC_ROUTING: how the traffic is split between the two."""

    constraints: ClassVar = (limit_share("primary"), limit_share("canary"))

    primary: Percentage | None = None
    """The primary's share; the canary gets the rest. It counts before `canary`."""
    canary: Percentage | None = None
    """The canary's share; the primary gets the rest."""


def read_shares(config: EcsTrafficConfig) -> tuple[int, int]:
    """Returns the shares of primary and canary; without any, the primary gets all.

    Example:
        >>> read_shares(EcsTrafficConfig(canary=Percentage(10)))
        (90, 10)
    """
    if config.primary:
        return int(config.primary), 100 - config.primary
    if config.canary:
        return 100 - config.canary, int(config.canary)
    return 100, 0
