# SPDX-License-Identifier: Apache-2.0
"""The stage options of the plugins that everybody knows, for whoever lints without running them.

A plugin decides about its own options; what is here is what its documentation says. So a wrong
value is a fault, and a key that is not here is only worth a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import msgspec

from pipecd_model.config import rules
from pipecd_model.config.amounts import Percentage, Replicas
from pipecd_model.config.analysis import AnalysisOptions
from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.config.values import BadValueError, Duration

_VARIANTS = ("primary", "canary", "baseline")


class Share(float):
    """A part of hundred, written as `30`, `12.5` or `30%`."""

    @classmethod
    def from_config(cls, value: Any) -> Self:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(value)
        try:
            return cls(Percentage.from_config(value))
        except BadValueError as error:
            raise BadValueError(f"not a share: {value!r}", hint="0 to 100, e.g. 30") from error


class NoOptions(ConfigModel):
    """A stage without options."""


class WaitOptions(ConfigModel):
    """The options of WAIT."""

    duration: Duration
    """How long to hold the pipeline."""

    def check(self, report: Report) -> None:
        if not report.broken("duration"):
            rules.positive(report, "duration", self.duration)


class ApprovalOptions(ConfigModel):
    """The options of WAIT_APPROVAL."""

    approvers: tuple[str, ...] = ()
    """Who may approve; none named means everybody who may deploy."""
    min_approver_num: int = 1
    """How many different people must approve."""
    exclude_author: bool = False
    """Does the author of the commit not count?"""

    def check(self, report: Report) -> None:
        most = len(set(self.approvers)) or self.min_approver_num
        if not 1 <= self.min_approver_num <= max(most, 1):
            hint = f"1 to {most}, the number of approvers" if self.approvers else "1 or more"
            report.fault(
                "minApproverNum", message=f"not possible: {self.min_approver_num}", hint=hint
            )


class ScriptOptions(ConfigModel):
    """The options of SCRIPT_RUN."""

    moved: ClassVar = {"envs": "use env; envs belongs to CUSTOM_SYNC"}

    run: str | tuple[str, ...] = ""
    """The script, or a list of commands that stops at the first one that fails."""
    runs: str | tuple[str, ...] = ""
    """Another spelling of `run`."""
    on_rollback: str | tuple[str, ...] = ""
    """What to run when the deployment is rolled back after this stage had started."""
    runs_on_rollback: str | tuple[str, ...] = ""
    """Another spelling of `onRollback`."""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of both scripts."""
    on_interrupted: Literal["fail", "rerun"] = "fail"
    """What to do when nobody knows how far a script came, because the machine was lost with it."""

    def check(self, report: Report) -> None:
        if self.run and self.runs:
            report.fault("runs", message="run and runs are the same setting", hint="use only run")
        if self.on_rollback and self.runs_on_rollback:
            report.fault(
                "runsOnRollback",
                message="onRollback and runsOnRollback are the same setting",
                hint="use only onRollback",
            )
        if not (self.run or self.runs or report.broken("run") or report.broken("runs")):
            report.fault("run", message="missing", hint="give the commands of the script")


class CustomSyncOptions(ConfigModel):
    """The options of CUSTOM_SYNC."""

    moved: ClassVar = {"env": "use envs; env belongs to SCRIPT_RUN"}

    run: str
    """The script."""
    envs: dict[str, str] = msgspec.field(default_factory=dict)
    """Its variables."""


class KubernetesSyncOptions(ConfigModel):
    """The options of K8S_SYNC."""

    add_variant_label_to_selector: bool = False
    """Add the label of the variant to selectors."""
    prune: bool = False
    """Remove what git no longer has."""
    multi_targets: tuple[str, ...] = ()
    """Only these deploy targets, where there are several."""


class PrimaryRolloutOptions(KubernetesSyncOptions):
    """The options of K8S_PRIMARY_ROLLOUT."""

    suffix: str = "primary"
    """What is added to the names of the variant's Service."""
    create_service: bool = False
    """Make a Service for the variant."""


class VariantRolloutOptions(ConfigModel):
    """The options of K8S_CANARY_ROLLOUT and K8S_BASELINE_ROLLOUT."""

    replicas: Replicas = Replicas()
    """How many, or a percentage of the primary's; 1 if not given."""
    suffix: str = ""
    """What is added to the names of the variant."""
    create_service: bool = False
    """Make a Service for the variant."""
    patches: tuple[dict[str, Any], ...] = ()
    """Changes to the manifests of the variant."""
    multi_targets: tuple[str, ...] = ()
    """Only these deploy targets, where there are several."""

    def check(self, report: Report) -> None:
        if self.replicas.number < 0:
            report.fault("replicas", message=f"must not be negative: {self.replicas}")


class VariantCleanOptions(ConfigModel):
    """The options of K8S_CANARY_CLEAN and K8S_BASELINE_CLEAN."""

    multi_targets: tuple[str, ...] = ()
    """Only these deploy targets, where there are several."""


