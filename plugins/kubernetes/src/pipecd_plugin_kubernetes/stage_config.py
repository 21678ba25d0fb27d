# SPDX-License-Identifier: Apache-2.0
"""The options of the stages, what stands under their `with`. Both plugins have the same."""

from typing import Any, ClassVar, Literal

from pipecd_sdk import Percentage, Replicas, StageConfig
from pipecd_sdk.constraints import AddsUp, Constraint, InRange, NotTogether, limit_share

PatchOperation = Literal["yaml-replace", "yaml-add", "yaml-remove", "json-replace", "text-regex"]
Variant = Literal["", "primary", "canary", "baseline"]


class TargetChoice(StageConfig):
    """On which deploy targets a stage runs."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        NotTogether(
            key="multiTargets",
            others=("targetPercentage",),
            message="cannot be given together with targetPercentage",
        ),
        InRange(
            key="targetPercentage", minimum=1, maximum=100, message="must be 1 to 100: {value}"
        ),
    )

    multi_targets: tuple[str, ...] = ()
    """Only these deploy targets, where there are several."""
    target_percentage: Percentage | None = None
    """Only the first ones of the deploy targets, this part of all; a part of one counts as one."""


class SyncConfig(TargetChoice):
    """The options of K8S_SYNC."""

    add_variant_label_to_selector: bool = False
    """Add the label of the variant to the selectors of the workloads."""
    prune: bool = False
    """Remove what this application has in the cluster and no longer in git."""


class PrimaryRolloutConfig(TargetChoice):
    """The options of K8S_PRIMARY_ROLLOUT."""

    suffix: str = "primary"
    """What is added to the name of the variant's Service."""
    create_service: bool = False
    """Make a Service for the primary alone."""
    add_variant_label_to_selector: bool = False
    """Add the label of the variant to the selectors of the workloads."""
    prune: bool = False
    """Remove what the primary has in the cluster and no longer in git."""


class PatchTarget(StageConfig):
    """The manifest that a patch changes."""

    kind: str
    """Its kind."""
    name: str
    """Its name."""
    document_root: str = ""
    """The path of a text in it that is a document itself, e.g. `$.data.config`."""


class PatchStep(StageConfig):
    """One change of a patch."""

    path: str
    """Where, e.g. `$.spec.template.spec.containers[0].image`."""
    op: PatchOperation = "yaml-replace"
    """What is done."""
    value: Any = ""
    """With what."""


class Patch(StageConfig):
    """Changes to one manifest of a variant."""

    target: PatchTarget
    """Which manifest."""
    ops: tuple[PatchStep, ...]
    """What is changed, one after the other."""


_REPLICAS = InRange(key="replicas", minimum=0, message="must not be negative: {value}")


class CanaryRolloutConfig(TargetChoice):
    """The options of K8S_CANARY_ROLLOUT."""

    constraints: ClassVar[tuple[Constraint, ...]] = (*TargetChoice.constraints, _REPLICAS)

    replicas: Replicas = Replicas(number=1)
    """How many, or a percentage of the primary's, rounded up."""
    suffix: str = "canary"
    """What is added to the names of the variant."""
    create_service: bool = False
    """Make a Service for the canary alone."""
    patches: tuple[Patch, ...] = ()
    """Changes to the manifests of the variant."""


class BaselineRolloutConfig(TargetChoice):
    """The options of K8S_BASELINE_ROLLOUT."""

    constraints: ClassVar[tuple[Constraint, ...]] = (*TargetChoice.constraints, _REPLICAS)

    replicas: Replicas = Replicas(number=1)
    """How many, or a percentage of the primary's, rounded up."""
    suffix: str = "baseline"
    """What is added to the names of the variant."""
    create_service: bool = False
    """Make a Service for the baseline alone."""


class CleanConfig(TargetChoice):
    """The options of K8S_CANARY_CLEAN and K8S_BASELINE_CLEAN."""


class TrafficConfig(TargetChoice):
    """The options of K8S_TRAFFIC_ROUTING: what part of the traffic each variant gets."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        *TargetChoice.constraints,
        *(limit_share(key) for key in ("primary", "canary", "baseline")),
        AddsUp(
            key="primary",
            message="the traffic adds up to {sum}",
            hint="it must add up to 100",
            unless="all",
            keys=("primary", "canary", "baseline"),
            total=100,
        ),
    )

    all: Variant = ""
    """The variant that gets all traffic."""
    primary: Percentage | None = None
    """The primary's share; what the others leave if it is not given."""
    canary: Percentage | None = None
    """The canary's share."""
    baseline: Percentage | None = None
    """The baseline's share."""