class TrafficOptions(ConfigModel):
    """The options of K8S_TRAFFIC_ROUTING."""

    all: str = ""
    """The variant that gets all traffic: `primary`, `canary` or `baseline`."""
    primary: Percentage = Percentage(0)
    """The primary's share."""
    canary: Percentage = Percentage(0)
    """The canary's share."""
    baseline: Percentage = Percentage(0)
    """The baseline's share."""
    multi_targets: tuple[str, ...] = ()
    """Only these deploy targets, where there are several."""

    def check(self, report: Report) -> None:
        rules.one_of(report, "all", value=self.all, known=_VARIANTS)
        parts = {key: int(getattr(self, key)) for key in _VARIANTS}
        outside = [key for key, part in parts.items() if not 0 <= part <= 100]
        for key in outside:
            report.fault(key, message=f"not a share of the traffic: {parts[key]}", hint="0 to 100")
        total = sum(parts.values())
        if not outside and not self.all and (total > 100 or (self.primary and total != 100)):
            given = next(key for key in reversed(_VARIANTS) if parts[key])
            report.fault(
                given, message=f"the traffic adds up to {total}", hint="it must add up to 100"
            )


class TerraformPlanOptions(ConfigModel):
    """The options of TERRAFORM_PLAN."""

    exit_on_no_changes: bool = False
    """End the deployment with success if there is nothing to do."""


class EcsSyncOptions(ConfigModel):
    """The options of ECS_SYNC."""

    recreate: bool = False
    """Stop the running tasks first."""


class EcsCanaryOptions(ConfigModel):
    """The options of ECS_CANARY_ROLLOUT."""

    scale: Share = Share(0)
    """The canary's share of the tasks."""

    def check(self, report: Report) -> None:
        if not 0 <= self.scale <= 100:
            report.fault("scale", message=f"not a share: {self.scale:g}", hint="0 to 100")


class EcsTrafficOptions(ConfigModel):
    """The options of ECS_TRAFFIC_ROUTING."""

    primary: Percentage = Percentage(0)
    """The primary's share; the canary gets the rest."""
    canary: Percentage = Percentage(0)
    """The canary's share; the primary gets the rest."""

    def check(self, report: Report) -> None:
        for key, part in (("primary", self.primary), ("canary", self.canary)):
            if not 0 <= part <= 100:
                report.fault(
                    key, message=f"not a share of the traffic: {int(part)}", hint="0 to 100"
                )


class PromoteOptions(ConfigModel):
    """The options of CLOUDRUN_PROMOTE and LAMBDA_PROMOTE."""

    percent: Percentage = Percentage(0)
    """The new version's share of the traffic."""

    def check(self, report: Report) -> None:
        if not 0 <= self.percent <= 100:
            report.fault(
                "percent",
                message=f"not a share of the traffic: {int(self.percent)}",
                hint="0 to 100",
            )


class FilesCanaryOptions(ConfigModel):
    """The options of FILES_CANARY_ROLLOUT: which deploy targets come first."""

    targets: tuple[str, ...] = ()
    """Their names."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that they have, all of them."""
    percentage: Percentage | None = None
    """How many of all, or of those with the labels; a part of one counts as one."""

    def check(self, report: Report) -> None:
        if not (self.targets or self.labels or self.percentage is not None):
            report.fault(message="no deploy target is chosen", hint="targets, labels or percentage")
        if self.targets and (self.labels or self.percentage is not None):
            report.fault("targets", message="cannot be given together with labels or percentage")
        if self.percentage is not None and not 0 < self.percentage <= 100:
            report.fault("percentage", message=f"must be 1 to 100: {int(self.percentage)}")


_KUBERNETES: dict[str, type[ConfigModel]] = {
    "SYNC": KubernetesSyncOptions,
    "PRIMARY_ROLLOUT": PrimaryRolloutOptions,
    "CANARY_ROLLOUT": VariantRolloutOptions,
    "BASELINE_ROLLOUT": VariantRolloutOptions,
    "CANARY_CLEAN": VariantCleanOptions,
    "BASELINE_CLEAN": VariantCleanOptions,
    "TRAFFIC_ROUTING": TrafficOptions,
}

OPTIONS: Mapping[str, type[ConfigModel]] = {
    **{
        f"{prefix}{name}": kind
        for prefix in ("K8S_", "K8S_MULTI_")
        for name, kind in _KUBERNETES.items()
    },
    "TERRAFORM_PLAN": TerraformPlanOptions,
    "TERRAFORM_APPLY": NoOptions,
    "TERRAFORM_SYNC": NoOptions,
    "ECS_SYNC": EcsSyncOptions,
    "ECS_PRIMARY_ROLLOUT": NoOptions,
    "ECS_CANARY_ROLLOUT": EcsCanaryOptions,
    "ECS_CANARY_CLEAN": NoOptions,
    "ECS_TRAFFIC_ROUTING": EcsTrafficOptions,
    "LAMBDA_SYNC": NoOptions,
    "LAMBDA_CANARY_ROLLOUT": NoOptions,
    "LAMBDA_PROMOTE": PromoteOptions,
    "CLOUDRUN_SYNC": NoOptions,
    "CLOUDRUN_PROMOTE": PromoteOptions,
    "FILES_SYNC": NoOptions,
    "FILES_CANARY_ROLLOUT": FilesCanaryOptions,
    "FILES_PRIMARY_ROLLOUT": NoOptions,
    "ANALYSIS": AnalysisOptions,
    "SCRIPT_RUN": ScriptOptions,
    "CUSTOM_SYNC": CustomSyncOptions,
    "WAIT": WaitOptions,
    "WAIT_APPROVAL": ApprovalOptions,
}
"""What each known stage takes under `with`."""
